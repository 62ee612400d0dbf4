// The oracle's steps around the softmax, for one sequence: mixing heads into pseudo-heads, turning by RoPE,
// and one pseudo-query's row of weights. Private to kernels/reference/.
#pragma once

#include <cstdint>
#include <vector>

#include "iha/kernels/problem.h"
#include "iha/kernels/reference/reference.h"

namespace iha::reference {

// The sizes of an array [heads, tokens, width] and of its pseudo-heads [heads, tokens, P, width].
struct Sizes {
  int64_t heads, tokens, pseudo_heads, width;
};
Sizes query_sizes(const Problem& problem);
Sizes key_sizes(const Problem& problem);
Sizes value_sizes(const Problem& problem);

// x~[h,n,p] = sum_m alpha[m,h,p] x[m,n]; alpha null: x[h,n] for every p.
std::vector<double> mix(const double* x, const double* alpha, const Sizes& sizes);

// Given the gradient of x~: writes grad_x[m,n] = sum_{h,p} alpha[m,h,p] grad x~[h,n,p] and, with alpha, adds
// sum_n x[m,n] . grad x~[h,n,p] to grad_alpha[m,h,p]. Rows (h,n,p) that are not `used` have no gradient, and
// what they were made of (NaN perhaps) is not read.
void mix_backward(const double* x, const double* alpha, const Sizes& sizes,
                  const std::vector<double>& grad_mixed, const std::vector<char>& used,
                  std::vector<double>& grad_x, std::vector<double>& grad_alpha);

// Turns x~ [heads, tokens, P, d] in place by the angles of tokens at positions `position` and on; direction
// -1 turns back.
void turn(std::vector<double>& mixed, const Problem& problem, const Sizes& sizes, int64_t position,
          int direction);

// q~ and k~, turned, and v~ of one sequence. value is empty where inputs.value is absent.
struct PseudoHeads {
  std::vector<double> query;  // [Hq, Nq, P, d]
  std::vector<double> key;    // [Hkv, Nk, P, d]
  std::vector<double> value;  // [Hkv, Nk, P, dv]
};
PseudoHeads make_pseudo_heads(const Problem& problem, const Inputs& inputs, int64_t b);

// The softmax of pseudo-query (i, p) of head h over s + ln w.
struct Row {
  std::vector<int64_t> columns;      // j * P + r of the pseudo-keys it sees, ascending
  std::vector<uint32_t> candidates;  // of these columns, as Visibility::candidates has them
  std::vector<double> weights;       // of these columns; with a sink they sum to less than 1
  double sink_weight = 0;
  double lse = 0;
};
Row softmax_row(const Problem& problem, const Visibility& visible, const PseudoHeads& pseudo,
                const Inputs& inputs, int64_t b, int64_t h, int64_t i, int64_t p);

// What dropout multiplies the weight of `column` by: 0, or 1 / (1 - p) where it is kept.
double dropout_factor(const Problem& problem, int64_t b, int64_t h, int64_t row, int64_t column);

}  // namespace iha::reference
