// The published PyTorch layer `IHAAttention` by its own names and initialisation: H heads of P pseudo-heads
// side by side (layout parallel: HP patterns), whose outputs are averaged. Weights saved by that layer load
// here. The same design with this library's names, patterns and collapses is
// InterleavedHeadAttentionOptions::averaged (interleaved_head_attention.h).
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>

#include "iha/ops/attention.h"

namespace iha::nn {

struct IHAAttentionOptions {
  IHAAttentionOptions(int64_t hidden_size, int64_t num_heads)
      : hidden_size_(hidden_size), num_heads_(num_heads) {}

  // 2.9 pseudo-heads are no 2 pseudo-heads: a compile-time error.
  IHAAttentionOptions& iha_num_pseudo_heads(std::floating_point auto count) = delete;

  TORCH_ARG(int64_t, hidden_size);                                         // D
  TORCH_ARG(int64_t, num_heads);                                           // H, divides D
  TORCH_ARG(std::optional<int64_t>, iha_num_pseudo_heads) = std::nullopt;  // P; absent: H
  TORCH_ARG(double, dropout) = 0.0;          // on attention weights, in training
  TORCH_ARG(bool, use_bitnet) = false;       // every projection a BitLinear
  TORCH_ARG(std::string, mode) = "encoder";  // every head global; "decoder": every head causal
};

class IHAAttentionImpl : public torch::nn::Cloneable<IHAAttentionImpl> {
 public:
  // Throws c10::ValueError where hidden_size is no multiple of num_heads, for P < 1 and for an unknown mode.
  explicit IHAAttentionImpl(IHAAttentionOptions options);

  void reset() override;
  // Projections as torch's Linear begins, mixing normal(0, 0.02): attention begins almost uniform, as
  // published.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  // x [B, N, D] -> [B, N, D].
  torch::Tensor forward(const torch::Tensor& x);

  IHAAttentionOptions options;                            // resolved: iha_num_pseudo_heads is not empty
  torch::nn::AnyModule q_proj, k_proj, v_proj, out_proj;  // without bias
  // [H * P, H]: row h * P + p makes pseudo-head p of head h.
  torch::Tensor q_mix, k_mix, v_mix;

 private:
  void reset_mixing();
};
TORCH_MODULE(IHAAttention);

}  // namespace iha::nn
