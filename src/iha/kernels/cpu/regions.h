// What the mode weights of a learned head make of its candidates: which ones matter, and the weight w of the
// region of pairs that a set of them shows, as a weight and as a bias ln w on scores.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "iha/kernels/cpu/spans.h"

namespace iha::cpu {

// Modes are the candidates that matter, renumbered; a set of them is the bits of an integer.
struct Regions {
  // `weights`: of all candidates, those too small to count as 0. `all`: candidates of weight 0 matter too,
  // since the gradients of their weights are wanted. `log2_scale`: scores to exponents of 2.
  Regions(const Pattern& learned, std::span<const float> weights, bool all, float log2_scale);

  std::vector<Pattern> modes;
  std::vector<int64_t> candidates;  // their numbers
  uint32_t positive = 0;  // the set of modes of weight > 0: pairs that none of these shows are hidden
  std::vector<float> weight, bias;  // of each set; bias in units of scores, -inf for weight 0
};

// The classes of tokens that a learned head may be cut into: where all modes of positive weight step alike,
// those of their common step.
std::vector<ViewPair> split_by_modes(const Problem& problem, const Regions& regions, int64_t query_offset);

}  // namespace iha::cpu
