#include "iha/models/variants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "iha/models/loss.h"

namespace iha::models {
namespace {

TEST(Variants, HaveTheNamesOfTheTable) {
  std::vector<std::string> names;
  for (const CompositionVariant& variant : composition_variants()) {
    names.push_back(variant.name);
    EXPECT_EQ(composition_variant(variant.name).config, variant.config);
  }
  EXPECT_THAT(names, testing::ElementsAre("plain", "plain_8", "plain_8_free", "plain_residual_norm",
                                          "plain_equal_compute", "mixed", "averaged", "interleaved"));
  EXPECT_THROW(composition_variant("plain_9"), c10::ValueError);
}

TEST(Variants, HaveTheParametersOfAHandCount) {
  // Embeddings of 2 values, 5 rows and 5 columns; four maps of 64 x 64; the read-out with its bias.
  const int64_t plain = (2 + 5 + 5) * 64 + 4 * 64 * 64 + 65;
  const int64_t equal_heads = 14;
  const std::map<std::string, int64_t> expected = {
      {"plain", plain},
      {"plain_8", plain},
      {"plain_8_free", plain + 25 * 64},
      {"plain_residual_norm", plain + 2 * 2 * 64},
      {"plain_equal_compute", plain + 4 * 64 * 16 * (equal_heads - 4)},
      {"mixed", plain + 3 * 4 * 4},
      {"averaged", plain + 3 * 4 * 4 * 4},
      {"interleaved", plain + 4 * 4 * 4 * 4}};
  for (const CompositionVariant& variant : composition_variants()) {
    EXPECT_EQ(parameter_count(*TokenTagger(variant.config)), expected.at(variant.name)) << variant.name;
  }
}

TEST(Variants, EqualComputeIsWithinOneHeadOfInterleaved) {
  for (const auto& scale : {CompositionScale{}, {10, 64, 4, 4}, {8, 32, 2, 8}, {5, 64, 4, 1}}) {
    const int64_t tokens = scale.max_side * scale.max_side;
    TokenTaggerConfig plain = composition_variant("plain_equal_compute", scale).config;
    const int64_t budget =
        TokenTagger(composition_variant("interleaved", scale).config)->flops(tokens).total();
    EXPECT_LE(TokenTagger(plain)->flops(tokens).total(), budget);
    ++plain.layers[0].heads;
    EXPECT_GT(TokenTagger(plain)->flops(tokens).total(), budget);
  }
}

TEST(Variants, AllOfThemRunAndLearn) {
  torch::manual_seed(0);
  GridTokens input;
  input.values = torch::randint(0, 2, {3, 25}, torch::kInt64);
  input.rows = (torch::arange(25, torch::kInt64).div(5, "floor")).expand({3, 25});
  input.columns = torch::arange(25, torch::kInt64).remainder(5).expand({3, 25});
  for (const CompositionVariant& variant : composition_variants()) {
    TokenTagger tagger(variant.config);
    tag_loss(tagger->forward(input), input.values, {}).sum.backward();
    for (const auto& parameter : tagger->named_parameters()) {
      ASSERT_TRUE(parameter.value().grad().defined()) << variant.name << " " << parameter.key();
      EXPECT_GT(parameter.value().grad().abs().sum().item<float>(), 0)
          << variant.name << " " << parameter.key();
    }
  }
}

}  // namespace
}  // namespace iha::models
