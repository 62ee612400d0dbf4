// What learned and dynamic heads add to a block of `composed`: the weights w of its pairs, a bias ln w on
// their scores, and the gradients of mode and block weights from those of the bias.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "iha/ops/arguments.h"
#include "iha/ops/blocks.h"

namespace iha::ops {

// Of one block; tensors broadcast against its scores [B, heads, rows, columns].
struct BlockWeights {
  BlockMask mask;                 // what pattern or weights hide
  at::Tensor weights;             // w; undefined: 1 everywhere
  std::vector<at::Tensor> shown;  // learned heads: of each candidate, what it shows; undefined: all
};

class PairWeights {
 public:
  PairWeights(const Arguments& arguments, const Problem& problem, const Blocks& plan);

  BlockWeights of(const HeadGroup& group, const Block& block) const;
  // Adds what `bias`, the gradient of ln w [B, heads, rows, columns], gives the weights.
  void add_gradient(const HeadGroup& group, const Block& block, const BlockWeights& own,
                    const at::Tensor& bias);
  // The gradients [Hq, M] and [B, Hq, Nq, blocks], in the accumulating dtype; undefined for absent weights.
  at::Tensor mode_gradient() const;
  at::Tensor block_gradient() const;

 private:
  at::Tensor heads_of(const at::Tensor& by_head, int64_t dim, const HeadGroup& group) const;

  const Problem& problem_;
  const Blocks& plan_;
  at::Device device_;
  // Those that count, 0 for the others, and their gradients: [Hq', M], [B, Hq', Nq, blocks] with the heads of
  // the products.
  at::Tensor modes_, blocks_, mode_sums_, block_sums_;
};

}  // namespace iha::ops
