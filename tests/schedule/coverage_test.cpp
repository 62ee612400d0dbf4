#include "iha/schedule/coverage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/patterns/all_patterns.h"

namespace iha {
namespace {

TEST(Coverage, SharesAreVisiblePairsOfTheCell) {
  for (const Pattern& pattern : testing::all_patterns()) {
    for (const int64_t tokens : {1, 7, 8, 9, 23}) {
      for (const int64_t cells : {1, 4, 8, 40}) {
        const Coverage found = coverage(pattern, tokens, cells);
        ASSERT_LE(found.side, cells);
        ASSERT_EQ(found.share.size(), static_cast<std::size_t>(found.side * found.side));
        ASSERT_TRUE((found.side - 1) * found.block < tokens && tokens <= found.side * found.block);
        std::vector<double> pairs(found.share.size()), all(found.share.size());
        for (int64_t i = 0; i < tokens; ++i) {
          for (int64_t j = 0; j < tokens; ++j) {
            const int64_t cell = i / found.block * found.side + j / found.block;
            pairs[cell] += visible(pattern, i, j) ? 1 : 0;
            all[cell] += 1;
          }
        }
        for (std::size_t cell = 0; cell < pairs.size(); ++cell) {
          ASSERT_EQ(found.share[cell], pairs[cell] / all[cell]) << tokens << " tokens, cell " << cell;
        }
      }
    }
  }
}

TEST(Coverage, OfNothingIsEmptyAndOfNonsenseRefused) {
  EXPECT_EQ(coverage(causal(), 0, 8).side, 0);
  EXPECT_THROW(coverage(causal(), -1, 8), std::invalid_argument);
  EXPECT_THROW(coverage(causal(), 8, 0), std::invalid_argument);
}

}  // namespace
}  // namespace iha
