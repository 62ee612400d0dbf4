// What every module of the folder owes torch: saving, loading, deep cloning, dtypes, printing, train and
// eval.
#include <torch/nn/modules/normalization.h>
#include <torch/serialize.h>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "iha/nn/averaged_pseudo_heads.h"
#include "iha/nn/bit_linear.h"
#include "iha/nn/linear_attention.h"
#include "iha/nn/mixed_mode_attention.h"
#include "iha/nn/multi_head_latent_attention.h"
#include "iha/nn/rms_norm.h"
#include "iha/nn/transformer_block.h"
#include "tests/nn/support.h"

namespace iha::nn {
namespace {

using testing::HasSubstr;

struct Kind {
  std::string name;
  std::function<std::shared_ptr<torch::nn::Module>()> make;  // input width 8
  std::string printed;                                       // must be part of the printed form
};

void PrintTo(const Kind& kind, std::ostream* stream) {
  *stream << kind.name;
}

template <class Holder, class Options>
Kind kind(std::string name, const Options& options, std::string printed) {
  return {std::move(name), [options] { return Holder(options).ptr(); }, std::move(printed)};
}

std::vector<Kind> kinds() {
  using Layer = InterleavedHeadAttentionOptions;
  return {
      kind<InterleavedHeadAttention>("interleaved",
                                     Layer::interleaved(8, 4, 3).kv_heads(2).sinks(true).dropout(0.1),
                                     "heads=4, kv_heads=2, head_dim=2, pseudo_heads=3, patterns=global"),
      kind<InterleavedHeadAttention>("averaged", Layer::averaged(8, 2), "layout=parallel"),
      kind<InterleavedHeadAttention>("per_head_modes", Layer::per_head_modes(8, causal() * 3 + sliding(2)),
                                     "patterns=causal*3,sliding:2, mixing=none"),
      kind<InterleavedHeadAttention>("mixed_heads", Layer::mixed_heads(8, 2).bias(true).bit_linear(true),
                                     "mixing=identity_noise"),
      kind<InterleavedHeadAttention>(
          "learned", Layer(8, 2).pseudo_heads(2).patterns(learned({causal(), sliding(1), global()})),
          "iha::nn::ModeGates(heads=2, temperature=1, noise=0)"),
      kind<InterleavedHeadAttention>("dynamic",
                                     Layer(8, 2).mixing(false).patterns(dynamic(2, 1)).index_dim(4),
                                     "iha::nn::BlockIndex(heads=2, dim=4, tile=1)"),
      kind<InterleavedHeadAttention>("mixed_modes", mixed_mode_options(2, 8, causal() + global()), "W_q"),
      kind<IHAAttention>("averaged_pseudo_heads", IHAAttentionOptions(8, 2).mode("decoder").use_bitnet(true),
                         "iha_num_pseudo_heads=2, dropout=0, use_bitnet=true, mode=decoder"),
      kind<LinearAttention>("linear",
                            LinearAttentionOptions(8, 4).kv_heads(2).causal(true).chunk(2).bias(true),
                            "kv_heads=2, head_dim=2, feature_map=elu, normalise=true, causal=true, chunk=2"),
      kind<LinearAttention>("linear_identity",
                            LinearAttentionOptions(8, 2).feature_map("identity").bit_linear(true),
                            "feature_map=identity, normalise=false"),
      kind<MultiHeadLatentAttention>(
          "latent", MultiHeadLatentAttentionOptions(8, 2).query_rank(6).dropout(0.1),
          "nope_dim=4, rope_dim=2, value_dim=4, kv_rank=16, query_rank=6, patterns=causal"),
      kind<MultiHeadLatentAttention>("latent_whole_queries",
                                     MultiHeadLatentAttentionOptions(8, 2).patterns(global()),
                                     "query_rank=none, patterns=global"),
      kind<BitLinear>("bit_linear", BitLinearOptions(8, 3).bias(true),
                      "in_features=8, out_features=3, bias=true"),
      kind<RMSNorm>("rms_norm", RMSNormOptions(8), "iha::nn::RMSNorm(8, eps=1e-05)"),
      kind<FeedForward>("feed_forward", FeedForwardOptions(8).kind("swiglu").bit_linear(true), "hidden=24"),
      kind<TransformerBlock>("gelu_block",
                             TransformerBlockOptions(Layer::interleaved(8, 2)).dropout(0.1).norm("layer"),
                             "InterleavedHeadAttention"),
      kind<TransformerBlock>("swiglu_block",
                             TransformerBlockOptions(Layer::mixed_heads(8, 2)).feed_forward("swiglu"),
                             "kind=swiglu"),
  };
}

torch::Tensor run(torch::nn::Module& module, const torch::Tensor& x) {
  if (auto* layer = module.as<InterleavedHeadAttentionImpl>()) return layer->forward(x);
  if (auto* layer = module.as<IHAAttentionImpl>()) return layer->forward(x);
  if (auto* layer = module.as<LinearAttentionImpl>()) return layer->forward(x);
  if (auto* layer = module.as<MultiHeadLatentAttentionImpl>()) return layer->forward(x);
  if (auto* layer = module.as<BitLinearImpl>()) return layer->forward(x);
  if (auto* layer = module.as<RMSNormImpl>()) return layer->forward(x);
  if (auto* layer = module.as<FeedForwardImpl>()) return layer->forward(x);
  return module.as<TransformerBlockImpl>()->forward(x);
}

// Parameters that no initialisation gives, so that nothing passes by being reset.
std::shared_ptr<torch::nn::Module> made(const Kind& kind) {
  auto module = kind.make();
  torch::NoGradGuard no_grad;
  for (auto& parameter : module->parameters()) parameter.add_(torch::randn_like(parameter) * 0.1);
  module->eval();
  return module;
}

class EveryModule : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { torch::manual_seed(1); }
};

TEST_P(EveryModule, SavesAndLoads) {
  auto module = made(GetParam());
  std::stringstream file;
  torch::save(module, file);
  auto loaded = GetParam().make();
  loaded->eval();
  const auto x = torch::randn({2, 5, 8});
  EXPECT_GT(max_difference(run(*module, x), run(*loaded, x)), 0);
  torch::load(loaded, file);
  expect_same_bits(run(*module, x), run(*loaded, x));
}

TEST_P(EveryModule, ClonesDeeply) {
  auto module = made(GetParam());
  auto copy = module->clone();
  const auto x = torch::randn({2, 5, 8});
  const auto before = run(*module, x);
  expect_same_bits(before, run(*copy, x));
  EXPECT_FALSE(copy->is_training());
  torch::NoGradGuard no_grad;
  for (auto& parameter : module->parameters()) parameter.fill_(0.5);
  expect_same_bits(before, run(*copy, x));
  EXPECT_GT(max_difference(before, run(*module, x)), 0);
  EXPECT_EQ(copy->named_parameters().keys(), module->named_parameters().keys());
}

TEST_P(EveryModule, AClonesOwnParametersAreTheOnesItUses) {
  auto copy = made(GetParam())->clone();
  const auto x = torch::randn({2, 5, 8});
  run(*copy, x).square().sum().backward();
  for (const auto& parameter : copy->named_parameters()) {
    ASSERT_TRUE(parameter->grad().defined()) << parameter.key();
    EXPECT_TRUE(parameter->grad().isfinite().all().item<bool>()) << parameter.key();
  }
}

TEST_P(EveryModule, MovesBetweenDtypes) {
  auto module = made(GetParam());
  const auto x = torch::randn({2, 5, 8});
  const auto single = run(*module, x);
  module->to(torch::kFloat64);
  EXPECT_LT(max_difference(run(*module, x.to(torch::kFloat64)), single), 1e-5);
  module->to(torch::kBFloat16);
  const auto half = run(*module, x.to(torch::kBFloat16));
  EXPECT_EQ(half.scalar_type(), torch::kBFloat16);
  // Roundings to 8 bits along a few maps, against outputs of this size; BitLinear may round a step
  // differently.
  EXPECT_LT(max_difference(half, single), 0.15 * (1 + single.abs().max().item<double>()));
}

TEST_P(EveryModule, PrintsItself) {
  const auto module = GetParam().make();
  EXPECT_THAT(printed(*module), HasSubstr(GetParam().printed));
}

TEST_P(EveryModule, EveryParameterGetsAGradient) {
  auto module = made(GetParam());
  module->train();
  const auto out = run(*module, torch::randn({2, 5, 8}));
  (out * torch::randn_like(out)).sum().backward();
  for (const auto& parameter : module->named_parameters()) {
    EXPECT_TRUE(parameter->grad().defined()) << parameter.key();
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryModule, testing::ValuesIn(kinds()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace iha::nn
