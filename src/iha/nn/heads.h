// Splitting a projection into heads and merging heads back: [B, N, H*d] <-> [B, H, N, d], head h owning
// channels h*d .. h*d + d - 1. Views; nothing is copied where the memory is token-major.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace iha::nn {

inline torch::Tensor split_heads(const torch::Tensor& x, int64_t heads, int64_t head_dim) {
  return x.unflatten(-1, {heads, head_dim}).transpose(1, 2);
}

inline torch::Tensor merge_heads(const torch::Tensor& x) {
  return x.transpose(1, 2).flatten(2);
}

}  // namespace iha::nn
