// Multi-head latent attention: keys and values of all heads are made from one latent c a token, and a decoder
// keeps that and one turned RoPE key. Decoding on the latents themselves gives what making keys and values
// gives.
#include "iha/nn/multi_head_latent_attention.h"

#include <cmath>
#include <cstdio>

#include "iha/nn/rope.h"

using namespace iha::nn;

int main() {
  torch::manual_seed(0);
  torch::NoGradGuard no_grad;
  const int64_t tokens = 40, heads = 4, nope = 16, rope = 8, rank = 24;
  MultiHeadLatentAttention layer(
      MultiHeadLatentAttentionOptions(/*d_model=*/64, heads).nope_dim(nope).rope_dim(rope).kv_rank(rank));
  layer->to(torch::kFloat64);
  const auto x = torch::randn({1, tokens, 64}, torch::kFloat64);

  // The formula, head by head.
  const auto turn = [](const torch::Tensor& t) { return rotate(t, 0, 10000, iha::RopeStyle::kAdjacent); };
  const auto down = layer->kv_a_proj_with_mqa(x);
  const auto latent = layer->kv_a_layernorm(down.slice(2, 0, rank)), rope_key = turn(down.slice(2, rank));
  const auto hidden = torch::ones({tokens, tokens}, torch::kBool).triu(1);
  std::vector<torch::Tensor> outs;
  for (int64_t h = 0; h < heads; ++h) {
    const auto q = layer->q_proj(x).slice(2, h * (nope + rope), (h + 1) * (nope + rope));
    const auto kv = layer->kv_b_proj(latent).slice(2, h * 2 * nope, (h + 1) * 2 * nope);
    auto scores = q.slice(2, 0, nope).matmul(kv.slice(2, 0, nope).transpose(1, 2));
    scores += turn(q.slice(2, nope)).matmul(rope_key.transpose(1, 2));
    scores /= std::sqrt(static_cast<double>(nope + rope));
    outs.push_back(scores.masked_fill(hidden, -INFINITY).softmax(-1).matmul(kv.slice(2, nope)));
  }
  const auto expected = layer->o_proj(torch::cat(outs, 2));

  auto cache = layer->make_cache(/*batch=*/1);
  std::vector<torch::Tensor> steps{layer->decode(x.narrow(1, 0, 30), cache)};
  for (int64_t n = 30; n < tokens; ++n)
    steps.push_back(layer->decode(x.narrow(1, n, 1), cache, LatentForm::kAbsorbed));

  const auto plain = (layer(x) - expected).abs().max().item<double>();
  const auto absorbed = (torch::cat(steps, 1) - expected).abs().max().item<double>();
  std::printf(
      "latent attention: %lld bytes a token in the cache, plain heads keep %lld; off the formula by %.2g, "
      "decoding by %.2g\n",
      static_cast<long long>(layer->cache_bytes_per_token()), static_cast<long long>(2 * heads * nope * 8),
      plain, absorbed);
  return plain < 1e-12 && absorbed < 1e-12 ? 0 : 1;
}
