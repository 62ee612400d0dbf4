// A pre-norm transformer block: x += drop(attention(norm1(x))), then x += drop(feed_forward(norm2(x))).
// Models stack these. Not here: embeddings, the last norm, heads of models (models/).
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>
#include <string>

#include "iha/nn/interleaved_head_attention.h"

namespace iha::nn {

struct FeedForwardOptions {
  explicit FeedForwardOptions(int64_t d_model) : d_model_(d_model) {}
  TORCH_ARG(int64_t, d_model);  // D
  // Width between the two maps. Absent: 4 D for gelu; 8 D / 3, up to a multiple of 8, for swiglu: as many
  // parameters.
  TORCH_ARG(std::optional<int64_t>, hidden) = std::nullopt;
  // "gelu": down(gelu(up x)); "swiglu": down(silu(gate x) * up x).
  TORCH_ARG(std::string, kind) = "gelu";
  TORCH_ARG(bool, bias) = false;
  TORCH_ARG(bool, bit_linear) = false;  // every projection a BitLinear
};

class FeedForwardImpl : public torch::nn::Cloneable<FeedForwardImpl> {
 public:
  // Throws c10::ValueError for widths below 1 and an unknown kind.
  explicit FeedForwardImpl(FeedForwardOptions options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  torch::Tensor forward(const torch::Tensor& x);  // [.., D] -> [.., D]

  FeedForwardOptions options;           // resolved: hidden is not empty
  torch::nn::AnyModule gate, up, down;  // gate is empty for gelu
};
TORCH_MODULE(FeedForward);

struct TransformerBlockOptions {
  explicit TransformerBlockOptions(InterleavedHeadAttentionOptions attention)
      : attention_(std::move(attention)) {}
  TORCH_ARG(InterleavedHeadAttentionOptions,
            attention);                           // gives D, bias and bit_linear of the feed-forward too
  TORCH_ARG(std::string, feed_forward) = "gelu";  // or "swiglu"
  TORCH_ARG(std::optional<int64_t>, hidden) = std::nullopt;
  TORCH_ARG(std::string, norm) = "rms";  // or "layer"
  TORCH_ARG(double, norm_eps) = 1e-5;
  TORCH_ARG(double, dropout) = 0.0;  // on both branches, in training
};

class TransformerBlockImpl : public torch::nn::Cloneable<TransformerBlockImpl> {
 public:
  explicit TransformerBlockImpl(TransformerBlockOptions options);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  // x [B, N, D] -> [B, N, D]; `call` goes to the attention (its context is not normalised here).
  torch::Tensor forward(const torch::Tensor& x, const AttentionCall& call = {});

  TransformerBlockOptions options;
  torch::nn::AnyModule norm1, norm2;
  InterleavedHeadAttention attention = nullptr;
  FeedForward feed_forward = nullptr;
  torch::nn::Dropout dropout = nullptr;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(AttentionCall())})
};
TORCH_MODULE(TransformerBlock);

}  // namespace iha::nn
