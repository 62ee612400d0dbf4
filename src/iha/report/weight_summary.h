// The softmax weights of one head on one text, kept small enough for a page: every weight of a short text; of
// a long one the mass of each block and, for each query, its heaviest keys. Rows are added one by one, so
// that nobody needs all of them at a time. Not here: where rows come from (ops/), drawing (viewer.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace iha::report {

inline constexpr int64_t kExactTokens = 256;     // a text of more tokens is summarised
inline constexpr int64_t kMostTokens = 65535;    // and one of more than these is refused: keys take 16 bits
inline constexpr int64_t kHeaviest = 8;          // keys kept of each query of a summarised text
inline constexpr int64_t kMassesASide = 64;      // blocks of a summarised text, along each side
inline constexpr int64_t kPartCellsASide = 128;  // cells of all P x P sub-patterns together, along each side

// Square blocks of tokens and how much weight went where: at [row * side + column] what a query of the row's
// block gives to all keys of the column's block, on average over the queries. With `block` 1 each weight.
struct Masses {
  int64_t block = 1;
  int64_t side = 0;  // blocks along each side; the last may be smaller
  std::vector<double> values;
};

// Of the weights w(i, p, j, r), query i and key j, pseudo-heads p and r: w(i, j) = mean over p of the sum
// over r.
struct HeadWeights {
  int64_t tokens = 0;
  int64_t pseudo_heads = 1;
  Masses masses;  // of w(i, j)
  // For each query its kHeaviest largest w(i, j) above 0, falling, equals by the lower key, and the sum of
  // the others; -1 and 0 where it has fewer. Empty where the masses are exact.
  std::vector<int32_t> heaviest_keys;   // [tokens * kHeaviest]
  std::vector<float> heaviest_weights;  // [tokens * kHeaviest]
  std::vector<float> rest;              // [tokens]
  // One for each (p, r), at p * P + r, of w(i, p, j, r); exact while tokens * P <= kExactTokens. Empty for P
  // = 1.
  std::vector<Masses> parts;
};

class WeightSummary {
 public:
  // Throws std::invalid_argument for tokens outside 0..kMostTokens and P < 1.
  WeightSummary(int64_t tokens, int64_t pseudo_heads);

  // The weights [P, tokens, P] (p, key, r) of query `row`; NaN counts as 0. Each row once, in any order.
  // Throws std::invalid_argument for another size and a row outside the text.
  void add(int64_t row, std::span<const float> weights);
  HeadWeights take() { return std::move(result_); }

 private:
  void keep_heaviest(int64_t row);

  HeadWeights result_;
  std::vector<double> row_;  // w(row, j)
};

// Rows may be gathered in any cut: this many at a time keep `numbers_a_row` floats a row within 64 MiB, at
// least one.
int64_t rows_at_a_time(int64_t numbers_a_row);

}  // namespace iha::report
