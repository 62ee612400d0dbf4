#include "iha/report/axis.h"

#include <algorithm>
#include <cmath>

#include "iha/report/format.h"

namespace iha::report {
namespace {

// The smallest of 1, 2 and 5 times a power of ten that gives at most wanted + 1 ticks.
double round_step(double range, int wanted) {
  const double rough = range / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double mantissa = rough / power;
  constexpr double kUpTo = 1 + 1e-9;
  return power * (mantissa <= kUpTo ? 1 : mantissa <= 2 * kUpTo ? 2 : mantissa <= 5 * kUpTo ? 5 : 10);
}

std::vector<double> linear_ticks(double low, double high, int wanted) {
  std::vector<double> ticks;
  const double step = round_step(high - low, wanted);
  const double slack = 1e-9 * (high - low);
  for (double n = std::ceil((low - slack) / step); n * step <= high + slack; ++n)
    ticks.push_back(n == 0 ? 0.0 : n * step);
  return ticks;
}

std::vector<double> logarithmic_ticks(double low, double high, int wanted) {
  const double decades = std::log10(high / low);
  // Of 1, 2, 5: all three where there is room, else the powers alone, and of many powers each n-th.
  const bool all = 3 * decades <= wanted + 1;
  const double stride = std::max(1.0, std::ceil(decades / wanted));
  std::vector<double> ticks;
  for (double exponent = std::floor(std::log10(low)); exponent <= std::ceil(std::log10(high));
       exponent += stride) {
    for (const double mantissa : {1.0, 2.0, 5.0}) {
      const double tick = mantissa * std::pow(10.0, exponent);
      if ((mantissa == 1 || all) && tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9))
        ticks.push_back(tick);
    }
  }
  return ticks;
}

// The ticks with as many decimals as the longest needs.
std::vector<std::string> label_all(const std::vector<double>& ticks, bool logarithmic) {
  std::vector<std::string> labels;
  std::size_t decimals = 0;
  bool plain = !logarithmic;
  for (const double tick : ticks) {
    const std::string& label = labels.emplace_back(tick_text(tick));
    plain = plain && label.find_first_not_of("-.0123456789") == std::string::npos;
    const std::size_t point = label.find('.');
    if (point != std::string::npos) decimals = std::max(decimals, label.size() - point - 1);
  }
  for (std::size_t i = 0; plain && i < ticks.size(); ++i)
    labels[i] = fixed(ticks[i], static_cast<int>(decimals));
  return labels;
}

}  // namespace

double Axis::position(double value) const {
  return logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
}

Axis make_axis(double low, double high, bool logarithmic, int wanted) {
  if (!(high > low)) {
    const double margin = logarithmic ? 0 : std::max(std::abs(low) * 0.1, 1e-3);
    high = logarithmic ? low * 2 : low + margin;
    low = logarithmic ? low / 2 : low - margin;
  }
  Axis axis{low, high, logarithmic, {}, {}};
  axis.ticks = logarithmic ? logarithmic_ticks(low, high, wanted) : linear_ticks(low, high, wanted);
  axis.labels = label_all(axis.ticks, logarithmic);
  return axis;
}

std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size >= 1e6) return si(value, 4);
  if (size >= 1000 && value == std::round(value)) return count(static_cast<int64_t>(value));
  return significant(value, 6);
}

}  // namespace iha::report
