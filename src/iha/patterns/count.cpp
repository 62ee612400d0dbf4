#include "iha/patterns/count.h"

#include <algorithm>

#include "iha/patterns/arithmetic.h"

namespace iha {
namespace {

// How many keys in [begin, end) stand on the pattern's step, seen from `query`.
int64_t on_step(const Pattern& pattern, int64_t query, int64_t begin, int64_t end) {
  if (pattern.step == Step::kNone) return std::max<int64_t>(end - begin, 0);
  const int64_t origin = pattern.step == Step::kRelative ? query : 0;
  return multiples_in(begin - origin, end - origin, pattern.every);
}

// How many visible pairs have j = i: base windows, chunks and relative steps always allow it.
int64_t diagonal_pairs(const Pattern& pattern, int64_t queries, int64_t keys, int64_t query_offset) {
  const int64_t begin = std::max<int64_t>(query_offset, 0);
  const int64_t end = std::max(begin, std::min(query_offset + queries, keys));
  if (pattern.step != Step::kAbsolute) return end - begin;
  const int64_t first_end = std::clamp(pattern.first, begin, end);
  return (first_end - begin) + multiples_in(first_end, end, pattern.every);
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
  const int64_t limit = pattern.causal() ? std::min(keys, query + 1) : keys;
  return std::max<int64_t>(0, std::min(pattern.first, limit));
}

int64_t visible_keys(const Pattern& pattern, int64_t query, int64_t keys) {
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
  const int64_t pairs = visible_pairs(pattern, queries, keys, query_offset);
  if (!interleaved) return pairs * pseudo_heads;  // r = p, so r <= p takes nothing away
  const int64_t all = pairs * pseudo_heads * pseudo_heads;
  if (!flat || !pattern.causal()) return all;
  const int64_t hidden = pseudo_heads * (pseudo_heads - 1) / 2;  // r > p
  return all - hidden * diagonal_pairs(pattern, queries, keys, query_offset);
}

}  // namespace iha
