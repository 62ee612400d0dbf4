#include "iha/report/weight_summary.h"

#include <algorithm>
#include <numeric>

#include "iha/core/error.h"

namespace iha::report {
namespace {

constexpr auto kName = "report: weights of a head: ";

// Blocks of as few tokens as make at most `most` along a side.
Masses empty_masses(int64_t tokens, int64_t most) {
  Masses masses;
  masses.block = std::max<int64_t>(1, (tokens + most - 1) / most);
  masses.side = (tokens + masses.block - 1) / masses.block;
  masses.values.resize(static_cast<std::size_t>(masses.side * masses.side));
  return masses;
}

int64_t part_side(int64_t tokens, int64_t pseudo_heads) {
  return tokens * pseudo_heads <= kExactTokens ? kExactTokens
                                               : std::max<int64_t>(1, kPartCellsASide / pseudo_heads);
}

// What `weight` adds to its block, an average over the block's queries.
void add_to(Masses& masses, int64_t tokens, int64_t row, int64_t column, double weight) {
  const int64_t block_row = row / masses.block;
  const int64_t queries = std::min(masses.block, tokens - block_row * masses.block);
  masses.values[static_cast<std::size_t>(block_row * masses.side + column / masses.block)] +=
      weight / static_cast<double>(queries);
}

double number(float weight) {
  return weight > 0 ? static_cast<double>(weight) : 0.0;
}

}  // namespace

WeightSummary::WeightSummary(int64_t tokens, int64_t pseudo_heads) {
  check(tokens >= 0 && tokens <= kMostTokens, kName, tokens, " tokens, expected 0 to ", kMostTokens);
  check(pseudo_heads >= 1, kName, pseudo_heads, " pseudo-heads, expected at least 1");
  result_.tokens = tokens;
  result_.pseudo_heads = pseudo_heads;
  const bool exact = tokens <= kExactTokens;
  result_.masses = empty_masses(tokens, exact ? kExactTokens : kMassesASide);
  if (!exact) {
    result_.heaviest_keys.assign(static_cast<std::size_t>(tokens * kHeaviest), -1);
    result_.heaviest_weights.resize(static_cast<std::size_t>(tokens * kHeaviest));
    result_.rest.resize(static_cast<std::size_t>(tokens));
  }
  if (pseudo_heads > 1) {
    result_.parts.assign(static_cast<std::size_t>(pseudo_heads * pseudo_heads),
                         empty_masses(tokens, part_side(tokens, pseudo_heads)));
  }
  row_.resize(static_cast<std::size_t>(tokens));
}

void WeightSummary::add(int64_t row, std::span<const float> weights) {
  const int64_t tokens = result_.tokens, pseudo = result_.pseudo_heads;
  check(row >= 0 && row < tokens, kName, "query ", row, " of ", tokens, " tokens");
  check(static_cast<int64_t>(weights.size()) == pseudo * tokens * pseudo, kName, "a row of ", weights.size(),
        " weights, expected ", pseudo, " * ", tokens, " * ", pseudo);
  std::fill(row_.begin(), row_.end(), 0.0);
  const float* next = weights.data();
  for (int64_t p = 0; p < pseudo; ++p) {
    for (int64_t key = 0; key < tokens; ++key) {
      for (int64_t r = 0; r < pseudo; ++r) {
        const double weight = number(*next++);
        if (weight == 0) continue;
        row_[static_cast<std::size_t>(key)] += weight / static_cast<double>(pseudo);
        if (pseudo > 1)
          add_to(result_.parts[static_cast<std::size_t>(p * pseudo + r)], tokens, row, key, weight);
      }
    }
  }
  for (int64_t key = 0; key < tokens; ++key)
    add_to(result_.masses, tokens, row, key, row_[static_cast<std::size_t>(key)]);
  if (!result_.rest.empty()) keep_heaviest(row);
}

void WeightSummary::keep_heaviest(int64_t row) {
  std::vector<int32_t> order(row_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto most = order.begin() + std::min<std::ptrdiff_t>(kHeaviest, std::ssize(order));
  std::partial_sort(order.begin(), most, order.end(), [&](int32_t a, int32_t b) {
    return row_[static_cast<std::size_t>(a)] != row_[static_cast<std::size_t>(b)]
               ? row_[static_cast<std::size_t>(a)] > row_[static_cast<std::size_t>(b)]
               : a < b;
  });
  auto at = static_cast<std::size_t>(row * kHeaviest);
  double rest = 0;
  for (auto key = order.begin(); key != order.end(); ++key) {
    const double weight = row_[static_cast<std::size_t>(*key)];
    if (key >= most) {
      rest += weight;
    } else if (weight > 0) {
      result_.heaviest_keys[at] = *key;
      result_.heaviest_weights[at++] = static_cast<float>(weight);
    }
  }
  result_.rest[static_cast<std::size_t>(row)] = static_cast<float>(rest);
}

int64_t rows_at_a_time(int64_t numbers_a_row) {
  constexpr int64_t kNumbers = (int64_t{64} << 20) / static_cast<int64_t>(sizeof(float));
  return std::max<int64_t>(1, kNumbers / std::max<int64_t>(1, numbers_a_row));
}

}  // namespace iha::report
