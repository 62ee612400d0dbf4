// Losses as sums with their counts, so that batches of different sizes add up: mean = total sum / total
// count. Padding and ignored targets never count; where nothing counts the sum is 0 and its gradient is 0.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace iha::models {

inline constexpr int64_t kIgnore = -100;  // a target that does not count, as in torch

struct LossSum {
  torch::Tensor sum;  // float32 (float64 for float64 logits) scalar, differentiable, in nats
  int64_t count = 0;
};

// Cross-entropy of logits [..., V] against targets int64 [...]; targets of kIgnore do not count. Throws
// c10::ValueError for a target outside [0, V).
LossSum next_token_loss(const torch::Tensor& logits, const torch::Tensor& targets);

// Binary cross-entropy of logits [B, N] against targets 0 or 1 [B, N], over the first lengths[b] tokens of
// each sequence (int64 [B]; undefined: all N).
LossSum tag_loss(const torch::Tensor& logits, const torch::Tensor& targets, const torch::Tensor& lengths);

// bool [B, N]: true for tokens before the length of their sequence. Throws c10::ValueError for a length
// outside [0, N].
torch::Tensor valid_tokens(const torch::Tensor& lengths, int64_t tokens);

}  // namespace iha::models
