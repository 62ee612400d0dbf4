#include "iha/core/rope.h"

#include <cmath>

namespace iha {

std::vector<double> rope_frequencies(const Rope& rope, int64_t head_dim) {
  if (!rope.frequencies.empty()) return rope.frequencies;
  std::vector<double> frequencies(head_dim / 2);
  for (int64_t c = 0; c < head_dim / 2; ++c) {
    frequencies[c] = std::pow(rope.theta, -2.0 * static_cast<double>(c) / static_cast<double>(head_dim));
  }
  return frequencies;
}

void rotate(double* row, const std::vector<double>& frequencies, RopeStyle style, int64_t position,
            int direction) {
  const auto pairs = static_cast<int64_t>(frequencies.size());
  for (int64_t c = 0; c < pairs; ++c) {
    const double angle = static_cast<double>(position) * frequencies[c];
    const double cosine = std::cos(angle), sine = direction * std::sin(angle);
    const auto [low, high] = rope_channels(style, c, pairs);
    const double a = row[low], b = row[high];
    row[low] = a * cosine - b * sine;
    row[high] = a * sine + b * cosine;
  }
}

}  // namespace iha
