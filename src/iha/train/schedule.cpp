// Warm-up and cosine: see schedule.h.
#include "iha/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "iha/core/error.h"

namespace iha::train {

void check(const RateSchedule& schedule) {
  iha::check(std::isfinite(schedule.peak) && schedule.peak > 0, "iha train: a learning rate of ",
             schedule.peak, ", expected a finite number above 0");
  iha::check(schedule.steps >= 0, "iha train: ", schedule.steps, " steps, expected 0 or more");
  iha::check(schedule.warmup >= 0, "iha train: ", schedule.warmup, " warm-up steps, expected 0 or more");
  iha::check(schedule.floor >= 0 && schedule.floor <= 1, "iha train: a final rate of ", schedule.floor,
             " of the peak, expected 0 to 1");
}

double rate_at(const RateSchedule& schedule, int64_t step) {
  if (step < schedule.warmup) {
    return schedule.peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup);
  }
  const int64_t length = schedule.steps - schedule.warmup;
  const int64_t at = std::min(step - schedule.warmup, std::max<int64_t>(length, 0));
  const double share = length > 0 ? static_cast<double>(at) / static_cast<double>(length) : 1.0;
  const double cosine = (1.0 + std::cos(std::numbers::pi * share)) / 2.0;
  return schedule.peak * (schedule.floor + (1.0 - schedule.floor) * cosine);
}

}  // namespace iha::train
