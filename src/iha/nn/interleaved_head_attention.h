// The attention layer: projections around `iha::attention`, with patterns a head, pseudo-heads, mixing and collapse as
// options. With `x` [B, N, D]: q = x W_q, k = c W_k, v = c W_v (c = x, or a second input), heads split, attention,
// heads merged, W_o. The published layers by their own names are in mixed_mode_attention.h and
// averaged_pseudo_heads.h.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <optional>
#include <string>

#include "iha/ops/attention.h"

namespace iha::nn {

// How mixing weights begin. All are drawn from torch's generator.
enum class MixingInit {
  kIdentityNoise,  // identity over heads for every pseudo-head plus normal(0, mixing_noise)
  kNormal,         // normal(0, 0.02)
  kRandom,         // uniform in +-1/sqrt(H): as a linear map over heads begins
};

struct InterleavedHeadAttentionOptions {
  InterleavedHeadAttentionOptions(int64_t d_model, int64_t heads) : d_model_(d_model), heads_(heads) {}

  // The four published designs.
  static InterleavedHeadAttentionOptions interleaved(int64_t d_model, int64_t heads, int64_t pseudo_heads = 0);
  static InterleavedHeadAttentionOptions averaged(int64_t d_model, int64_t heads, int64_t pseudo_heads = 0);
  static InterleavedHeadAttentionOptions per_head_modes(int64_t d_model, PatternList patterns);
  static InterleavedHeadAttentionOptions mixed_heads(int64_t d_model, int64_t heads);

  TORCH_ARG(int64_t, d_model);
  TORCH_ARG(int64_t, heads);
  TORCH_ARG(int64_t, kv_heads) = 0;      // 0: as many as heads
  TORCH_ARG(int64_t, head_dim) = 0;      // 0: d_model / heads
  TORCH_ARG(int64_t, pseudo_heads) = 0;  // P; 0: as many as heads. 1: plain heads
  TORCH_ARG(bool, mixing) = true;        // learned alpha_q, alpha_k, alpha_v (false needs P = 1)
  TORCH_ARG(PatternList, patterns) = global();
  TORCH_ARG(std::string, layout) = "interleaved";
  TORCH_ARG(std::string, order) = "flat";
  TORCH_ARG(std::string, rope) = "none";
  TORCH_ARG(double, rope_theta) = 10000.0;
  TORCH_ARG(std::string, rope_style) = "half";
  TORCH_ARG(std::string, collapse) = "global";  // or "per_head", "mean"; with P = 1 and no mixing none is owned
  TORCH_ARG(bool, bias) = false;
  TORCH_ARG(double, dropout) = 0.0;             // on attention weights, in training
  TORCH_ARG(bool, sinks) = false;               // learned sink logits, one a head
  TORCH_ARG(MixingInit, mixing_init) = MixingInit::kIdentityNoise;
  TORCH_ARG(double, mixing_noise) = 0.3;
  TORCH_ARG(bool, bit_linear) = false;          // every projection a BitLinear
  TORCH_ARG(bool, autoregressive) = false;      // refuse patterns that see the future, naming the heads
};

// What a single call may add.
struct AttentionCall {
  torch::Tensor context = {};       // [B, Nk, D]: keys and values from here (cross-attention)
  torch::Tensor key_lengths = {};   // int64 [B]
  torch::Tensor documents = {};     // int64 [B, Nk]
  torch::Tensor query_offset = {};  // int64, one element or [B]
};

class InterleavedHeadAttentionImpl : public torch::nn::Cloneable<InterleavedHeadAttentionImpl> {
 public:
  InterleavedHeadAttentionImpl(int64_t d_model, int64_t heads)
      : InterleavedHeadAttentionImpl(InterleavedHeadAttentionOptions(d_model, heads)) {}
  // Throws c10::ValueError naming the option that does not fit.
  explicit InterleavedHeadAttentionImpl(InterleavedHeadAttentionOptions options);

  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  // x [B, N, D] -> [B, N, D].
  torch::Tensor forward(const torch::Tensor& x, const AttentionCall& call = {});
  // The softmax weights of query rows `rows` (int64 [R]): [B, H, R, P, N, P]. For looking.
  torch::Tensor weights(const torch::Tensor& x, const torch::Tensor& rows, const AttentionCall& call = {});

  InterleavedHeadAttentionOptions options;
  // Projections: torch::nn::Linear or BitLinear, by options.bit_linear().
  torch::nn::AnyModule q_proj, k_proj, v_proj, out_proj;
  torch::Tensor alpha_q, alpha_k, alpha_v;  // [H, H, P], [Hkv, Hkv, P] twice; undefined where absent
  torch::Tensor collapse;                   // [H, P] or [H, H, P]; undefined where absent
  torch::Tensor sinks;                      // [H]; undefined where absent
};
TORCH_MODULE(InterleavedHeadAttention);

}  // namespace iha::nn
