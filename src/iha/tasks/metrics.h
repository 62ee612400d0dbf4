// Measures of a model as counts that add up over batches; ratios are taken at the end. Padding and ignored
// targets never count. A ratio of nothing is NaN.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace iha::tasks {

// One logit a token against 0 or 1.
struct TagCounts {
  int64_t valid = 0;      // tokens before their sequence's length
  int64_t correct = 0;    // of these, those whose logit's sign is right (a logit > 0 says 1)
  int64_t positive = 0;   // of these, those whose target is 1
  int64_t sequences = 0;  // with at least one valid token
  int64_t exact = 0;      // of these, those with every valid token correct
  double loss_sum = 0.0;  // binary cross-entropy over the valid tokens, nats

  TagCounts& operator+=(const TagCounts& other);
  double accuracy() const;
  double exact_match() const;
  double majority() const;  // accuracy of the better constant answer on the same tokens
  double loss() const;      // mean, nats
};
// logits and targets [B, N], lengths int64 [B] (undefined: all N). A NaN logit is never correct.
TagCounts count_tags(const torch::Tensor& logits, const torch::Tensor& targets, const torch::Tensor& lengths);

// Next-token prediction.
struct TextCounts {
  int64_t tokens = 0;     // targets that count
  int64_t correct = 0;    // of these, those that are the most probable token
  double loss_sum = 0.0;  // cross-entropy, nats

  TextCounts& operator+=(const TextCounts& other);
  double accuracy() const;
  double loss() const;           // mean, nats a token
  double bits_per_byte() const;  // the same in bits, where a token is a byte
};
// logits [B, N, V], targets int64 [B, N] with models::kIgnore where nothing counts.
TextCounts count_text(const torch::Tensor& logits, const torch::Tensor& targets);

}  // namespace iha::tasks
