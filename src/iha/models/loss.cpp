#include "iha/models/loss.h"

#include <ATen/ATen.h>

namespace iha::models {
namespace {

// 16-bit logits sum up in float32.
torch::Tensor at_least_float(const torch::Tensor& logits) {
  return logits.scalar_type() == torch::kFloat64 ? logits : logits.to(torch::kFloat32);
}

}  // namespace

LossSum next_token_loss(const torch::Tensor& logits, const torch::Tensor& targets) {
  TORCH_CHECK_VALUE(logits.dim() >= 2 && logits.sizes().slice(0, logits.dim() - 1) == targets.sizes(),
                    "iha::models::next_token_loss: logits ", logits.sizes(), " and targets ", targets.sizes(),
                    ", expected [..., V] and [...]");
  const int64_t vocabulary = logits.size(-1);
  const torch::Tensor counted = targets.ne(kIgnore);
  const torch::Tensor wrong = counted.logical_and(targets.lt(0).logical_or(targets.ge(vocabulary)));
  TORCH_CHECK_VALUE(!wrong.any().item<bool>(), "iha::models::next_token_loss: a target of ",
                    targets.masked_select(wrong)[0].item<int64_t>(), ", expected 0..", vocabulary - 1, " or ",
                    kIgnore);
  LossSum loss;
  loss.count = counted.sum().item<int64_t>();
  loss.sum = at::cross_entropy_loss(at_least_float(logits).reshape({-1, vocabulary}), targets.reshape({-1}),
                                    {}, at::Reduction::Sum, kIgnore);
  return loss;
}

LossSum tag_loss(const torch::Tensor& logits, const torch::Tensor& targets, const torch::Tensor& lengths) {
  TORCH_CHECK_VALUE(logits.dim() == 2 && logits.sizes() == targets.sizes(), "iha::models::tag_loss: logits ",
                    logits.sizes(), " and targets ", targets.sizes(), ", expected both [B, N]");
  torch::Tensor scores = at_least_float(logits);
  torch::Tensor padding;
  if (lengths.defined()) {
    TORCH_CHECK_VALUE(lengths.numel() == logits.size(0), "iha::models::tag_loss: ", lengths.numel(),
                      " lengths, expected ", logits.size(0));
    padding = valid_tokens(lengths, logits.size(1)).logical_not();
    scores = scores.masked_fill(padding, 0);  // so that no NaN of the padding reaches a gradient
  }
  torch::Tensor losses = at::binary_cross_entropy_with_logits(scores, targets.to(scores.scalar_type()), {},
                                                              {}, at::Reduction::None);
  if (padding.defined()) losses = losses.masked_fill(padding, 0);
  LossSum loss;
  loss.sum = losses.sum();
  loss.count = lengths.defined() ? lengths.sum().item<int64_t>() : logits.numel();
  return loss;
}

torch::Tensor valid_tokens(const torch::Tensor& lengths, int64_t tokens) {
  TORCH_CHECK_VALUE(lengths.dim() == 1 && lengths.scalar_type() == torch::kInt64,
                    "iha::models::valid_tokens: lengths ", lengths.sizes(), " of ", lengths.scalar_type(),
                    ", expected [B] of int64");
  const torch::Tensor wrong = lengths.lt(0).logical_or(lengths.gt(tokens));
  TORCH_CHECK_VALUE(!wrong.any().item<bool>(), "iha::models::valid_tokens: a length of ",
                    lengths.masked_select(wrong)[0].item<int64_t>(), ", expected 0..", tokens);
  return at::arange(tokens, lengths.options()).unsqueeze(0).lt(lengths.unsqueeze(1));
}

}  // namespace iha::models
