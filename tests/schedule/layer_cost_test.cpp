#include "iha/schedule/layer_cost.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "iha/patterns/parse.h"

namespace iha {
namespace {

// The published example of per-head modes: 4 causal, 4 windows of 256 tokens on each side, 4 global.
TEST(LayerCost, ThePublishedExampleSavesNothingAgainstCausalHeads) {
  const int64_t n = 4096, w = 256;
  const LayerCost cost =
      layer_cost(parse_patterns("causal*4,sliding:256*4,global*4").expand(12), {.tokens = n, .head_dim = 64});
  ASSERT_EQ(cost.heads.size(), 12U);
  const int64_t causal_pairs = n * (n + 1) / 2;
  const int64_t sliding_pairs = n * (2 * w + 1) - w * (w + 1);
  EXPECT_EQ(cost.heads[0].pairs, causal_pairs);
  EXPECT_EQ(cost.heads[4].pairs, sliding_pairs);
  EXPECT_EQ(cost.heads[11].pairs, n * n);
  EXPECT_EQ(cost.pairs, 4 * (causal_pairs + sliding_pairs + n * n));
  EXPECT_EQ(cost.pairs, 108813312);
  EXPECT_EQ(cost.all_causal_pairs, 100687872);
  EXPECT_EQ(cost.all_global_pairs, 12 * n * n);
  EXPECT_DOUBLE_EQ(cost.heads[11].share_of_dense, 1.0);
  EXPECT_DOUBLE_EQ(cost.heads[4].flops, 4.0 * 64 * static_cast<double>(sliding_pairs));
  EXPECT_DOUBLE_EQ(cost.flops, 4.0 * 64 * 108813312);
  EXPECT_DOUBLE_EQ(cost.against_all_causal(), 108813312.0 / 100687872.0);
  EXPECT_GT(cost.against_all_causal(), 1.0);
  EXPECT_LT(cost.against_all_global(), 1.0);
}

TEST(LayerCost, PseudoHeadsMultiplyPairsByTheLayoutsRule) {
  const int64_t n = 100, p = 4;
  const auto pairs = [&](const Pattern& pattern, bool interleaved, bool flat) {
    return layer_cost({pattern}, {n, 8, p, interleaved, flat}).pairs;
  };
  EXPECT_EQ(pairs(global(), true, true), n * n * p * p);
  EXPECT_EQ(pairs(global(), false, true), n * n * p);
  EXPECT_EQ(pairs(causal(), true, false), n * (n + 1) / 2 * p * p);
  EXPECT_EQ(pairs(causal(), true, true), n * p * (n * p + 1) / 2);  // a plain causal head of N P tokens
  EXPECT_EQ(pairs(causal(), false, true), n * (n + 1) / 2 * p);
}

TEST(LayerCost, SharesAreOfTheOwnLayout) {
  const LayerCost cost = layer_cost({global(), chunked(25)},
                                    {.tokens = 100, .head_dim = 8, .pseudo_heads = 3, .interleaved = false});
  EXPECT_DOUBLE_EQ(cost.heads[0].share_of_dense, 1.0);
  EXPECT_DOUBLE_EQ(cost.heads[1].share_of_dense, 0.25);
  EXPECT_DOUBLE_EQ(cost.against_all_global(), 0.625);
}

TEST(LayerCost, NothingCostsNothing) {
  const LayerCost no_tokens = layer_cost({causal()}, {.tokens = 0, .head_dim = 8});
  EXPECT_EQ(no_tokens.pairs, 0);
  EXPECT_EQ(no_tokens.heads[0].share_of_dense, 0.0);
  EXPECT_EQ(no_tokens.against_all_causal(), 1.0);
  EXPECT_TRUE(layer_cost({}, {.tokens = 5, .head_dim = 8}).heads.empty());
}

TEST(LayerCost, RefusesWhatItCannotCount) {
  EXPECT_THROW(layer_cost({causal()}, {.tokens = -1, .head_dim = 8}), std::invalid_argument);
  EXPECT_THROW(layer_cost({causal()}, {.tokens = 1, .head_dim = -8}), std::invalid_argument);
  EXPECT_THROW(layer_cost({causal()}, {.tokens = 1, .head_dim = 8, .pseudo_heads = 0}),
               std::invalid_argument);
  const int64_t tokens = int64_t{1} << 31;
  EXPECT_THROW(layer_cost({causal()}, {.tokens = tokens, .head_dim = 8}), std::invalid_argument);
  EXPECT_THROW(layer_cost({causal()}, {.tokens = tokens / 8, .head_dim = 8, .pseudo_heads = 8}),
               std::invalid_argument);
}

}  // namespace
}  // namespace iha
