// Planted modes: tags from their definition, marks once where they must be, batches by number.
#include "iha/tasks/planted_modes.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

namespace iha::tasks {
namespace {

TEST(PlantedModes, TagsFollowFromTheSymbolsAtTheNeededPlaces) {
  const PlantedModesOptions options{.tokens = 43, .step = 8, .seed = 2};  // classes of 6 and of 5 tokens
  const PlantedBatch batch = planted_batch(options, Split::kTrain, 5, 20);
  const auto symbols = batch.symbols.accessor<int64_t, 2>();
  const auto tags = batch.tags.accessor<float, 3>();
  for (int64_t s = 0; s < 20; ++s) {
    const auto bit = [&](int64_t n) { return symbols[s][n] % 2; };
    const auto mark_b = [&](int64_t n) { return symbols[s][n] / 2 % 3; };
    const auto mark_c = [&](int64_t n) { return symbols[s][n] / 6; };
    for (int64_t n = 0; n < 43; ++n) {
      ASSERT_TRUE(symbols[s][n] >= 0 && symbols[s][n] < kPlantedSymbols);
      EXPECT_EQ(tags[s][n][0], bit(n > 0 ? n - 1 : 0));
      int64_t marks_b = 0, marks_c = 0, ones = 0;
      for (int64_t j = 0; j < 43; ++j) {
        if ((n - j) % 8 == 0 && mark_b(j) > 0) {
          ++marks_b;
          EXPECT_EQ(tags[s][n][1], mark_b(j) - 1);
        }
        if (mark_c(j) > 0) {
          ++marks_c;
          ones += mark_c(j) - 1;
        }
      }
      EXPECT_EQ(marks_b, 1);
      EXPECT_EQ(marks_c, kGlobalMarks);
      EXPECT_EQ(tags[s][n][2], 2 * ones > kGlobalMarks);
    }
  }
  EXPECT_NEAR(batch.tags.mean().item<double>(), 0.5, 0.1);
}

TEST(PlantedModes, NumberSplitAndSeedDecideABatch) {
  const PlantedModesOptions options{.tokens = 16}, other_seed{.tokens = 16, .seed = 1};
  const auto symbols = [](const PlantedModesOptions& o, Split split, int64_t number) {
    return planted_batch(o, split, number, 3).symbols;
  };
  const auto batch = symbols(options, Split::kTrain, 4);
  EXPECT_TRUE(batch.equal(symbols(options, Split::kTrain, 4)));
  EXPECT_FALSE(batch.equal(symbols(options, Split::kTrain, 5)));
  EXPECT_FALSE(batch.equal(symbols(options, Split::kValidation, 4)));
  EXPECT_FALSE(symbols(options, Split::kTest, 4).equal(symbols(options, Split::kValidation, 4)));
  EXPECT_FALSE(batch.equal(symbols(other_seed, Split::kTrain, 4)));
}

TEST(PlantedModes, RefusesTooFewTokens) {
  EXPECT_THROW(planted_batch({.tokens = 11, .step = 12}, Split::kTrain, 0, 1), std::invalid_argument);
  EXPECT_THROW(planted_batch({.tokens = 8, .step = 4}, Split::kTrain, 0, 1), std::invalid_argument);
  EXPECT_THROW(planted_batch({.tokens = 9, .step = 0}, Split::kTrain, 0, 1), std::invalid_argument);
  EXPECT_THROW(planted_batch({.tokens = 9, .step = 8}, Split::kTrain, 0, 0), std::invalid_argument);
  EXPECT_NO_THROW(planted_batch({.tokens = 9, .step = 8}, Split::kTrain, 0, 1));
}

}  // namespace
}  // namespace iha::tasks
