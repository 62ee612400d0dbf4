#include "iha/patterns/pattern.h"

#include <algorithm>

#include "iha/core/error.h"
#include "iha/patterns/arithmetic.h"

namespace iha {
namespace {

void check_at_least(int64_t value, int64_t least, const char* function, const char* argument) {
  check(value >= least, "iha::", function, ": ", argument, " is ", value, ", expected at least ", least);
}

Pattern with_step(Pattern pattern, Step step, int64_t every, const char* function) {
  check_at_least(every, 1, function, "the step");
  pattern.step = step;
  pattern.every = every;
  return pattern;
}

Pattern with_blocks(Pattern pattern, int64_t block, int64_t chosen, const char* function) {
  check_at_least(block, 1, function, "the block");
  check_at_least(chosen, 1, function, "the number of chosen blocks");
  pattern.block = block;
  pattern.chosen = chosen;
  return pattern;
}

Pattern with_chunk(Pattern pattern, int64_t tokens, const char* function) {
  check_at_least(tokens, 1, function, "the chunk");
  pattern.chunk = tokens;
  return pattern;
}

void append(std::vector<Pattern>& heads, const std::vector<Pattern>& more) {
  const auto total = static_cast<int64_t>(heads.size() + more.size());
  check(total <= PatternList::kMaxHeads, "iha::PatternList: ", total, " heads, expected at most ",
        PatternList::kMaxHeads);
  heads.insert(heads.end(), more.begin(), more.end());
}

}  // namespace

Pattern Pattern::with_first(int64_t count) const {
  check_at_least(count, 0, "Pattern::with_first", "the number of first tokens");
  check(!learned(), "iha::Pattern::with_first: a learned pattern, expected one of its candidates");
  check(!dynamic(), "iha::Pattern::with_first: a dynamic pattern, expected one that chooses no blocks");
  Pattern pattern = *this;
  pattern.first = count;
  return pattern;
}

Pattern global() {
  return {};
}

Pattern causal() {
  return {.right = 0};
}

Pattern sliding(int64_t window) {
  check_at_least(window, 0, "sliding", "the window");
  return {.left = window, .right = window};
}

Pattern causal_sliding(int64_t window) {
  check_at_least(window, 0, "causal_sliding", "the window");
  return {.left = window, .right = 0};
}

Pattern window(int64_t left, int64_t right) {
  check_at_least(left, 0, "window", "the left window");
  check_at_least(right, 0, "window", "the right window");
  return {.left = left, .right = right};
}

Pattern strided(int64_t step) {
  return with_step(global(), Step::kRelative, step, "strided");
}
Pattern causal_strided(int64_t step) {
  return with_step(causal(), Step::kRelative, step, "causal_strided");
}
Pattern every(int64_t step) {
  return with_step(global(), Step::kAbsolute, step, "every");
}
Pattern causal_every(int64_t step) {
  return with_step(causal(), Step::kAbsolute, step, "causal_every");
}
Pattern chunked(int64_t tokens) {
  return with_chunk(global(), tokens, "chunked");
}
Pattern causal_chunked(int64_t tokens) {
  return with_chunk(causal(), tokens, "causal_chunked");
}

Pattern learned(std::vector<Pattern> candidates) {
  Pattern pattern{.left = 0, .right = 0};
  for (const Pattern& candidate : candidates) {
    pattern.left = std::max(pattern.left, candidate.left);
    pattern.right = std::max(pattern.right, candidate.right);
  }
  check(!candidates.empty(), "iha::learned: 0 candidates, expected at least 1");
  pattern.candidates = std::move(candidates);
  check(pattern, "iha::learned");
  return pattern;
}

Pattern dynamic(int64_t block, int64_t chosen) {
  return with_blocks(global(), block, chosen, "dynamic");
}
Pattern causal_dynamic(int64_t block, int64_t chosen) {
  return with_blocks(causal(), block, chosen, "causal_dynamic");
}

void check(const Pattern& pattern, std::string_view operator_name) {
  const auto at_least = [&](int64_t value, int64_t least, const char* what) {
    check(value >= least, operator_name, ": a pattern's ", what, " is ", value, ", expected at least ",
          least);
  };
  at_least(pattern.left, 0, "left window");
  at_least(pattern.right, 0, "right window");
  at_least(pattern.every, 1, "step");
  at_least(pattern.chunk, 0, "chunk");
  at_least(pattern.first, 0, "number of first tokens");
  at_least(pattern.block, 0, "block");
  at_least(pattern.chosen, 0, "number of chosen blocks");
  const auto count = static_cast<int64_t>(pattern.candidates.size());
  check(count <= Pattern::kMaxCandidates, operator_name, ": a pattern of ", count,
        " candidates, expected at most ", Pattern::kMaxCandidates);
  for (const Pattern& candidate : pattern.candidates) {
    check(!candidate.learned() && !candidate.dynamic(), operator_name, ": a ",
          candidate.learned() ? "learned" : "dynamic", " candidate, expected one of the other patterns");
    check(candidate, operator_name);
  }
}

int64_t dynamic_block(const std::vector<Pattern>& heads, std::string_view operator_name) {
  int64_t block = 0;
  for (const Pattern& pattern : heads) {
    if (!pattern.dynamic()) continue;
    check(block == 0 || block == pattern.block, operator_name, ": dynamic heads with blocks of ", block,
          " and of ", pattern.block, " tokens, expected one size for all heads of a list");
    block = pattern.block;
  }
  return block;
}

int64_t most_candidates(const std::vector<Pattern>& heads) {
  std::size_t most = 0;
  for (const Pattern& pattern : heads) most = std::max(most, pattern.candidates.size());
  return static_cast<int64_t>(most);
}

bool base_visible(const Pattern& pattern, int64_t query, int64_t key) {
  if (pattern.learned()) {
    return std::any_of(pattern.candidates.begin(), pattern.candidates.end(),
                       [&](const Pattern& candidate) { return base_visible(candidate, query, key); });
  }
  const int64_t ahead = key - query;
  if (ahead < -pattern.left || ahead > pattern.right) return false;
  if (pattern.step == Step::kRelative && ahead % pattern.every != 0) return false;
  if (pattern.step == Step::kAbsolute && key % pattern.every != 0) return false;
  return pattern.chunk == 0 || floor_div(query, pattern.chunk) == floor_div(key, pattern.chunk);
}

bool visible(const Pattern& pattern, int64_t query, int64_t key) {
  if (pattern.learned()) {
    return std::any_of(pattern.candidates.begin(), pattern.candidates.end(),
                       [&](const Pattern& candidate) { return visible(candidate, query, key); });
  }
  const bool is_first = key < pattern.first && (!pattern.causal() || key <= query);
  return is_first || base_visible(pattern, query, key);
}

std::vector<Pattern> PatternList::expand(int64_t heads, std::string_view operator_name) const {
  check(heads >= 0, operator_name, ": ", heads, " heads, expected at least 0");
  if (for_all_) return std::vector<Pattern>(heads, heads_.front());
  check(static_cast<int64_t>(heads_.size()) == heads, operator_name, ": patterns for ", heads_.size(),
        " heads, expected ", heads, " (one a head) or a single one without a count");
  return heads_;
}

PatternList operator*(const Pattern& pattern, int64_t count) {
  check(count >= 1 && count <= PatternList::kMaxHeads, "iha::PatternList: a pattern for ", count,
        " heads, expected 1 to ", PatternList::kMaxHeads);
  return std::vector<Pattern>(count, pattern);
}

PatternList operator*(int64_t count, const Pattern& pattern) {
  return pattern * count;
}

PatternList operator+(const PatternList& left, const PatternList& right) {
  std::vector<Pattern> heads = left.entries();
  append(heads, right.entries());
  return heads;
}

}  // namespace iha
