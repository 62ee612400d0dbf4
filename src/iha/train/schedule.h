// The learning rate over a run: linear warm-up, then half a cosine. A pure function of the step, so that a
// resumed run needs no state for it.
#pragma once

#include <cstdint>

namespace iha::train {

struct RateSchedule {
  double peak = 3e-3;
  int64_t steps = 2000;  // of the whole run
  int64_t warmup = 100;  // steps from 0 to the peak; may exceed `steps`, the peak is then not reached
  double floor = 0.0;    // where the cosine ends, as a share of the peak
};

// Throws std::invalid_argument naming the value that makes no schedule (a peak not above 0, a floor outside
// [0, 1], negative counts).
void check(const RateSchedule& schedule);

// The rate of 0-based step `step`, with s = step, w = warmup, n = steps:
//   s < w:   peak * (s + 1) / w
//   else:    peak * (floor + (1 - floor) * (1 + cos(pi * (s - w) / (n - w))) / 2), s at most n.
double rate_at(const RateSchedule& schedule, int64_t step);

}  // namespace iha::train
