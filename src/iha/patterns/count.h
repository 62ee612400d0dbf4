// Exact numbers of visible (query, key) token pairs, in closed form. For FLOPs, plans and tables.
#pragma once

#include <cstdint>

#include "iha/patterns/pattern.h"

namespace iha {

// Keys [begin, end), end >= begin.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// The keys in [0, keys) that the window and the chunk of the query at absolute position `query` leave; the
// step picks among them, or the candidates of a learned pattern do. Grows with `query` at both ends, so the
// range of a block of queries is that of its first query's begin to its last query's end.
KeyRange base_range(const Pattern& pattern, int64_t query, int64_t keys);
// How many first tokens the query sees: keys [0, first_keys) are visible whatever the base says.
int64_t first_keys(const Pattern& pattern, int64_t query, int64_t keys);

// Keys in [0, keys) that the query at absolute position `query` sees. O(1). Of a learned pattern: in any of
// its candidates, whatever their weights; of a dynamic one: in any block that it might choose.
int64_t visible_keys(const Pattern& pattern, int64_t query, int64_t keys);
// The same summed over queries at positions query_offset .. query_offset + queries - 1. O(queries).
int64_t visible_pairs(const Pattern& pattern, int64_t queries, int64_t keys, int64_t query_offset);
// Pseudo-token pairs of one head with `pseudo_heads` P: P^2 of each token pair (interleaved), P (parallel),
// less in flat order at j = i of causal patterns: P (P + 1) / 2.
int64_t visible_pseudo_pairs(const Pattern& pattern, int64_t queries, int64_t keys, int64_t query_offset,
                             int64_t pseudo_heads, bool interleaved, bool flat);

// What a head reads at most: what it sees, and of a dynamic head a query's own block and `chosen` others.
int64_t read_keys(const Pattern& pattern, int64_t query, int64_t keys);
int64_t read_pseudo_pairs(const Pattern& pattern, int64_t queries, int64_t keys, int64_t query_offset,
                          int64_t pseudo_heads, bool interleaved, bool flat);

}  // namespace iha
