#include "iha/models/cost.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "iha/models/mixer.h"

namespace iha::models {
namespace {

Flops flops_of(const MixerConfig& config, int64_t d_model, int64_t tokens) {
  return attention_flops(layer_options(config, d_model, false), tokens);
}

// 25 tokens, D 64, 4 heads of width 16, P 4, every pair visible.
TEST(AttentionFlops, AreTheHandCounts) {
  MixerConfig config;
  const int64_t projections = 4 * 2 * 25 * 64 * 64;  // q, k, v and output
  EXPECT_EQ(flops_of(config, 64, 25), (Flops{projections, 0, 4 * 16 * 25 * 25 * 4}));
  config.kind = "mixed";
  EXPECT_EQ(flops_of(config, 64, 25), (Flops{projections, 3 * 2 * 25 * 4 * 4 * 16, 4 * 16 * 25 * 25 * 4}));
  config.kind = "averaged";  // three mixings of 4 heads into 16, and means of 4 pseudo-heads
  EXPECT_EQ(flops_of(config, 64, 25),
            (Flops{projections, 3 * 2 * 25 * 4 * 16 * 16 + 2 * 25 * 16 * 16, 4 * 16 * 25 * 25 * 4 * 4}));
  config.kind = "interleaved";  // and a collapse of 16 pseudo-heads into 4
  EXPECT_EQ(flops_of(config, 64, 25),
            (Flops{projections, 4 * 2 * 25 * 4 * 16 * 16, 4 * 16 * 25 * 25 * 4 * 16}));
  config.collapse = "per_head";
  EXPECT_EQ(flops_of(config, 64, 25).mixing, 3 * 2 * 25 * 4 * 16 * 16 + 2 * 25 * 16 * 16);
}

TEST(AttentionFlops, FollowPatternsAndKvHeads) {
  MixerConfig config;
  config.kind = "modes", config.heads = 2, config.head_dim = 3;
  config.patterns = causal() * 1 + causal_sliding(1) * 1;
  // Of 4 tokens: 10 causal pairs, 7 in the window.
  EXPECT_EQ(flops_of(config, 5, 4), (Flops{2 * 4 * 5 * 6 * 4, 0, 4 * 3 * (10 + 7)}));
  config.kv_heads = 1;
  EXPECT_EQ(flops_of(config, 5, 4).projections, 2 * 4 * 5 * (6 + 3 + 3 + 6));
  config = MixerConfig();
  config.kind = "interleaved", config.heads = 2, config.head_dim = 3, config.pseudo_heads = 2,
  config.kv_heads = 1;
  config.patterns = causal();
  // 3 tokens: 3 pairs before the diagonal with 4 pseudo-pairs each, 3 on it with 3 each.
  EXPECT_EQ(flops_of(config, 5, 3).attention, 4 * 3 * 2 * (3 * 4 + 3 * 3));
  // q and the collapse over 2 heads, k and v over 1.
  EXPECT_EQ(flops_of(config, 5, 3).mixing, 2 * 3 * (4 + 1 + 1 + 4) * 2 * 3);
  EXPECT_EQ(flops_of(config, 5, 0), Flops());
}

TEST(Flops, AddUp) {
  Flops sum{1, 2, 3};
  sum += {10, 20, 30};
  EXPECT_EQ(sum, (Flops{11, 22, 33}));
  EXPECT_EQ(sum.total(), 66);
}

TEST(ParameterCount, CountsWhatTrains) {
  torch::nn::Linear linear(3, 5);
  EXPECT_EQ(parameter_count(*linear), 20);
  linear->bias.set_requires_grad(false);
  EXPECT_EQ(parameter_count(*linear), 15);
}

}  // namespace
}  // namespace iha::models
