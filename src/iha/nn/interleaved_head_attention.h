// The attention layer: projections around `iha::attention`, with patterns a head, pseudo-heads, mixing and
// collapse as options. With x [B, N, D] and c = x, or a second input: q = x Wq^T, k = c Wk^T, v = c Wv^T (+
// bias), heads split, attention (docs/operator.md), heads merged, out = y Wo^T. Not here: residual, norm and
// feed-forward (transformer_block.h), the published layer whose mixing is stored as [H*P, H]
// (averaged_pseudo_heads.h).
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "iha/nn/block_index.h"
#include "iha/nn/mode_gates.h"
#include "iha/ops/attention.h"

namespace iha::nn {

// How mixing weights, and with kWarmStart the collapse, begin. All are drawn from torch's generator.
enum class MixingInit {
  kIdentityNoise,  // identity over heads for every pseudo-head, plus normal(0, mixing_noise)
  kNormal,         // normal(0, 0.02): attention begins almost uniform
  kRandom,         // uniform in +-1/sqrt(H), as a linear map over H heads begins
  // The output of the layer without mixing (up to rounding), yet pseudo-heads that learn different things:
  // alpha_q and alpha_k are the identity; alpha_v is the identity plus noise that sums to 0 over
  // pseudo-heads, which every pseudo-query averages away; the collapse has rows that sum to 1 and differ.
  // docs/layers.md says why it cannot be done with virtual RoPE, which is refused.
  kWarmStart,
};

// What the four projections are called among the layer's parameters.
enum class ProjectionNames {
  kProj,  // q_proj, k_proj, v_proj, out_proj
  kW,     // W_q, W_k, W_v, W_o: the published layer of per-head modes
};

struct InterleavedHeadAttentionOptions {
  InterleavedHeadAttentionOptions(int64_t d_model, int64_t heads) : d_model_(d_model), heads_(heads) {}

  // The four published designs; each may be changed further: `interleaved(64, 4).patterns(causal())`.
  // Interleaved Head Attention (arXiv:2602.21371): flat order, virtual-position RoPE, global collapse.
  static InterleavedHeadAttentionOptions interleaved(int64_t d_model, int64_t heads,
                                                     std::optional<int64_t> pseudo_heads = std::nullopt);
  // Averaged pseudo-heads: layout parallel, mean collapse. The design, with this layer's names and
  // initialisation.
  static InterleavedHeadAttentionOptions averaged(int64_t d_model, int64_t heads,
                                                  std::optional<int64_t> pseudo_heads = std::nullopt);
  // Per-head modes: P = 1, no mixing, as many heads as `patterns` has entries (which so needs counts).
  static InterleavedHeadAttentionOptions per_head_modes(int64_t d_model, const PatternList& patterns);
  // Heads that talk before the softmax: P = 1, one dense H x H mixing for q, k and v each.
  static InterleavedHeadAttentionOptions mixed_heads(int64_t d_model, int64_t heads);

  // 2.9 pseudo-heads are no 2 pseudo-heads: a compile-time error.
  InterleavedHeadAttentionOptions& pseudo_heads(std::floating_point auto count) = delete;

  TORCH_ARG(int64_t, d_model);                                     // D
  TORCH_ARG(int64_t, heads);                                       // H
  TORCH_ARG(std::optional<int64_t>, kv_heads) = std::nullopt;      // Hkv, divides H; absent: H
  TORCH_ARG(std::optional<int64_t>, head_dim) = std::nullopt;      // d; absent: D / H
  TORCH_ARG(std::optional<int64_t>, pseudo_heads) = std::nullopt;  // P; absent: H. 1: plain heads
  TORCH_ARG(bool, mixing) = true;  // learned alpha_q, alpha_k, alpha_v; without it P is 1
  TORCH_ARG(PatternList, patterns) = global();
  TORCH_ARG(std::string, layout) = "interleaved";  // or "parallel"
  TORCH_ARG(std::string, order) = "flat";          // or "token"
  TORCH_ARG(std::string, rope) = "none";           // or "token", "virtual"
  TORCH_ARG(double, rope_theta) = 10000.0;
  TORCH_ARG(std::string, rope_style) = "half";  // or "adjacent"
  // "global" [H, H, P], "per_head" [H, P], "mean" (owns nothing; the only one without mixing).
  TORCH_ARG(std::string, collapse) = "global";
  TORCH_ARG(bool, bias) = false;     // of the four projections
  TORCH_ARG(double, dropout) = 0.0;  // on attention weights, in training, in [0, 1]
  TORCH_ARG(bool, sinks) = false;    // learned sink logits, one a head, 0 at first
  TORCH_ARG(MixingInit, mixing_init) = MixingInit::kIdentityNoise;
  TORCH_ARG(double, mixing_noise) = 0.3;  // of kIdentityNoise and kWarmStart
  TORCH_ARG(bool, bit_linear) = false;    // every projection a BitLinear
  // Learned heads (mode_gates.h): the gates' temperature at first, and the noise on their logits in training.
  TORCH_ARG(double, gate_temperature) = 1.0;
  TORCH_ARG(double, gate_noise) = 0.0;
  // Dynamic heads (block_index.h): channels of an index query, and the queries that choose together.
  TORCH_ARG(int64_t, index_dim) = 16;
  TORCH_ARG(int64_t, index_tile) = 1;
  TORCH_ARG(bool, autoregressive) = false;  // refuse patterns that are not causal, naming their heads
  TORCH_ARG(ProjectionNames, projection_names) = ProjectionNames::kProj;
};

// The options with every absent number filled in. Throws c10::ValueError naming the first option that does
// not fit.
InterleavedHeadAttentionOptions resolve(InterleavedHeadAttentionOptions options);

// What a single call may add. Undefined tensors are absent.
struct AttentionCall {
  torch::Tensor context = {};       // [B, Nk, D]: keys and values from here (cross-attention)
  torch::Tensor key_lengths = {};   // int64 [B]: keys at or past it do not exist
  torch::Tensor documents = {};     // int64 [B, Nk]: a query sees keys of its own document
  torch::Tensor query_offset = {};  // int64, one element or [B]: token position of query 0; default Nk - Nq
};

// One pattern of the published layer of per-head modes; mixed_mode_attention.h.
enum class AttentionMode { Causal, Sliding, Global };

class InterleavedHeadAttentionImpl : public torch::nn::Cloneable<InterleavedHeadAttentionImpl> {
 public:
  InterleavedHeadAttentionImpl(int64_t d_model, int64_t heads)
      : InterleavedHeadAttentionImpl(InterleavedHeadAttentionOptions(d_model, heads)) {}
  // The published layer of per-head modes (mixed_mode_attention.h); mind that `heads` comes first.
  InterleavedHeadAttentionImpl(int64_t heads, int64_t d_model, int64_t window,
                               const std::vector<AttentionMode>& modes);
  // Throws c10::ValueError naming the option that does not fit.
  explicit InterleavedHeadAttentionImpl(InterleavedHeadAttentionOptions options);

  void reset() override;
  void reset_parameters();  // draws anew what construction draws, in the same order
  void pretty_print(std::ostream& stream) const override;

  // x [B, N, D] -> [B, N, D]. Throws c10::ValueError for shapes that do not fit.
  torch::Tensor forward(const torch::Tensor& x, const AttentionCall& call = {});
  // The softmax weights of query rows `rows` (int64 [R]): [B, H, R, P, Nk, P]. For looking: no dropout.
  torch::Tensor weights(const torch::Tensor& x, const torch::Tensor& rows, const AttentionCall& call = {});

  // Turns learned heads whose largest gate (without noise) is at least `decided` into heads of that mode, in
  // options.patterns and for good: their logits are gone, and optimizers made before hold parameters that are
  // no longer read. At temperature 0 every head is decided, and outputs stay the same bit for bit. Returns
  // how many heads stay learned.
  int64_t harden(double decided = 0.9);

  InterleavedHeadAttentionOptions options;  // resolved: no optional is empty
  // torch::nn::Linear, or BitLinear where options.bit_linear().
  torch::nn::AnyModule q_proj, k_proj, v_proj, out_proj;
  // [H, H, P], and [Hkv, Hkv, P] twice: [source head, head, pseudo-head]; undefined without mixing.
  torch::Tensor alpha_q, alpha_k, alpha_v;
  // [H, P] or [H out, H in, P]; a head begins as the mean of its own pseudo-heads (1/P). Undefined for the
  // mean.
  torch::Tensor collapse;
  torch::Tensor sinks;         // [H]; undefined where absent
  ModeGates gates = nullptr;   // of learned heads; empty without any
  BlockIndex index = nullptr;  // of dynamic heads; empty without any

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(AttentionCall())})

 private:
  void reset_own_parameters();  // all but the projections
  // Of one call, with gates and blocks chosen; `noise`: on gates, in training.
  AttentionOptions attention_options(const torch::Tensor& x, const torch::Tensor& context,
                                     const AttentionCall& call, bool noise);
};

// A module holder as TORCH_MODULE makes it, with the published layer's constructor spelt out so that its list
// of modes can be written in place, and with the published layer's `layer.forward(x)`.
class InterleavedHeadAttention : public torch::nn::ModuleHolder<InterleavedHeadAttentionImpl> {
 public:
  using torch::nn::ModuleHolder<InterleavedHeadAttentionImpl>::ModuleHolder;
  using Impl = InterleavedHeadAttentionImpl;
  InterleavedHeadAttention(int64_t heads, int64_t d_model, int64_t window,
                           const std::vector<AttentionMode>& modes)
      : ModuleHolder(std::make_shared<Impl>(heads, d_model, window, modes)) {}
  torch::Tensor forward(const torch::Tensor& x, const AttentionCall& call = {}) {
    return get()->forward(x, call);
  }
};

}  // namespace iha::nn
