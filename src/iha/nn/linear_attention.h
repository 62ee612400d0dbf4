// The layer of linear attention (linear_attention_function.h): time and memory grow as N, not N^2, and a
// decoder keeps one state of fixed size instead of keys and values. With x [B, N, D] and c = x, or a second
// input: q = x Wq^T, k = c Wk^T, v = c Wv^T (+ bias), heads split, linear attention, heads merged, out = y
// Wo^T. Not here: patterns and pseudo-heads (interleaved_head_attention.h); this is another function.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>
#include <string>

#include "iha/nn/linear_attention_function.h"

namespace iha::nn {

struct LinearAttentionOptions {
  LinearAttentionOptions(int64_t d_model, int64_t heads) : d_model_(d_model), heads_(heads) {}
  TORCH_ARG(int64_t, d_model);                                 // D
  TORCH_ARG(int64_t, heads);                                   // H
  TORCH_ARG(std::optional<int64_t>, kv_heads) = std::nullopt;  // Hkv, divides H; absent: H
  TORCH_ARG(std::optional<int64_t>, head_dim) = std::nullopt;  // d; absent: D / H
  TORCH_ARG(std::string, feature_map) = "elu";                 // or "identity"
  TORCH_ARG(std::optional<bool>, normalise) = std::nullopt;    // absent: true for "elu", else false
  TORCH_ARG(bool, causal) = false;
  TORCH_ARG(int64_t, chunk) = 64;       // of the causal form; changes time and memory, not the result
  TORCH_ARG(bool, bias) = false;        // of the four projections
  TORCH_ARG(bool, bit_linear) = false;  // every projection a BitLinear
};

// What a single call may add. Undefined tensors are absent.
struct LinearAttentionCall {
  torch::Tensor context = {};      // [B, Nk, D]: keys and values from here; not where causal
  torch::Tensor key_lengths = {};  // int64 [B]: keys at or past it do not exist
};

class LinearAttentionImpl : public torch::nn::Cloneable<LinearAttentionImpl> {
 public:
  LinearAttentionImpl(int64_t d_model, int64_t heads)
      : LinearAttentionImpl(LinearAttentionOptions(d_model, heads)) {}
  // Throws c10::ValueError naming the option that does not fit.
  explicit LinearAttentionImpl(LinearAttentionOptions options);

  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  // x [B, N, D] -> [B, N, D].
  torch::Tensor forward(const torch::Tensor& x, const LinearAttentionCall& call = {});
  // The next tokens of a sequence, x [B, n, D] -> [B, n, D], any n: what forward gives them in the whole
  // sequence. Causal layers only.
  torch::Tensor step(const torch::Tensor& x, LinearAttentionState& state);
  // Bytes that a decoder keeps of one sequence, however long: Hkv * d * (d + 1) numbers (d where not
  // normalised) of float32, or of float64 in a float64 layer.
  int64_t state_bytes() const;

  LinearAttentionOptions options;                         // resolved: no optional is empty
  torch::nn::AnyModule q_proj, k_proj, v_proj, out_proj;  // torch::nn::Linear, or BitLinear

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(LinearAttentionCall())})

 private:
  torch::Tensor attend(const torch::Tensor& x, const torch::Tensor& context,
                       LinearAttentionArguments arguments);
};
TORCH_MODULE(LinearAttention);

}  // namespace iha::nn
