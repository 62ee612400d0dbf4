// What a decoder with latent attention keeps of the tokens behind it: one row a token for all heads, the
// normalised key/value latent and the turned RoPE key. Not here: how rows are made and read
// (multi_head_latent_attention.h).
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace iha::nn {

class LatentCache {
 public:
  // Empty, for rows [batch, n, width] of `options`' dtype and device; memory for `capacity` tokens at once,
  // which grows by doubling. Throws c10::ValueError for sizes below 0.
  LatentCache(int64_t batch, int64_t width, const torch::TensorOptions& options, int64_t capacity = 0);
  // A copy has memory of its own, so that two continuations of a prompt do not meet.
  LatentCache(const LatentCache& other);
  LatentCache& operator=(const LatentCache& other);
  LatentCache(LatentCache&&) = default;
  LatentCache& operator=(LatentCache&&) = default;
  ~LatentCache() = default;

  // rows [batch, n, width], any strides, n = 0 too. Kept without gradients. Throws c10::ValueError for
  // another shape or dtype.
  void append(const torch::Tensor& rows);
  // Forgets all tokens but the first `tokens`. Throws c10::ValueError for more than there are.
  void truncate(int64_t tokens);

  torch::Tensor rows() const { return memory_.narrow(1, 0, tokens_); }  // [batch, tokens, width]; a view
  int64_t tokens() const { return tokens_; }
  int64_t width() const { return memory_.size(2); }
  int64_t bytes() const;  // of the tokens held: batch * tokens * width numbers

 private:
  torch::Tensor memory_;  // [batch, capacity, width]
  int64_t tokens_ = 0;
};

}  // namespace iha::nn
