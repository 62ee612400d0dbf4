// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): keys and values of all heads come from one
// small latent a token, and position is carried by a few channels of their own. With x [B, N, D], H heads,
// R = kv_rank, r = rope_dim, d = nope_dim and dv = value_dim:
//   (c'_n, k'_n) = W_a x_n                     [R], [r]
//   c_n = RMSNorm(c'_n)                        the latent of keys and values
//   k^rope_n = RoPE(k'_n, n)                   one for all heads
//   (k^h_n, v^h_n) = W_b^h c_n                 [d], [dv]
//   (q^h_n, q'^h_n) = W_q^h x_n                [d], [r]; with query_rank: W_qb^h RMSNorm(W_qa x_n)
//   s^h_ij = (q^h_i . k^h_j + RoPE(q'^h_i, i) . k^rope_j) / sqrt(d + r)
//   out_i = W_o concat_h sum_j softmax_j(s^h_ij) v^h_j
// A decoder keeps c_n and k^rope_n alone: R + r numbers a token for all heads, against 2 H d of plain heads.
// It may work on them as they are (absorbed): with W_b^h = (U^h, V^h), q^h . k^h_j = (U^h^T q^h) . c_j and
// the sum of values is V^h (sum_j w_ij c_j), which is grouped-query attention with one key head of R + r
// channels whose values are the first R of them. Parameters have the published names; head h owns rows h of
// W_b and W_q, the part without position first. Not here: pseudo-heads, grouped heads, YaRN's scale.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>
#include <string>

#include "iha/nn/latent_cache.h"
#include "iha/nn/rms_norm.h"
#include "iha/ops/attention.h"

namespace iha::nn {

struct MultiHeadLatentAttentionOptions {
  MultiHeadLatentAttentionOptions(int64_t d_model, int64_t heads) : d_model_(d_model), heads_(heads) {}
  TORCH_ARG(int64_t, d_model);                                   // D
  TORCH_ARG(int64_t, heads);                                     // H
  TORCH_ARG(std::optional<int64_t>, nope_dim) = std::nullopt;    // d; absent: D / H
  TORCH_ARG(std::optional<int64_t>, rope_dim) = std::nullopt;    // r, even, may be 0; absent: d / 2
  TORCH_ARG(std::optional<int64_t>, value_dim) = std::nullopt;   // dv; absent: d
  TORCH_ARG(std::optional<int64_t>, kv_rank) = std::nullopt;     // R; absent: 4 d
  TORCH_ARG(std::optional<int64_t>, query_rank) = std::nullopt;  // absent: queries are not compressed
  TORCH_ARG(PatternList, patterns) = causal();
  TORCH_ARG(double, rope_theta) = 10000.0;
  TORCH_ARG(std::string, rope_style) = "adjacent";  // or "half"
  TORCH_ARG(double, norm_eps) = 1e-6;
  TORCH_ARG(double, dropout) = 0.0;  // on attention weights, in training
};

// What a single call may add. Undefined tensors are absent.
struct LatentAttentionCall {
  torch::Tensor key_lengths = {};  // int64 [B]: keys at or past it do not exist
  torch::Tensor documents = {};    // int64 [B, N]: a query sees keys of its own document
};

// How a decoder computes: keys and values made again from the latents, or queries brought to the latents.
enum class LatentForm { kPlain, kAbsorbed };

class MultiHeadLatentAttentionImpl : public torch::nn::Cloneable<MultiHeadLatentAttentionImpl> {
 public:
  MultiHeadLatentAttentionImpl(int64_t d_model, int64_t heads)
      : MultiHeadLatentAttentionImpl(MultiHeadLatentAttentionOptions(d_model, heads)) {}
  // Throws c10::ValueError naming the option that does not fit.
  explicit MultiHeadLatentAttentionImpl(MultiHeadLatentAttentionOptions options);

  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  // x [B, N, D] -> [B, N, D], the plain form.
  torch::Tensor forward(const torch::Tensor& x, const LatentAttentionCall& call = {});

  // The next tokens of sequences whose earlier ones are in `cache`, which takes them up: x [B, n, D] ->
  // [B, n, D], any n, what forward gives them in the whole sequence. Without a form the one of fewer FLOPs
  // (absorbed for few queries). No gradients and no dropout. Throws c10::ValueError for patterns that are not
  // causal, since a cache has no later tokens, naming their heads, and for a cache that does not fit.
  torch::Tensor decode(const torch::Tensor& x, LatentCache& cache,
                       std::optional<LatentForm> form = std::nullopt);
  // An empty cache for this layer, of its dtype and on its device.
  LatentCache make_cache(int64_t batch, int64_t capacity = 0) const;
  // Bytes of one token in the cache: R + r numbers of the layer's dtype.
  int64_t cache_bytes_per_token() const;
  // The form of fewer multiply-adds for `queries` new tokens that see `keys`.
  LatentForm cheaper_form(int64_t queries, int64_t keys) const;

  MultiHeadLatentAttentionOptions options;  // resolved: no optional but query_rank is empty
  // q_proj [H (d + r), D]; with query_rank empty holders instead of it, and q_a_proj [rank, D], q_b_proj.
  torch::nn::Linear q_proj = nullptr, q_a_proj = nullptr, q_b_proj = nullptr;
  RMSNorm q_a_layernorm = nullptr;
  torch::nn::Linear kv_a_proj_with_mqa = nullptr;  // W_a [R + r, D]
  RMSNorm kv_a_layernorm = nullptr;                // over the R channels of the latent
  torch::nn::Linear kv_b_proj = nullptr;           // W_b [H (d + dv), R]
  torch::nn::Linear o_proj = nullptr;              // W_o [D, H dv]

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(LatentAttentionCall())})

 private:
  // Queries and cached rows of tokens that begin at `position`.
  torch::Tensor queries(const torch::Tensor& x, int64_t position);  // [B, H, N, d + r], turned
  torch::Tensor rows(const torch::Tensor& x, int64_t position);     // [B, N, R + r], turned
  torch::Tensor plain(const torch::Tensor& query, const torch::Tensor& rows, AttentionOptions attend);
  torch::Tensor absorbed(const torch::Tensor& query, const torch::Tensor& rows, AttentionOptions attend);
  AttentionOptions attention_options() const;
};
TORCH_MODULE(MultiHeadLatentAttention);

}  // namespace iha::nn
