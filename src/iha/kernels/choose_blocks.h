// The choice of dynamic heads: from a score a query and block of keys to block weights, the top K after
// eligibility. Not here: where scores come from (nn/block_index.h), what weights do (attention.h).
#pragma once

#include <cstdint>
#include <vector>

#include "iha/core/parallel.h"
#include "iha/patterns/pattern.h"

namespace iha {

struct BlockChoice {
  int64_t batch = 0, queries = 0, keys = 0;
  int64_t tile = 1;               // so many queries of the call share one row of scores
  std::vector<Pattern> patterns;  // [heads]; those that are dynamic choose, the others get weights of 0
  std::vector<int64_t> query_offset = {};  // [batch]: absolute position of query 0
  std::vector<int64_t> key_lengths = {};   // [batch]: keys at or past it do not exist; empty: all exist
};

// scores [batch, dynamic heads, ceil(queries / tile), blocks] -> weights [batch, heads, queries, blocks],
// both contiguous. With own = floor(position / block), a row of weights is
//   1           for block own, where there is one
//   sigmoid(s)  for the K eligible blocks of the highest scores s, at equal scores the one that comes first
//   0           for the others.
// Eligible is a block with a key that exists, not block own, in causal heads one that ended before own. A
// score of NaN or -inf is never chosen, so that what nobody sees (NaN perhaps) reaches no choice. Fewer
// eligible blocks than K are all chosen. float and double.
template <class Real>
void choose_blocks(const BlockChoice& choice, const Real* scores, Real* weights, const ParallelFor& parallel);

}  // namespace iha
