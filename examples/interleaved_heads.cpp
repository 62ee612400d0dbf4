// Interleaved Head Attention: P mixtures of the heads a head, interleaved into a sequence of N * P tokens,
// one causal softmax over it with RoPE of its positions, and a collapse back to N tokens.
#include "iha/nn/interleaved_head_attention.h"

#include <cmath>
#include <cstdio>

#include "iha/nn/rope.h"

using namespace iha::nn;

int main() {
  torch::manual_seed(0);
  torch::NoGradGuard no_grad;
  const int64_t tokens = 20, heads = 4, pseudo = 3;
  InterleavedHeadAttention layer(
      InterleavedHeadAttentionOptions::interleaved(/*d_model=*/64, heads, pseudo).patterns(iha::causal()));
  layer->to(torch::kFloat64);
  const auto x = torch::randn({1, tokens, 64}, torch::kFloat64);

  // The formula on the sequence of pseudo-tokens n * P + p.
  const auto mixed = [&](torch::nn::AnyModule& projection, const torch::Tensor& alpha) {
    const auto split = projection.forward(x).view({1, tokens, heads, -1});
    return at::einsum("mhp,bnmd->bhnpd", {alpha, split}).flatten(2, 3);
  };
  const auto turn = [](const torch::Tensor& t) { return rotate(t, 0, 10000, iha::RopeStyle::kHalf); };
  const auto q = turn(mixed(layer->q_proj, layer->alpha_q)), k = turn(mixed(layer->k_proj, layer->alpha_k));
  const auto later = torch::ones({tokens * pseudo, tokens * pseudo}, torch::kBool).triu(1);
  const auto scores = q.matmul(k.transpose(2, 3)) / std::sqrt(16.0);
  const auto parts =
      scores.masked_fill(later, -INFINITY).softmax(-1).matmul(mixed(layer->v_proj, layer->alpha_v));
  const auto joined = at::einsum("hmp,bmnpd->bnhd", {layer->collapse, parts.unflatten(2, {tokens, pseudo})});
  const auto expected = layer->out_proj.forward(joined.flatten(2));

  const auto difference = (layer(x) - expected).abs().max().item<double>();
  std::printf("interleaved heads: %lld heads of %lld pseudo-heads; off the formula by %.2g\n",
              static_cast<long long>(heads), static_cast<long long>(pseudo), difference);
  return difference < 1e-12 ? 0 : 1;
}
