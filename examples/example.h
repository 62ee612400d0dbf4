// What the examples of examples/ share, so that each shows its own formula alone: a small array, random
// numbers, one call of the operator without torch, softmax attention as plain loops, and the verdict. With
// torch the call of every example is the one line that docs/series.md gives.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "iha/core.h"

namespace iha::examples {

// [heads, tokens, channels] of one sequence.
struct Array {
  int64_t heads, tokens, channels;
  std::vector<float> values;

  Array(int64_t heads, int64_t tokens, int64_t channels)
      : heads(heads), tokens(tokens), channels(channels), values(heads * tokens * channels) {}
  float& operator()(int64_t h, int64_t n, int64_t c) { return values[(h * tokens + n) * channels + c]; }
  float operator()(int64_t h, int64_t n, int64_t c) const { return values[(h * tokens + n) * channels + c]; }
};

// Numbers from -size to size, the same on every machine.
Array random(int64_t heads, int64_t tokens, int64_t channels, uint64_t seed, double size = 1);

// The operator on the CPU engine, two threads: query [H, N, d], key [Hkv, Nk, d], value [Hkv, Nk, dv] ->
// [H, N, dv]. The last query stands at the last key.
Array attention(const Array& query, const Array& key, const Array& value, const PatternList& patterns);

// Query i of head h sees key j.
using Sees = std::function<bool(int64_t h, int64_t i, int64_t j)>;
// out_i = sum_j exp(s_ij - max_j s_ij) v_j / sum_j exp(s_ij - max_j s_ij), s_ij = q_i . k_j / sqrt(d), over
// the keys that i sees, in float64. Head h reads key head h / (H / Hkv). A query that sees nothing gives 0.
Array softmax_attention(const Array& query, const Array& key, const Array& value, const Sees& sees);

double largest_difference(const Array& a, const Array& b);

// Prints the largest difference of the two and whether it is below `bound`, whose default is what float32
// sums of some hundred numbers of size 1 are off by at most. -> the program's exit status.
int verdict(const Array& found, const Array& expected, double bound = 2e-5);

}  // namespace iha::examples
