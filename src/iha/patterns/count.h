// Exact numbers of visible (query, key) token pairs, in closed form. For FLOPs, plans and tables.
#pragma once

#include <cstdint>

#include "iha/patterns/pattern.h"

namespace iha {

// Keys in [0, keys) that the query at absolute position `query` sees. O(1).
int64_t visible_keys(const Pattern& pattern, int64_t query, int64_t keys);
// The same summed over queries at positions query_offset .. query_offset + queries - 1. O(queries).
int64_t visible_pairs(const Pattern& pattern, int64_t queries, int64_t keys, int64_t query_offset);
// Pseudo-token pairs of one head with `pseudo_heads` P: P^2 of each token pair (interleaved), P (parallel), less in
// flat order at j = i of causal patterns: P (P + 1) / 2.
int64_t visible_pseudo_pairs(const Pattern& pattern, int64_t queries, int64_t keys, int64_t query_offset,
                             int64_t pseudo_heads, bool interleaved, bool flat);

}  // namespace iha
