// RMSNorm, feed-forward and the pre-norm block against their formulas.
#include "iha/nn/transformer_block.h"

#include <torch/nn/modules/normalization.h>

#include "iha/nn/bit_linear.h"
#include "iha/nn/rms_norm.h"
#include "tests/nn/support.h"

namespace iha::nn {
namespace {

using Layer = InterleavedHeadAttentionOptions;

TEST(RMSNorm, EqualsItsFormula) {
  torch::manual_seed(1);
  RMSNorm norm(RMSNormOptions(7).eps(0.01));
  norm->to(torch::kFloat64);
  torch::NoGradGuard no_grad;
  norm->weight.normal_();
  const auto x = random_input({2, 3, 7});
  const auto expected = x / (x.square().mean(-1, true) + 0.01).sqrt() * norm->weight;
  EXPECT_LT(max_difference(norm(x), expected), 1e-14);
}

TEST(RMSNorm, ComputesSixteenBitsInFloat32) {
  torch::manual_seed(2);
  RMSNorm norm(512);
  const auto x =
      (random_input({4, 512}, torch::kFloat32) * 300).to(torch::kFloat16);  // squares overflow float16
  const auto exact = norm(x.to(torch::kFloat32));
  norm->to(torch::kFloat16);
  const auto half = norm(x);
  EXPECT_EQ(half.scalar_type(), torch::kFloat16);
  // Two roundings of 2^-11 each.
  EXPECT_LT(((half.to(torch::kFloat32) - exact) / exact).abs().max().item<double>(), 2.1 / 2048);
}

TEST(RMSNorm, RefusesWhatDoesNotFit) {
  EXPECT_THROW(RMSNorm(0), c10::ValueError);
  EXPECT_THROW(RMSNorm(RMSNormOptions(4).eps(0)), c10::ValueError);
  RMSNorm norm(4);
  EXPECT_THROW(norm(torch::ones({2, 5})), c10::ValueError);
  EXPECT_THROW(make_norm("batch", 4), c10::ValueError);
  EXPECT_THROW(make_norm("layer", 0), c10::ValueError);
}

TEST(FeedForward, EqualsItsFormulas) {
  torch::manual_seed(3);
  const auto x = random_input({2, 3, 6});
  FeedForward gelu(FeedForwardOptions(6).bias(true));
  gelu->to(torch::kFloat64);
  const auto up = gelu->up.forward(x);
  const auto activated = up * 0.5 * (1 + (up / std::sqrt(2.0)).erf());
  EXPECT_EQ(up.size(-1), 24);
  EXPECT_LT(max_difference(gelu(x), gelu->down.forward(activated)), 1e-13);
  FeedForward swiglu(FeedForwardOptions(6).kind("swiglu"));
  swiglu->to(torch::kFloat64);
  const auto gate = swiglu->gate.forward(x);
  EXPECT_EQ(gate.size(-1), 16);
  EXPECT_LT(max_difference(swiglu(x), swiglu->down.forward(gate * gate.sigmoid() * swiglu->up.forward(x))),
            1e-13);
  FeedForward chosen(FeedForwardOptions(6).hidden(5));
  EXPECT_EQ(*chosen->options.hidden(), 5);
}

TEST(FeedForward, RefusesWhatDoesNotFit) {
  EXPECT_THROW(FeedForward(FeedForwardOptions(0)), c10::ValueError);
  EXPECT_THROW(FeedForward(FeedForwardOptions(4).hidden(0)), c10::ValueError);
  EXPECT_THROW(FeedForward(FeedForwardOptions(4).kind("relu")), c10::ValueError);
  EXPECT_THROW(FeedForward(FeedForwardOptions(4))(torch::ones({2, 3})), c10::ValueError);
}

TEST(TransformerBlock, IsTwoResidualBranchesOfNormalisedInput) {
  torch::manual_seed(4);
  for (const auto* norm : {"rms", "layer"}) {
    TransformerBlock block(TransformerBlockOptions(Layer::interleaved(8, 2).patterns(causal()))
                               .norm(norm)
                               .feed_forward("swiglu"));
    block->to(torch::kFloat64);
    const auto x = random_input({2, 5, 8});
    const AttentionCall call{.documents = torch::tensor({{0, 0, 1, 1, 1}, {0, 0, 0, 0, 2}})};
    const auto mixed = x + block->attention->forward(block->norm1.forward(x), call);
    const auto expected = mixed + block->feed_forward(block->norm2.forward(mixed));
    EXPECT_LT(max_difference(block->forward(x, call), expected), 1e-14);
    EXPECT_GT(max_difference(block(x), expected), 1e-6);
  }
}

TEST(TransformerBlock, OneOptionMakesEveryProjectionABitLinear) {
  TransformerBlock block(
      TransformerBlockOptions(Layer::mixed_heads(8, 2).bit_linear(true)).feed_forward("swiglu"));
  int count = 0;
  for (const auto& module : block->modules()) count += module->as<BitLinearImpl>() != nullptr;
  EXPECT_EQ(count, 7);
}

TEST(TransformerBlock, DropoutActsInTrainingOnly) {
  torch::manual_seed(5);
  TransformerBlock block(TransformerBlockOptions(Layer::mixed_heads(8, 2)).dropout(0.5));
  const auto x = torch::randn({1, 4, 8});
  EXPECT_GT(max_difference(block(x), block(x)), 0);
  block->eval();
  expect_same_bits(block(x), block(x));
}

TEST(TransformerBlock, ResetDrawsAgain) {
  torch::manual_seed(6);
  TransformerBlock block(TransformerBlockOptions(Layer::interleaved(8, 2)).norm("layer"));
  {
    torch::NoGradGuard no_grad;
    for (auto& parameter : block->parameters()) parameter.fill_(7);
  }
  block->reset_parameters();
  for (const auto& parameter : block->named_parameters()) {
    EXPECT_LT(parameter->abs().max().item<double>(), 3) << parameter.key();
  }
}

TEST(TransformerBlock, RefusesWhatDoesNotFit) {
  EXPECT_THROW(TransformerBlock(TransformerBlockOptions(Layer(8, 3))), c10::ValueError);
  EXPECT_THROW(TransformerBlock(TransformerBlockOptions(Layer(8, 2)).dropout(2)), c10::ValueError);
  EXPECT_THROW(TransformerBlock(TransformerBlockOptions(Layer(8, 2)).norm("none")), c10::ValueError);
}

}  // namespace
}  // namespace iha::nn
