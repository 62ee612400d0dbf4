// Which keys a head lets a query see, as a small value, and how lists of heads are composed. The predicate
// here is the definition; everything faster (counts, tiles) is checked against it. Not here: text (parse.h),
// counting (count.h), the weights that learned and dynamic heads put on what they see (kernels/problem.h).
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

namespace iha {

enum class Step : uint8_t {
  kNone,
  kRelative,  // (i - j) mod K = 0
  kAbsolute,  // j mod K = 0
};

// With i the query's and j the key's absolute token position, j is visible when all of these hold:
//   -left <= j - i <= right,  the step's condition,  floor(i / chunk) = floor(j / chunk) where chunk > 0;
// or when j is one of the first `first` tokens (of the query's document where there are documents; j < first
// otherwise), and j <= i where the pattern is causal.
//
// A learned pattern shows what any of its candidates shows, each by its own rules; its window is the least
// that holds theirs, so it is causal where all of them are. A dynamic pattern shows everything (or what is
// not after the query): its block weights choose among blocks of `block` keys.
struct Pattern {
  static constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();
  // More candidates are refused: what a pair's candidates are is kept in the bits of a byte.
  static constexpr int64_t kMaxCandidates = 8;

  int64_t left = kUnbounded;
  int64_t right = kUnbounded;
  Step step = Step::kNone;
  int64_t every = 1;  // K of the step
  int64_t chunk = 0;  // 0: no chunks
  int64_t first = 0;
  int64_t block = 0;   // dynamic: keys a block; 0: not dynamic
  int64_t chosen = 0;  // dynamic: blocks that a query chooses besides its own
  // Learned: in the order of the mode weights; empty: not learned.
  std::vector<Pattern> candidates = {};

  bool dynamic() const { return block > 0; }
  bool learned() const { return !candidates.empty(); }
  // Causal means right window 0, whatever the pattern is called.
  bool causal() const { return right == 0; }
  // The pattern with the `+first:count` modifier. Throws std::invalid_argument if count < 0, for a learned
  // pattern (its candidates take the modifier) and for a dynamic one (weights are of whole blocks).
  Pattern with_first(int64_t count) const;
  friend bool operator==(const Pattern&, const Pattern&) = default;
};

// The builders throw std::invalid_argument for negative windows and for K or C below 1.
Pattern global();
Pattern causal();
Pattern sliding(int64_t window);         // `window` tokens on each side
Pattern causal_sliding(int64_t window);  // self and `window` before
Pattern window(int64_t left, int64_t right);
Pattern strided(int64_t step);
Pattern causal_strided(int64_t step);
Pattern every(int64_t step);
Pattern causal_every(int64_t step);
Pattern chunked(int64_t tokens);
Pattern causal_chunked(int64_t tokens);
// One of 1 to Pattern::kMaxCandidates patterns that are neither learned nor dynamic themselves.
Pattern learned(std::vector<Pattern> candidates);
// A query's own block of `block` tokens and the `chosen` blocks that its head prefers, both at least 1.
Pattern dynamic(int64_t block, int64_t chosen);
Pattern causal_dynamic(int64_t block, int64_t chosen);

// Throws std::invalid_argument, naming `operator_name`, for values that no predicate has: negative windows,
// chunks or first tokens, a step below 1, candidates that are learned or dynamic. Any combination of the
// others is a pattern, even one without a name in the grammar.
void check(const Pattern& pattern, std::string_view operator_name);
// The block of the dynamic patterns among `heads`, 0 if there is none. Throws std::invalid_argument where
// they differ: the block weights of all heads are one tensor.
int64_t dynamic_block(const std::vector<Pattern>& heads, std::string_view operator_name);
// The most candidates that a learned pattern of `heads` has: M of the mode weights [heads, M].
int64_t most_candidates(const std::vector<Pattern>& heads);

// The base of the predicate: everything but the first tokens.
bool base_visible(const Pattern& pattern, int64_t query, int64_t key);
// The whole predicate without documents. Positions may be negative (a query offset), keys are >= 0.
bool visible(const Pattern& pattern, int64_t query, int64_t key);

// One entry a head, or one for all heads: `causal()` serves any number of heads, `causal() * 1` exactly one.
class PatternList {
 public:
  // More heads than this are taken for a slip, so that `causal*999999999999` allocates nothing.
  static constexpr int64_t kMaxHeads = 65536;

  PatternList() : PatternList(global()) {}
  PatternList(const Pattern& pattern) : heads_{pattern}, for_all_(true) {}  // NOLINT: meant to be implicit
  PatternList(std::vector<Pattern> one_per_head) : heads_(std::move(one_per_head)) {}  // NOLINT

  bool for_all() const { return for_all_; }
  const std::vector<Pattern>& entries() const { return heads_; }
  // One pattern a head. Throws std::invalid_argument naming the operator and both counts where they differ.
  std::vector<Pattern> expand(int64_t heads, std::string_view operator_name = "iha::PatternList") const;
  friend bool operator==(const PatternList&, const PatternList&) = default;

 private:
  std::vector<Pattern> heads_;
  bool for_all_ = false;
};

// `causal() * 4 + sliding(64) * 4 + global()`: in a sum an entry without a count is one head. Both
// throw std::invalid_argument for a count below 1 or more than kMaxHeads heads.
PatternList operator*(const Pattern& pattern, int64_t count);
PatternList operator*(int64_t count, const Pattern& pattern);
PatternList operator+(const PatternList& left, const PatternList& right);

}  // namespace iha
