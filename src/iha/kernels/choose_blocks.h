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

// The gradients of index queries and keys of `dim` channels where s = query . key, by way of the weights that
// choose_blocks left: with c = grad * w (1 - w) of a chosen block (others, and own, have none)
//   grad_query[b, e, i / tile] = sum over i, j of c[i, j] key[b, e, j]
//   grad_key[b, e, j]          = sum over i of c[i, j] query[b, e, i / tile]
// for e the dynamic heads in order; query and grad_query [batch, e, ceil(queries / tile), dim], key and
// grad_key [batch, e, blocks, dim], weights and grad as choose_blocks' weights, all contiguous. What was not
// chosen reaches nothing, NaN or not. The same bits for any number of workers.
template <class Real>
struct BlockChoiceGradients {
  int64_t dim;
  const Real *weights, *grad, *query, *key;
  Real *grad_query, *grad_key;
};
template <class Real>
void choose_blocks_backward(const BlockChoice& choice, const BlockChoiceGradients<Real>& arrays,
                            const ParallelFor& parallel);

}  // namespace iha
