// The viewer's data and costs; what the page makes of them is tested in tests/apps/test_view.py.
#include "iha/report/viewer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "iha/patterns/parse.h"
#include "iha/report/report.h"

namespace iha::report {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string page_of(Viewer viewer) {
  return to_html(Page{"t", "", {}, {{"s", {std::move(viewer)}}}, ""});
}

Viewer viewer_of(int64_t tokens, ViewedHead head, int64_t pseudo_heads = 1) {
  Viewer viewer{.title = "v", .caption = "", .token_count = tokens, .layers = {}};
  viewer.layers.push_back({.name = "l", .pseudo_heads = pseudo_heads, .heads = {std::move(head)}});
  return viewer;
}

std::string error_of(Viewer viewer) {
  try {
    page_of(std::move(viewer));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(Viewer, SizesThatDoNotFitAreNamed) {
  const ViewedHead head{.text = "causal", .pattern = causal()};
  Viewer viewer = viewer_of(2, head);
  viewer.tokens = {"a"};
  EXPECT_THAT(error_of(viewer), HasSubstr("viewer 'v' has 1 tokens, expected 2"));
  viewer = viewer_of(2, head);
  viewer.query = 2;
  EXPECT_THAT(error_of(viewer), HasSubstr("query 2 of 2 tokens"));
  ViewedHead weighed = head;
  weighed.weights = WeightSummary(3, 1).take();
  EXPECT_THAT(error_of(viewer_of(2, weighed)), HasSubstr("v', l, causal: weights of 3 tokens and 1"));
  EXPECT_THAT(error_of(viewer_of(3, weighed, 2)), HasSubstr("expected 3 and 2"));
  ViewedHead dynamic = head;
  dynamic.chosen = ChosenBlocks{.block = 1, .most = 2, .blocks = {0}, .weights = {1}};
  EXPECT_THAT(error_of(viewer_of(1, dynamic)), HasSubstr("1 chosen blocks and 1 weights, expected 1 * 2"));
}

TEST(Viewer, NothingToShowNeedsNoScript) {
  EXPECT_THAT(page_of({.title = "v", .caption = "", .layers = {}}), HasSubstr("Nothing to show."));
  EXPECT_THAT(page_of(viewer_of(0, {.text = "causal", .pattern = causal()})), HasSubstr("Nothing to show."));
}

TEST(Viewer, OnlyItsPagesHaveAScript) {
  EXPECT_THAT(to_html(Page{"t", "", {}, {{"s", {Paragraph{"p"}}}}, ""}), Not(HasSubstr("<script")));
  const std::string html = page_of(viewer_of(1, {.text = "causal", .pattern = causal()}));
  EXPECT_THAT(html, HasSubstr("<script>//<![CDATA[\n\"use strict\";"));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
}

// Base64 of 1, 0, 0.5, 0.5 as float32.
TEST(Viewer, ShortTextsKeepTheirWeightsAsFloat32) {
  WeightSummary summary(2, 1);
  summary.add(0, std::vector<float>{1, 0});
  summary.add(1, std::vector<float>{0.5, 0.5});
  ViewedHead head{.text = "causal", .pattern = causal()};
  head.weights = summary.take();
  EXPECT_THAT(page_of(viewer_of(2, head)),
              HasSubstr(R"("masses":{"block":1,"side":2,"float32":"AACAPwAAAAAAAAA/AAAAPw=="})"));
}

TEST(Viewer, TwelveHeadsOf4096TokensTakeLessThan3Megabytes) {
  Viewer viewer{.title = "v", .caption = "", .token_count = 4096, .layers = {}};
  viewer.tokens.assign(4096, "x");
  ViewedLayer layer{.name = "l", .heads = {}};
  std::vector<float> row(4096, 1.0F / 4096);
  WeightSummary summary(4096, 1);
  for (int64_t i = 0; i < 4096; ++i) summary.add(i, row);
  const HeadWeights weights = summary.take();
  for (int h = 0; h < 12; ++h)
    layer.heads.push_back({.text = "sliding:9", .pattern = sliding(h), .weights = weights});
  viewer.layers.push_back(layer);
  EXPECT_LT(page_of(viewer).size(), 3'000'000u);
}

TEST(Costs, AreThoseOfTheHeadAndTheLayerBesideCausalAndGlobalOnes) {
  ViewedLayer layer{.name = "l", .heads = {}};
  for (const std::string name : {"causal_sliding:3", "causal", "causal_sliding:1", "causal_every:4"})
    layer.heads.push_back({.text = name, .pattern = parse_pattern(name)});
  add_costs(layer, {.tokens = 10, .head_dim = 8}, 4);
  EXPECT_EQ(layer.heads[0].cost.own.pairs, 1 + 2 + 3 + 7 * 4);
  EXPECT_EQ(layer.heads[0].cost.own.flops, 4.0 * 34 * 8);
  EXPECT_EQ(layer.heads[0].cost.own.weight_bytes, 4.0 * 34);
  EXPECT_EQ(layer.heads[0].cost.own.cache_bytes, 2.0 * 4 * 8 * 4);
  EXPECT_EQ(layer.heads[0].cost.causal.pairs, 55);
  EXPECT_EQ(layer.heads[0].cost.global.pairs, 100);
  EXPECT_EQ(layer.cost.own.pairs, 34 + 55 + 19 + (4 * 1 + 4 * 2 + 2 * 3));
  EXPECT_EQ(layer.cost.own.cache_bytes, 2.0 * (4 + 10 + 2 + 3) * 8 * 4);
  EXPECT_EQ(layer.cost.global.cache_bytes, 2.0 * 40 * 8 * 4);
  EXPECT_FALSE(layer.cost.own.seconds.has_value());
  // Two key heads, numbers of two bytes: each keeps what its needier head needs.
  add_costs(layer, {.tokens = 10, .head_dim = 8}, 2, 2);
  EXPECT_EQ(layer.cost.own.cache_bytes, 2.0 * (10 + 3) * 8 * 2);
  EXPECT_THROW(add_costs(layer, {.tokens = 10, .head_dim = 8}, 3), std::invalid_argument);
}

TEST(Costs, OfPseudoHeadsCountPseudoTokens) {
  ViewedLayer layer{.name = "l", .pseudo_heads = 3, .heads = {{.text = "causal", .pattern = causal()}}};
  add_costs(layer, {.tokens = 4, .head_dim = 8, .pseudo_heads = 3}, 1);
  EXPECT_EQ(layer.cost.own.pairs, 12 * 13 / 2);  // flat order: causal over 12 pseudo-tokens
}

}  // namespace
}  // namespace iha::report
