#include "iha/patterns/count.h"

#include <algorithm>

#include "iha/patterns/arithmetic.h"
#include "iha/patterns/combs.h"

namespace iha {
namespace {

// How many keys in [begin, end) stand on the pattern's step, seen from `query`.
int64_t on_step(const Pattern& pattern, int64_t query, int64_t begin, int64_t end) {
  if (pattern.step == Step::kNone) return std::max<int64_t>(end - begin, 0);
  const int64_t origin = pattern.step == Step::kRelative ? query : 0;
  return multiples_in(begin - origin, end - origin, pattern.every);
}

// How many visible pairs have j = i in [begin, end), in any of `patterns`: base windows, chunks and relative
// steps always allow it.
int64_t diagonal_pairs(const std::vector<Pattern>& patterns, int64_t begin, int64_t end) {
  std::vector<Comb> combs;
  for (const Pattern& pattern : patterns) {
    combs.push_back({begin, end, 0, pattern.step == Step::kAbsolute ? pattern.every : 1});
    combs.push_back({begin, std::min(pattern.first, end), 0, 1});
  }
  return tokens_in_any(combs);
}

// How many tokens see in flat order only a part of their own pseudo-keys: those that no pattern which is not
// causal shows to itself.
int64_t split_tokens(const Pattern& pattern, int64_t queries, int64_t keys, int64_t query_offset) {
  const int64_t begin = std::max<int64_t>(query_offset, 0);
  const int64_t end = std::max(begin, std::min(query_offset + queries, keys));
  std::vector<Pattern> all = pattern.learned() ? pattern.candidates : std::vector<Pattern>{pattern};
  const int64_t pairs = diagonal_pairs(all, begin, end);
  std::erase_if(all, [](const Pattern& one) { return one.causal(); });
  return pairs - diagonal_pairs(all, begin, end);
}

int64_t pseudo_pairs(const Pattern& pattern, int64_t pairs, int64_t split, int64_t pseudo_heads,
                     bool interleaved, bool flat) {
  if (!interleaved) return pairs * pseudo_heads;  // r = p, so r <= p takes nothing away
  const int64_t all = pairs * pseudo_heads * pseudo_heads;
  const int64_t hidden = pseudo_heads * (pseudo_heads - 1) / 2;  // r > p
  return flat && (pattern.causal() || pattern.learned()) ? all - hidden * split : all;
}

int64_t keys_of_candidates(const Pattern& pattern, int64_t query, int64_t keys) {
  std::vector<Comb> combs;
  for (const Pattern& candidate : pattern.candidates) {
    const KeyRange base = base_range(candidate, query, keys);
    const bool steps = candidate.step != Step::kNone;
    const int64_t modulus = steps ? candidate.every : 1;
    const int64_t origin = candidate.step == Step::kRelative ? query : 0;
    combs.push_back({base.begin, base.end, floor_mod(origin, modulus), modulus});
    combs.push_back({0, first_keys(candidate, query, keys), 0, 1});
  }
  return tokens_in_any(combs);
}

}  // namespace

KeyRange base_range(const Pattern& pattern, int64_t query, int64_t keys) {
  int64_t begin = std::max<int64_t>(0, subtract_saturated(query, pattern.left));
  int64_t end = std::min(keys, add_saturated(add_saturated(query, pattern.right), 1));
  if (pattern.chunk > 0) {
    const int64_t chunk = query - floor_mod(query, pattern.chunk);
    begin = std::max(begin, chunk);
    end = std::min(end, add_saturated(chunk, pattern.chunk));
  }
  begin = std::min(begin, keys);
  return {begin, std::max(begin, end)};
}

int64_t first_keys(const Pattern& pattern, int64_t query, int64_t keys) {
  int64_t most = 0;
  for (const Pattern& candidate : pattern.candidates)
    most = std::max(most, first_keys(candidate, query, keys));
  if (pattern.learned()) return most;
  const int64_t limit = pattern.causal() ? std::min(keys, query + 1) : keys;
  return std::max<int64_t>(0, std::min(pattern.first, limit));
}

int64_t visible_keys(const Pattern& pattern, int64_t query, int64_t keys) {
  if (pattern.learned()) return keys_of_candidates(pattern, query, keys);
  const KeyRange base = base_range(pattern, query, keys);
  const int64_t first = first_keys(pattern, query, keys);
  const int64_t in_both = on_step(pattern, query, base.begin, std::min(base.end, first));
  return on_step(pattern, query, base.begin, base.end) + first - in_both;
}

int64_t visible_pairs(const Pattern& pattern, int64_t queries, int64_t keys, int64_t query_offset) {
  int64_t pairs = 0;
  for (int64_t i = 0; i < queries; ++i) pairs += visible_keys(pattern, query_offset + i, keys);
  return pairs;
}

int64_t visible_pseudo_pairs(const Pattern& pattern, int64_t queries, int64_t keys, int64_t query_offset,
                             int64_t pseudo_heads, bool interleaved, bool flat) {
  return pseudo_pairs(pattern, visible_pairs(pattern, queries, keys, query_offset),
                      split_tokens(pattern, queries, keys, query_offset), pseudo_heads, interleaved, flat);
}

int64_t read_keys(const Pattern& pattern, int64_t query, int64_t keys) {
  const int64_t seen = visible_keys(pattern, query, keys);
  if (!pattern.dynamic()) return seen;
  const int64_t block = floor_div(query, pattern.block);
  const int64_t begin = std::clamp<int64_t>(block * pattern.block, 0, keys);
  const int64_t end = std::clamp<int64_t>(add_saturated(block * pattern.block, pattern.block), 0, keys);
  const int64_t own = std::max<int64_t>(0, (pattern.causal() ? std::min(end, query + 1) : end) - begin);
  // As many others as there are, whole ones: no product overflows.
  const int64_t others = std::min(pattern.chosen, keys / pattern.block + 1);
  return std::min(seen, own + others * std::min(pattern.block, keys));
}

int64_t read_pseudo_pairs(const Pattern& pattern, int64_t queries, int64_t keys, int64_t query_offset,
                          int64_t pseudo_heads, bool interleaved, bool flat) {
  int64_t pairs = 0;
  for (int64_t i = 0; i < queries; ++i) pairs += read_keys(pattern, query_offset + i, keys);
  return pseudo_pairs(pattern, pairs, split_tokens(pattern, queries, keys, query_offset), pseudo_heads,
                      interleaved, flat);
}

}  // namespace iha
