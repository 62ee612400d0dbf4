// The two published layers as their users know them: spelling, parameter names, saved weights, errors.
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <sstream>

#include "iha/nn/averaged_pseudo_heads.h"
#include "iha/nn/bit_linear.h"
#include "iha/nn/mixed_mode_attention.h"
#include "tests/nn/support.h"

namespace published_example {

using namespace iha::nn;  // as a user of the published header would see its names

// The example of the published layer: 12 heads, a third of them in each mode.
torch::Tensor run() {
  const int heads = 12;
  const int d_model = 768;
  const int window = 256;
  std::vector<AttentionMode> modes;
  for (int head = 0; head < heads; ++head) {
    if (head < 4) {
      modes.push_back(AttentionMode::Causal);
    } else if (head < 8) {
      modes.push_back(AttentionMode::Sliding);
    } else {
      modes.push_back(AttentionMode::Global);
    }
  }
  InterleavedHeadAttention attention(heads, d_model, window, modes);
  torch::Tensor input = torch::randn({2, 32, d_model});
  torch::Tensor output = attention->forward(input);
  return output;
}

}  // namespace published_example

namespace iha::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::vector<std::string> names_of(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& parameter : module.named_parameters()) names.push_back(parameter.key());
  return names;
}

// What a published layer saves: the same tensors under the same names, in a module that knows nothing of
// ours.
struct Saved : torch::nn::Module {
  Saved(const std::vector<std::string>& projections, int64_t width, bool bias) {
    for (const auto& name : projections) {
      register_module(name, torch::nn::Linear(torch::nn::LinearOptions(width, width).bias(bias)));
    }
  }
};

template <class Holder>
void expect_loads(const std::shared_ptr<Saved>& saved, Holder& layer) {
  std::stringstream file;
  torch::save(saved, file);
  torch::load(layer, file);
  const auto loaded = layer->named_parameters();
  EXPECT_EQ(loaded.size(), saved->named_parameters().size());
  for (const auto& parameter : saved->named_parameters())
    expect_same_bits(loaded[parameter.key()], *parameter);
}

TEST(MixedModes, ThePublishedExampleRuns) {
  const auto output = published_example::run();
  EXPECT_EQ(output.sizes(), at::IntArrayRef({2, 32, 768}));
  EXPECT_TRUE(output.isfinite().all().item<bool>());
}

TEST(MixedModes, ModesMayBeWrittenInPlaceAndForwardCalledEitherWay) {
  InterleavedHeadAttention layer(3, 12, 2,
                                 {AttentionMode::Sliding, AttentionMode::Causal, AttentionMode::Global});
  const auto x = torch::randn({1, 5, 12});
  expect_same_bits(layer.forward(x), layer->forward(x));
  expect_same_bits(layer(x), layer->forward(x));
  auto shared = std::make_shared<InterleavedHeadAttention>(layer);
  expect_same_bits(shared->forward(x), layer(x));
  EXPECT_EQ(layer->options.patterns(), sliding(2) + causal() + global());
}

TEST(MixedModes, LoadsWeightsUnderTheirOwnNames) {
  const std::vector<std::string> projections{"W_q", "W_k", "W_v", "W_o"};
  InterleavedHeadAttention layer(2, 8, 1, {AttentionMode::Causal, AttentionMode::Sliding});
  EXPECT_THAT(names_of(*layer), ElementsAre("W_q.weight", "W_q.bias", "W_k.weight", "W_k.bias", "W_v.weight",
                                            "W_v.bias", "W_o.weight", "W_o.bias"));
  expect_loads(std::make_shared<Saved>(projections, 8, true), layer);
}

template <class Make>
std::string refusal(Make make) {
  try {
    make();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "nothing was refused";
}

TEST(MixedModes, RefusesAtConstruction) {
  const std::vector<AttentionMode> three(3, AttentionMode::Global);
  const auto layer = [](int64_t heads, int64_t d_model, int64_t window,
                        const std::vector<AttentionMode>& modes) {
    return [=] { InterleavedHeadAttention(heads, d_model, window, modes); };
  };
  EXPECT_THAT(refusal(layer(3, 10, 1, three)), HasSubstr("d_model 10 is not a multiple of 3 heads"));
  EXPECT_THAT(refusal(layer(0, 10, 1, {})), HasSubstr("heads = 0, expected at least 1"));
  EXPECT_THAT(refusal(layer(3, 12, -1, three)), HasSubstr("window = -1, expected at least 0"));
  EXPECT_THAT(refusal(layer(4, 12, 1, three)), HasSubstr("3 patterns for 4 heads"));
  EXPECT_THAT(refusal(layer(1, 12, 1, {static_cast<AttentionMode>(7)})), HasSubstr("none of Causal"));
}

TEST(AveragedPseudoHeads, LoadsWeightsUnderTheirOwnNames) {
  IHAAttention layer(IHAAttentionOptions(8, 2).iha_num_pseudo_heads(3));
  EXPECT_THAT(names_of(*layer), UnorderedElementsAre("q_proj.weight", "k_proj.weight", "v_proj.weight",
                                                     "out_proj.weight", "q_mix", "k_mix", "v_mix"));
  auto saved =
      std::make_shared<Saved>(std::vector<std::string>{"q_proj", "k_proj", "v_proj", "out_proj"}, 8, false);
  for (const auto* name : {"q_mix", "k_mix", "v_mix"}) saved->register_parameter(name, torch::randn({6, 2}));
  expect_loads(saved, layer);
}

TEST(AveragedPseudoHeads, DefaultsAreThePublishedOnes) {
  torch::manual_seed(1);
  IHAAttention layer(IHAAttentionOptions(64, 16));
  EXPECT_EQ(*layer->options.iha_num_pseudo_heads(), 16);
  EXPECT_EQ(layer->options.mode(), "encoder");
  // 4096 draws: the deviation of their standard deviation is 0.02 / sqrt(2 * 4096) = 0.00022.
  EXPECT_EQ(layer->q_mix.sizes(), at::IntArrayRef({256, 16}));
  for (const auto& mix : {layer->q_mix, layer->k_mix, layer->v_mix}) {
    EXPECT_NEAR(mix.std().item<double>(), 0.02, 5 * 0.00022);
    EXPECT_NEAR(mix.mean().item<double>(), 0, 5 * 0.02 / 64);
  }
}

// Plain torch operations: pseudo-heads by einsum, softmax of each beside the others, their mean.
torch::Tensor composition(IHAAttentionImpl& layer, const torch::Tensor& x) {
  const auto heads = layer.options.num_heads();
  const auto pseudo_heads = *layer.options.iha_num_pseudo_heads();
  const auto mixed = [&](torch::nn::AnyModule& projection, const torch::Tensor& mix) {
    const auto split = projection.forward(x).unflatten(2, {heads, -1});  // [B, N, H, d]
    return torch::einsum("sh,bnhd->bsnd", {mix, split});
  };
  const auto query = mixed(layer.q_proj, layer.q_mix);
  const auto key = mixed(layer.k_proj, layer.k_mix);
  const auto value = mixed(layer.v_proj, layer.v_mix);
  const auto pattern = layer.options.mode() == "decoder" ? causal() : global();
  const auto out = plain_head(query, key, value, visibility(pattern, x.size(1), x.size(1)));
  return layer.out_proj.forward(out.unflatten(1, {heads, pseudo_heads}).mean(2).transpose(1, 2).flatten(2));
}

TEST(AveragedPseudoHeads, EqualsTheCompositionOfTorchOperations) {
  torch::manual_seed(2);
  for (const auto* mode : {"encoder", "decoder"}) {
    for (const int64_t pseudo_heads : {1, 2, 5}) {
      SCOPED_TRACE(c10::str(mode, " P = ", pseudo_heads));
      IHAAttention layer(IHAAttentionOptions(12, 3).iha_num_pseudo_heads(pseudo_heads).mode(mode));
      layer->to(torch::kFloat64);
      torch::NoGradGuard no_grad;
      for (auto* mix : {&layer->q_mix, &layer->k_mix, &layer->v_mix}) mix->normal_();
      const auto x = random_input({2, 7, 12});
      EXPECT_LT(max_difference(layer(x), composition(*layer, x)), 1e-12);
    }
  }
}

TEST(AveragedPseudoHeads, DropoutActsInTrainingOnly) {
  torch::manual_seed(3);
  IHAAttention layer(IHAAttentionOptions(8, 2).dropout(0.8));
  const auto x = torch::randn({1, 9, 8});
  EXPECT_GT(max_difference(layer(x), layer(x)), 0);
  layer->eval();
  const auto quiet = layer(x);
  expect_same_bits(quiet, layer(x));
  layer->options.dropout(0);
  expect_same_bits(quiet, layer(x));
}

template <class Count>
concept TakenAsPseudoHeads = requires(IHAAttentionOptions options, Count count) {
  options.iha_num_pseudo_heads(count);
};
static_assert(TakenAsPseudoHeads<int> && TakenAsPseudoHeads<int64_t>);
static_assert(!TakenAsPseudoHeads<double> && !TakenAsPseudoHeads<float>);

TEST(AveragedPseudoHeads, RefusesAtConstruction) {
  const auto layer = [](const IHAAttentionOptions& options) { return [=] { IHAAttention{options}; }; };
  using Options = IHAAttentionOptions;
  EXPECT_THAT(refusal(layer(Options(10, 3))), HasSubstr("hidden_size 10 is not a multiple of 3 num_heads"));
  EXPECT_THAT(refusal(layer(Options(10, 0))), HasSubstr("num_heads = 0"));
  EXPECT_THAT(refusal(layer(Options(8, 2).iha_num_pseudo_heads(0))), HasSubstr("iha_num_pseudo_heads = 0"));
  EXPECT_THAT(refusal(layer(Options(8, 2).mode("Decoder"))),
              HasSubstr("'Decoder', expected 'encoder' or 'decoder'"));
  EXPECT_THAT(refusal(layer(Options(8, 2).dropout(1.5))), HasSubstr("dropout = 1.5"));
  IHAAttention good(Options(8, 2));
  EXPECT_THAT(refusal([&] { good(torch::ones({2, 3, 7})); }), HasSubstr("[2, 3, 7], expected [B, N, 8]"));
}

TEST(AveragedPseudoHeads, BitnetMakesEveryProjectionABitLinear) {
  IHAAttention layer(IHAAttentionOptions(8, 2).use_bitnet(true));
  for (auto* projection : {&layer->q_proj, &layer->k_proj, &layer->v_proj, &layer->out_proj}) {
    EXPECT_NE(projection->ptr()->as<BitLinearImpl>(), nullptr);
  }
}

}  // namespace
}  // namespace iha::nn
