// What the forward and backward passes of `composed` share: inputs as pseudo-heads, pieces of them for one
// block, and tensors over token-major memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "iha/ops/arguments.h"
#include "iha/ops/blocks.h"

namespace iha::ops {

// Tensors in the products' layout (linear_maps.h), in the accumulating dtype. Queries are turned and scaled,
// keys turned.
struct PseudoHeads {
  at::Tensor query;  // [B, Hq', Nq, s, d]
  at::Tensor key;    // [B, Hkv', Nk, s, d]
  at::Tensor value;  // [B, Hkv', Nk, s, dv]; undefined without value
};
PseudoHeads make_pseudo_heads(const Arguments& arguments, const Problem& problem);

// An input in the accumulating dtype; undefined stays undefined.
at::Tensor widened(const Arguments& arguments, Input input);
// The sinks of the products' heads [Hq']; undefined stays undefined.
at::Tensor sinks_of_heads(const Arguments& arguments, const Problem& problem);
// The query offsets, as one number where all sequences share it.
std::vector<int64_t> offsets_of(const Problem& problem);

// Heads `heads` of x, which lie in dimension `dim`: a view where they are a range, else a copy.
at::Tensor take_heads(const at::Tensor& x, int64_t dim, const std::vector<int64_t>& heads);

// x[:, heads, tokens of the slice] = rows, rows [B, heads, count * s, w].
void put_rows(const at::Tensor& x, const std::vector<int64_t>& heads, const Slice& slice,
              const at::Tensor& rows);

// Tokens of x [B, heads, N, s, w] as matrices [B * heads / fold, fold * count * s, w].
at::Tensor take_rows(const at::Tensor& x, const Slice& slice, int64_t fold);
at::Tensor take_keys(const at::Tensor& x, const std::vector<Slice>& slices);
// The reverse: sum[:, heads, tokens of the slices] += keys [B * heads, columns, w]; heads may repeat.
void add_to_keys(const at::Tensor& sum, const std::vector<int64_t>& heads, const std::vector<Slice>& slices,
                 const at::Tensor& keys);

// Scores of one block [B * key heads, fold * rows, columns], viewed as [B, query heads, rows, columns].
struct BlockScores {
  at::Tensor scores;
  at::Tensor by_head;  // the same memory
};
BlockScores block_scores(const at::Tensor& query, const at::Tensor& key, int64_t batch, int64_t heads);
// The mask as masked_product takes it: [B * key heads, fold * rows, columns]; undefined where nothing is
// hidden.
at::Tensor product_mask(const at::Tensor& hidden, const BlockScores& block);

// Copies x [B, H, N, w] to `dtype` over memory [B, N, H, w].
at::Tensor token_major(const at::Tensor& x, at::ScalarType dtype);

}  // namespace iha::ops
