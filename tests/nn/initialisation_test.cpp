// How the attention layer begins: statistics of the named initialisations, and when a layer with pseudo-heads
// is the plain layer that it was made from (docs/layers.md states these facts).
#include <cmath>
#include <string>

#include "iha/nn/interleaved_head_attention.h"
#include "tests/nn/support.h"

namespace iha::nn {
namespace {

using Options = InterleavedHeadAttentionOptions;

torch::Tensor identity(const torch::Tensor& alpha) {
  return torch::eye(alpha.size(0), alpha.options()).unsqueeze(-1).expand_as(alpha);
}

// 16 heads, P = 16: 4096 draws, so a standard deviation s is known to s / sqrt(8192), a mean to s / 64; five
// of those.
void expect_normal(const torch::Tensor& draws, double deviation) {
  EXPECT_NEAR(draws.std().item<double>(), deviation, 5 * deviation / std::sqrt(8192.0));
  EXPECT_NEAR(draws.mean().item<double>(), 0, 5 * deviation / 64);
}

TEST(Initialisation, MixingIsDrawnAsNamed) {
  torch::manual_seed(1);
  InterleavedHeadAttention noisy(Options(16, 16));
  for (const auto& alpha : {noisy->alpha_q, noisy->alpha_k, noisy->alpha_v}) {
    expect_normal(alpha - identity(alpha), 0.3);
  }
  InterleavedHeadAttention normal(Options(16, 16).mixing_init(MixingInit::kNormal));
  for (const auto& alpha : {normal->alpha_q, normal->alpha_k, normal->alpha_v}) expect_normal(alpha, 0.02);
  InterleavedHeadAttention random(Options(16, 16).mixing_init(MixingInit::kRandom));
  for (const auto& alpha : {random->alpha_q, random->alpha_k, random->alpha_v}) {
    EXPECT_LE(alpha.abs().max().item<double>(), 0.25);
    EXPECT_GT(alpha.abs().max().item<double>(), 0.24);
    EXPECT_NEAR(alpha.std().item<double>(), 0.25 / std::sqrt(3.0), 0.01);
  }
}

TEST(Initialisation, FollowsTheGenerator) {
  torch::manual_seed(2);
  InterleavedHeadAttention first(Options::interleaved(8, 2));
  torch::manual_seed(2);
  InterleavedHeadAttention second(Options::interleaved(8, 2));
  InterleavedHeadAttention third(Options::interleaved(8, 2));
  expect_same_bits(first->alpha_q, second->alpha_q);
  EXPECT_GT(max_difference(first->alpha_q, third->alpha_q), 0);
  torch::manual_seed(2);
  third->reset_parameters();
  const auto expected = first->named_parameters();
  for (const auto& parameter : third->named_parameters())
    expect_same_bits(*parameter, expected[parameter.key()]);
}

TEST(Initialisation, CollapseBeginsAsTheMeanOfAHeadsOwnPseudoHeads) {
  InterleavedHeadAttention global(Options(12, 3).pseudo_heads(4));
  for (int64_t out = 0; out < 3; ++out) {
    for (int64_t in = 0; in < 3; ++in) {
      expect_same_bits(global->collapse[out][in], torch::full({4}, out == in ? 0.25 : 0.0));
    }
  }
  InterleavedHeadAttention own(Options(12, 3).pseudo_heads(4).collapse("per_head"));
  expect_same_bits(own->collapse, torch::full({3, 4}, 0.25));
  InterleavedHeadAttention sinks(Options(12, 3).sinks(true));
  expect_same_bits(sinks->sinks, torch::zeros({3}));
}

// A layer of `options` and the plain layer with the same projections, patterns, RoPE and sinks.
struct Pair {
  InterleavedHeadAttention layer;
  InterleavedHeadAttention plain;

  explicit Pair(const Options& options)
      : layer(options),
        plain(Options(options).mixing(false).pseudo_heads(1).mixing_init(MixingInit::kIdentityNoise)) {
    layer->to(torch::kFloat64);
    layer->reset_parameters();  // sums that are 1 or 0 are so to float64 rounding
    plain->to(torch::kFloat64);
    torch::NoGradGuard no_grad;
    auto from = layer->named_parameters();
    for (auto& parameter : plain->named_parameters()) {
      if (parameter.key() != "sinks") parameter->copy_(from[parameter.key()]);
    }
  }

  double difference() {
    const auto x = random_input({2, 7, options().d_model()});
    return max_difference(layer(x), plain(x));
  }
  const Options& options() const { return layer->options; }
};

Options small(const std::string& collapse = "global") {
  return Options(24, 3).pseudo_heads(4).mixing_noise(0).collapse(collapse).patterns(causal() + sliding(1) +
                                                                                    global());
}

TEST(IdentityMixing, InTokenOrderIsThePlainLayer) {
  torch::manual_seed(3);
  for (const auto* collapse : {"mean", "per_head", "global"}) {
    for (const auto* rope : {"none", "token"}) {
      SCOPED_TRACE(std::string(collapse) + " " + rope);
      EXPECT_LT(Pair(small(collapse).order("token").rope(rope)).difference(), 1e-13);
      EXPECT_LT(Pair(small(collapse).layout("parallel").rope(rope)).difference(), 1e-13);
    }
  }
}

TEST(IdentityMixing, InFlatOrderIsThePlainLayerOnlyUnderTheLastPseudoQuery) {
  torch::manual_seed(4);
  Pair pair(small("per_head").patterns(causal()));
  EXPECT_GT(pair.difference(), 1e-3);
  torch::NoGradGuard no_grad;
  pair.layer->collapse.zero_();
  pair.layer->collapse.select(1, 3).fill_(1);
  EXPECT_LT(pair.difference(), 1e-13);
}

TEST(IdentityMixing, WithVirtualRopeIsAnotherLayer) {
  torch::manual_seed(5);
  EXPECT_GT(Pair(small().order("token").rope("virtual")).difference(), 1e-3);
}

// Largest difference between the gradients of two pseudo-heads; [.., P].
double spread(const torch::Tensor& gradient) {
  return (gradient.amax(-1) - gradient.amin(-1)).max().item<double>();
}

void backward(InterleavedHeadAttention& layer) {
  (layer(random_input({2, 7, 24})) * random_input({2, 7, 24})).sum().backward();
}

TEST(IdentityMixing, EqualCopiesUnderAUniformCollapseStayEqual) {
  torch::manual_seed(6);
  auto layer = Pair(small("per_head").order("token")).layer;
  backward(layer);
  for (const auto& parameter : {layer->alpha_q, layer->alpha_k, layer->alpha_v, layer->collapse}) {
    EXPECT_GT(parameter.grad().abs().max().item<double>(), 1e-3);
    EXPECT_LT(spread(parameter.grad()), 1e-13);
  }
}

struct WarmStart {
  const char* name;
  Options options;
};

std::vector<WarmStart> warm_starts() {
  const auto warm = [](const std::string& collapse) {
    return small(collapse).mixing_noise(0.3).mixing_init(MixingInit::kWarmStart);
  };
  return {{"token order, per head", warm("per_head").order("token")},
          {"token order, global, RoPE, sinks", warm("global").order("token").rope("token").sinks(true)},
          {"flat order, all causal", warm("global").patterns(causal())},
          {"flat order, some causal, grouped", warm("per_head").kv_heads(1).sinks(true)},
          {"parallel, mean", warm("mean").layout("parallel").sinks(true)},
          {"parallel, global", warm("global").layout("parallel").patterns(causal())}};
}

TEST(WarmStart, IsThePlainLayerAtFirst) {
  torch::manual_seed(7);
  for (const auto& [name, options] : warm_starts()) {
    SCOPED_TRACE(name);
    EXPECT_LT(Pair(options).difference(), 1e-12);
  }
}

TEST(WarmStart, PseudoHeadsLearnDifferentThings) {
  torch::manual_seed(8);
  for (const auto& [name, options] : warm_starts()) {
    SCOPED_TRACE(name);
    auto layer = Pair(options).layer;
    backward(layer);
    EXPECT_GT(spread(layer->alpha_q.grad()), 1e-4);
    EXPECT_GT(spread(layer->alpha_k.grad()), 1e-4);
    EXPECT_GT(spread(layer->alpha_v), 1e-2);
  }
}

}  // namespace
}  // namespace iha::nn
