// The linear maps around the softmax, on whole tensors and any device: mixing of heads into pseudo-heads,
// RoPE, collapse of pseudo-heads, each with its gradient; and products and sums that keep the rules on NaN
// and on threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "iha/kernels/problem.h"

namespace iha::ops {

// a [n, I, J] times b [n, J, K]. On the CPU the work is cut by shape alone and every cut runs on one thread,
// since MKL's bits depend on the number of threads that share a product (float64, 3 and 7 threads, seen with
// torch 2.13).
at::Tensor product(const at::Tensor& a, const at::Tensor& b);

// The same where hidden(i, j) (undefined: nothing is hidden) says which a(i, j) are no
// part of the sum: those must be 0, and then whatever b(j, :) holds, NaN and infinity included, does not
// reach row i. Visible NaN and infinities propagate as in plain arithmetic. The bits of rows that see only
// finite b are those of at::bmm.
at::Tensor masked_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& hidden);

// Sum over one dimension with the same bits on any number of threads, also where the result has one element
// (there at::sum splits the sum over threads).
at::Tensor ordered_sum(const at::Tensor& x, int64_t dim);

// Heads -> pseudo-heads, x [B, M, N, w] and alpha [M, M, P] (undefined: identity for every p), to the
// products' layout: interleaved [B, M, N, P, w], parallel [B, P * M, N, 1, w] with head p * M + m. Contiguous
// unless it is x itself.
at::Tensor mix(const at::Tensor& x, const at::Tensor& alpha, const Problem& problem);
struct MixGradients {
  at::Tensor x, alpha;  // undefined where not wanted
};
// `grad` in the products' layout. Where it is 0, x does not reach the gradient of alpha.
MixGradients mix_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& alpha,
                          const Problem& problem, bool want_x, bool want_alpha);

// RoPE of x in the products' layout, tokens at `offsets` [B] or [1] plus their index (absent: 0). direction
// -1 turns back.
at::Tensor turn(const at::Tensor& x, const std::vector<int64_t>& offsets, const Problem& problem,
                int direction);

// [B, H, N, P, dv] from the products' layout and back (a view where P has its own dimension already).
at::Tensor to_parts(const at::Tensor& x, const Problem& problem);
at::Tensor from_parts(const at::Tensor& parts, const Problem& problem);

// parts [B, H, N, P, dv] -> [B, H, N, dv].
at::Tensor collapse(const at::Tensor& parts, const at::Tensor& weights, const Problem& problem);
// The gradients of parts and of the collapse weights (undefined if not wanted).
std::pair<at::Tensor, at::Tensor> collapse_backward(const at::Tensor& grad, const at::Tensor& parts,
                                                    const at::Tensor& weights, const Problem& problem,
                                                    bool want_weights);

}  // namespace iha::ops
