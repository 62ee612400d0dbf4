#include "iha/schedule/paper_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "iha/patterns/count.h"

namespace iha {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(PaperSchedule, WindowIsTokensByTwiceTheSquaredPseudoHeads) {
  EXPECT_EQ(paper_window(4096, 4), 128);
  EXPECT_EQ(paper_window(4096, 1), 2048);
  EXPECT_EQ(paper_window(4095, 2), 511);
  EXPECT_EQ(paper_window(18, 3), 1);
  EXPECT_THROW(paper_window(17, 3), std::invalid_argument);
  EXPECT_THROW(paper_window(100, int64_t{1} << 40), std::invalid_argument);
  EXPECT_THROW(paper_window(0, 1), std::invalid_argument);
  EXPECT_THROW(paper_window(8, 0), std::invalid_argument);
}

// The paper counts N^2 for an ordinary layer and P^2 N W = N^2 / 2 for a local one: (4/2 + 1) / 5.
TEST(PaperSchedule, ThreeFifthsAsThePaperCountsAndAboutAllExactly) {
  for (const int64_t tokens : {4096, 8192, 32768}) {
    for (const int64_t pseudo_heads : {2, 4, 8}) {
      const PaperSchedule plan = paper_schedule({.tokens = tokens, .pseudo_heads = pseudo_heads, .heads = 8});
      EXPECT_DOUBLE_EQ(plan.paper_share, 0.6) << tokens << " " << pseudo_heads;
      EXPECT_GE(plan.share_of_plain, 0.95) << tokens << " " << pseudo_heads;
      EXPECT_LE(plan.share_of_plain, 1.0125) << tokens << " " << pseudo_heads;
    }
  }
}

TEST(PaperSchedule, CountsAreThoseOfThePatterns) {
  const int64_t n = 4096, p = 4, w = 128, heads = 12, d = 64;
  const PaperSchedule plan = paper_schedule({.tokens = n, .pseudo_heads = p, .heads = heads, .layers = 12});
  EXPECT_EQ(plan.window, w);
  EXPECT_EQ(plan.local.pattern, causal_sliding(w));
  EXPECT_EQ(plan.ordinary.pattern, causal());
  EXPECT_EQ(plan.local.layers, 10);
  EXPECT_EQ(plan.ordinary.layers, 2);
  const int64_t token_pairs = n * (w + 1) - w * (w + 1) / 2;
  EXPECT_EQ(plan.local.pairs, p * p * token_pairs - n * p * (p - 1) / 2);
  EXPECT_EQ(plan.ordinary.pairs, n * (n + 1) / 2);
  EXPECT_DOUBLE_EQ(plan.local.paper_pairs, static_cast<double>(p * p * n * w));
  EXPECT_DOUBLE_EQ(plan.ordinary.paper_pairs, static_cast<double>(n * n));
  EXPECT_DOUBLE_EQ(plan.flops,
                   4.0 * d * heads * static_cast<double>(10 * plan.local.pairs + 2 * plan.ordinary.pairs));
  EXPECT_DOUBLE_EQ(plan.plain_flops, 4.0 * d * heads * 12 * static_cast<double>(plan.ordinary.pairs));
  EXPECT_DOUBLE_EQ(plan.everywhere_flops,
                   4.0 * d * heads * 12 * static_cast<double>(n * p * (n * p + 1) / 2));
  EXPECT_DOUBLE_EQ(plan.share_of_plain, plan.flops / plan.plain_flops);
  EXPECT_DOUBLE_EQ(plan.paper_share, (10 * 0.5 + 2) / 12);
}

TEST(PaperSchedule, BytesOfOneLayerAndOneSequence) {
  const PaperSchedule plan = paper_schedule({.tokens = 1024,
                                             .pseudo_heads = 2,
                                             .heads = 8,
                                             .kv_heads = 2,
                                             .layers = 5,
                                             .head_dim = 16,
                                             .bytes_per_value = 4});
  ASSERT_EQ(plan.window, 128);
  EXPECT_EQ(plan.local.cache_bytes, 129 * 2 * 2 * 16 * 4);  // tokens, k and v, key heads, d, bytes
  EXPECT_EQ(plan.ordinary.cache_bytes, 1024 * 2 * 2 * 16 * 4);
  EXPECT_EQ(plan.cache_bytes, 4 * plan.local.cache_bytes + plan.ordinary.cache_bytes);
  EXPECT_EQ(plan.plain_cache_bytes, 5 * plan.ordinary.cache_bytes);
  // q of 8 heads, k and v of 2, outputs of 8 x P heads; lse of 8 x P in float32.
  EXPECT_EQ(plan.local.saved_bytes, 1024 * ((8 + 2 + 2 + 16) * 16 * 4 + 16 * 4));
  EXPECT_EQ(plan.ordinary.saved_bytes, 1024 * ((8 + 2 + 2 + 8) * 16 * 4 + 8 * 4));
  EXPECT_EQ(plan.local.unfused_bytes, 1024 * ((16 + 4 + 4 + 16) * 16 * 4 + 16 * 4) + 2048 * 2048);
  EXPECT_EQ(plan.ordinary.unfused_bytes, plan.ordinary.saved_bytes);
}

TEST(PaperSchedule, EveryFifthLayerIsOrdinary) {
  for (int64_t layers = 1; layers <= 21; ++layers) {
    int64_t ordinary = 0;
    for (int64_t layer = 0; layer < layers; ++layer) ordinary += is_ordinary_layer(layer) ? 1 : 0;
    const PaperSchedule plan =
        paper_schedule({.tokens = 512, .pseudo_heads = 2, .heads = 1, .layers = layers});
    EXPECT_EQ(plan.ordinary.layers, ordinary);
    EXPECT_EQ(plan.local.layers, layers - ordinary);
  }
  EXPECT_FALSE(is_ordinary_layer(0));
  EXPECT_TRUE(is_ordinary_layer(4));
}

TEST(PaperSchedule, WarnsOfWhatIsLegalButOfLittleUse) {
  const auto warnings = [](int64_t tokens, int64_t pseudo_heads, int64_t layers) {
    return paper_schedule({.tokens = tokens, .pseudo_heads = pseudo_heads, .heads = 4, .layers = layers})
        .warnings;
  };
  EXPECT_THAT(warnings(4096, 8, 10), IsEmpty());  // W = 32
  EXPECT_THAT(
      warnings(4032, 8, 10),
      ElementsAre("the local layers see 31 tokens back, fewer than 32: take 4096 tokens or more, or at most "
                  "7 pseudo-heads"));
  EXPECT_THAT(warnings(40, 1, 5),
              ElementsAre("the local layers see 20 tokens back, fewer than 32: take 64 tokens or more",
                          HasSubstr("plain sliding windows")));
  EXPECT_THAT(warnings(4096, 4, 4), ElementsAre(HasSubstr("nothing is carried farther than 512 tokens")));
}

TEST(PaperSchedule, RefusesSizesThatMakeNoModel) {
  const PaperModel model{.tokens = 4096, .pseudo_heads = 4, .heads = 8};
  const auto refused = [](PaperModel bad) { EXPECT_THROW(paper_schedule(bad), std::invalid_argument); };
  PaperModel bad = model;
  refused((bad.heads = 0, bad));
  bad = model;
  refused((bad.kv_heads = 3, bad));
  refused((bad.kv_heads = -1, bad));
  bad = model;
  refused((bad.layers = 0, bad));
  bad = model;
  refused((bad.head_dim = 0, bad));
  bad = model;
  refused((bad.bytes_per_value = 0, bad));
  bad = model;
  refused((bad.tokens = 31, bad));  // W = 0
}

}  // namespace
}  // namespace iha
