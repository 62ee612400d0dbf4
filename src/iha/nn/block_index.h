// Where a layer's dynamic heads look: scores of blocks of keys from learned projections of few channels, and
// the weights of the blocks that they choose. With x the queries' input, c the keys', B tokens a block:
//   score[h, i, b] = (x[i] Wq_h^T) . (mean of c over block b, Wk_h^T)
//   weight[h, i, b] = 1 for the query's own block, sigmoid(score) for the K eligible blocks of the highest
//                     score, else 0 (kernels/choose_blocks.h)
// The mean index key of a block is the map of its mean. The choice itself has no gradient: the projections
// learn through the weights of what they chose.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "iha/patterns/pattern.h"

namespace iha::nn {

struct BlockIndexOptions {
  BlockIndexOptions(int64_t d_model, std::vector<Pattern> heads)
      : d_model_(d_model), heads_(std::move(heads)) {}
  TORCH_ARG(int64_t, d_model);
  TORCH_ARG(std::vector<Pattern>, heads);  // one a head of the layer; E of them, at least one, are dynamic
  TORCH_ARG(int64_t, dim) = 16;            // channels of an index query or key
  // Queries that choose by the mean of their index queries. 1: each by its own. More only where no dynamic
  // head is causal, since a mean knows later tokens.
  TORCH_ARG(int64_t, tile) = 1;
};

class BlockIndexImpl : public torch::nn::Cloneable<BlockIndexImpl> {
 public:
  // Throws c10::ValueError for options that do not fit.
  explicit BlockIndexImpl(BlockIndexOptions options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  // x [B, Nq, D], context [B, Nk, D] (for self-attention the same tensor) -> block_weights
  // [B, H, Nq, ceil(Nk / B_)], float32 (float64 for float64), with rows of 0 for heads that are not dynamic.
  // query_offset int64, one element or [B], key_lengths int64 [B], both optional as in the operator: tokens
  // at or past a length are in no mean. The same bits, and so the same choice, for any number of threads.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& context,
                        const torch::Tensor& query_offset, const torch::Tensor& key_lengths);

  BlockIndexOptions options;
  torch::nn::Linear query{nullptr},
      key{nullptr};  // D -> E dim, channels h dim .. h dim + dim - 1 are head h's
};
TORCH_MODULE(BlockIndex);

}  // namespace iha::nn
