// One call of the operator without its data: sizes, patterns and options, already resolved (no defaults
// left). The oracle, the engine and the torch operator all start from this value, so a check stands here once
// for all of them.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "iha/core/rope.h"
#include "iha/patterns/pattern.h"

namespace iha {

enum class Layout : uint8_t { kInterleaved, kParallel };
enum class Order : uint8_t { kFlat, kToken };
enum class CollapseKind : uint8_t { kMean, kPerHead, kGlobal };

struct Problem {
  int64_t batch = 0, query_heads = 0, key_heads = 0, queries = 0, keys = 0, head_dim = 0, value_dim = 0;
  int64_t pseudo_heads = 1;       // P
  std::vector<Pattern> patterns;  // [query_heads]
  Layout layout = Layout::kInterleaved;
  Order order = Order::kFlat;
  Rope rope;
  double scale = 1.0;
  CollapseKind collapse = CollapseKind::kMean;
  std::vector<int64_t> query_offset;  // [batch]: absolute position of query 0
  std::vector<int64_t> key_lengths;   // [batch]: keys at or past it do not exist; empty: all exist
  std::vector<int64_t> documents;     // [batch * keys]: document number of each token; empty: one document
  double dropout_p = 0.0;
  uint64_t dropout_seed = 0;

  int64_t group() const { return key_heads == 0 ? 1 : query_heads / key_heads; }
  int64_t keys_of(int64_t b) const { return key_lengths.empty() ? keys : key_lengths[b]; }
  // M of the mode weights [query_heads, M]; 0 without learned heads.
  int64_t modes() const { return most_candidates(patterns); }
  // Keys a block of the dynamic heads, and blocks of the keys: block weights are [batch, query_heads,
  // queries, key_blocks]. 0 without dynamic heads.
  int64_t block() const;
  int64_t key_blocks() const;
  bool weighted() const { return modes() > 0 || block() > 0; }
};

// Weights on what learned and dynamic heads see: w < 0, NaN and infinity are refused, what is below the
// smallest normal float32 counts as 0, and what has weight 0 is not visible.
constexpr double kSmallestWeight = std::numeric_limits<float>::min();
inline double counted_weight(double weight) {
  return weight < kSmallestWeight ? 0 : weight;
}
inline bool is_weight(double weight) {
  return weight >= 0 && weight <= std::numeric_limits<double>::max();
}
// Throws std::invalid_argument, naming `operator_name`, for a weight of array `what` that is refused.
void check_weight(double weight, std::string_view operator_name, std::string_view what);

// Throws std::invalid_argument, naming `operator_name`, for anything the formulas do not define: sizes below
// 0, P < 1, query heads no multiple of key heads, patterns that do not fit, offsets with which |position| * P
// reaches 2^53, odd RoPE dimensions, lengths outside 0..keys, queries outside the documents, p outside [0,
// 1], a scale not finite.
void check(const Problem& problem, std::string_view operator_name);

// The whole rule of who sees whom: pseudo-query (i, p) of head h in sequence b and pseudo-key (j, r), before
// weights hide what has weight 0. Made for the oracle and tests; O(1) a pair but for `first` with documents,
// whose ranks are counted once in the constructor.
class Visibility {
 public:
  explicit Visibility(const Problem& problem);
  bool operator()(int64_t b, int64_t h, int64_t i, int64_t p, int64_t j, int64_t r) const {
    return candidates(b, h, i, p, j, r) != 0;
  }
  // Bit m: candidate m of a learned head shows it. Bit 0 alone for other heads.
  uint32_t candidates(int64_t b, int64_t h, int64_t i, int64_t p, int64_t j, int64_t r) const;

 private:
  bool shows(const Pattern& pattern, int64_t b, int64_t i, int64_t p, int64_t j, int64_t r) const;

  const Problem& problem_;
  std::vector<int64_t> rank_;  // [batch * keys]: how many tokens of the same document come before
};

}  // namespace iha
