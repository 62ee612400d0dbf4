// Needles: one a key, out of every window's reach, asked for once each; batches by number.
#include "iha/tasks/needle.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <vector>

#include "iha/models/loss.h"

namespace iha::tasks {
namespace {

TEST(Needle, EveryQuestionHasOneNeedleOutOfReach) {
  const NeedleOptions options{
      .tokens = 69, .keys = 3, .values = 5, .filler = 4, .length = 2, .questions = 6, .distance = 50};
  std::set<int64_t> begins, asked;
  for (int64_t number = 0; number < 20; ++number) {
    const NeedleBatch batch = needle_batch(options, Split::kTrain, number, 4);
    const auto symbols = batch.symbols.accessor<int64_t, 2>(), values = batch.values.accessor<int64_t, 2>();
    for (int64_t s = 0; s < 4; ++s) {
      for (int64_t n = 0; n < 69; ++n) {
        const bool question = n >= 63;
        EXPECT_EQ(values[s][n] == models::kIgnore, !question);
        EXPECT_EQ(symbols[s][n] >= 4 + 3 * 5, question);
        ASSERT_LT(symbols[s][n], options.symbols());
        if (!question) continue;
        const int64_t key = symbols[s][n] - 4 - 3 * 5;
        asked.insert(key);
        std::vector<int64_t> places;
        for (int64_t j = 0; j < 63; ++j) {
          if (symbols[s][j] < 4 || (symbols[s][j] - 4) / 5 != key) continue;
          places.push_back(j);
          EXPECT_EQ((symbols[s][j] - 4) % 5, values[s][n]);
          EXPECT_GE(63 - j, 50);
        }
        ASSERT_EQ(places.size(), 2u);
        EXPECT_EQ(places[1], places[0] + 1);
        EXPECT_EQ(places[0] % 2, 0);
        begins.insert(places[0]);
      }
    }
  }
  EXPECT_EQ(begins.size(), 7u);  // 0, 2, .. 12: all that are far enough
  EXPECT_EQ(asked.size(), 3u);
}

TEST(Needle, NumberAndSplitDecideABatch) {
  const NeedleOptions options{.tokens = 200, .distance = 20};
  const auto batch = needle_batch(options, Split::kTrain, 4, 2).symbols;
  EXPECT_TRUE(batch.equal(needle_batch(options, Split::kTrain, 4, 2).symbols));
  EXPECT_FALSE(batch.equal(needle_batch(options, Split::kTrain, 3, 2).symbols));
  EXPECT_FALSE(batch.equal(needle_batch(options, Split::kTest, 4, 2).symbols));
}

TEST(Needle, RefusesWhatDoesNotFit) {
  const NeedleOptions fits{.tokens = 67, .keys = 4, .length = 2, .questions = 10, .distance = 50};
  EXPECT_NO_THROW(needle_batch(fits, Split::kTrain, 0, 1));
  for (const NeedleOptions& options :
       {NeedleOptions{.tokens = 66, .keys = 4, .length = 2, .questions = 10, .distance = 50},
        NeedleOptions{.length = 0}, NeedleOptions{.questions = 0}, NeedleOptions{.keys = 0},
        NeedleOptions{.values = 0}, NeedleOptions{.filler = 0}, NeedleOptions{.distance = 0}}) {
    EXPECT_THROW(needle_batch(options, Split::kTrain, 0, 1), std::invalid_argument);
  }
}

}  // namespace
}  // namespace iha::tasks
