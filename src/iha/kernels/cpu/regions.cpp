#include "iha/kernels/cpu/regions.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace iha::cpu {

Regions::Regions(const Pattern& learned, std::span<const float> weights, bool all, float log2_scale) {
  for (size_t m = 0; m < learned.candidates.size(); ++m) {
    if (!all && weights[m] == 0.0f) continue;
    if (weights[m] > 0.0f) positive |= uint32_t{1} << modes.size();
    modes.push_back(learned.candidates[m]);
    candidates.push_back(static_cast<int64_t>(m));
  }
  weight.resize(size_t{1} << modes.size());
  bias.resize(weight.size());
  for (size_t set = 0; set < weight.size(); ++set) {
    double sum = 0;
    for (size_t m = 0; m < modes.size(); ++m) {
      if (set >> m & 1u) sum += weights[candidates[m]];
    }
    weight[set] = static_cast<float>(sum);
    bias[set] = static_cast<float>(std::log2(sum) / log2_scale);
  }
}

std::vector<ViewPair> split_by_modes(const Problem& problem, const Regions& regions, int64_t query_offset) {
  Pattern common;  // of the steps, no more
  bool alike = regions.positive != 0;
  const auto steps = [](const Pattern& mode) { return mode.every > 1 ? mode.step : Step::kNone; };
  int64_t every = 0;
  for (size_t m = 0; m < regions.modes.size(); ++m) {
    const Pattern& mode = regions.modes[m];
    if ((regions.positive >> m & 1u) == 0) continue;
    if (every > 0) alike &= steps(mode) == common.step;
    common.step = steps(mode);
    alike &= common.step != Step::kNone && mode.first == 0;
    every = std::gcd(every, mode.every);
  }
  // A class of one kind of step is no class of the other.
  for (const Pattern& mode : regions.modes) alike &= steps(mode) == Step::kNone || steps(mode) == common.step;
  common.every = every;
  return split_by_step(problem, alike ? common : Pattern(), query_offset);
}

}  // namespace iha::cpu
