// One axis of a chart: where a value lies and which values are written beside it. Private to report/.
#pragma once

#include <string>
#include <vector>

namespace iha::report {

struct Axis {
  double low = 0, high = 1;  // low < high; both above 0 on a logarithmic axis
  bool logarithmic = false;
  std::vector<double> ticks;        // within [low, high], rising
  std::vector<std::string> labels;  // of the ticks: "0.90", "0.95", "1.00"

  // 0 at low, 1 at high.
  double position(double value) const;
};

// An axis over [low, high], with about `wanted` ticks at round values. An empty or single-valued range is
// widened.
Axis make_axis(double low, double high, bool logarithmic, int wanted);

std::string tick_text(double value);

}  // namespace iha::report
