#include "iha/tasks/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "iha/core/philox.h"

namespace iha::tasks {
namespace {

TEST(ShuffledIndices, EveryEpochIsANewPermutation) {
  for (const int64_t count : {1, 2, 7, 100}) {
    ShuffledIndices indices(count, 5);
    const auto first = indices.next(count), second = indices.next(count);
    for (auto epoch : {first, second}) {
      std::ranges::sort(epoch);
      std::vector<int64_t> all(count);
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(epoch, all);
    }
    if (count == 100) {
      EXPECT_NE(first, second);
      EXPECT_NE(first, ShuffledIndices(count, 6).next(count));
    }
  }
}

TEST(ShuffledIndices, EveryOrderIsEquallyLikely) {
  std::map<std::vector<int64_t>, int> orders;
  ShuffledIndices indices(3, 1);
  for (int epoch = 0; epoch < 6000; ++epoch) ++orders[indices.next(3)];
  ASSERT_EQ(orders.size(), 6u);
  // Five standard deviations of 6000 draws of probability 1/6.
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, 1000, 5 * std::sqrt(6000 / 6.0 * 5 / 6));
}

template <class Stream>
void expect_resumes(Stream stream, const Stream& fresh) {
  stream.next(13);
  const int64_t position = stream.position();
  EXPECT_EQ(position, 13);
  const auto expected = stream.next(25);
  for (const auto& chunks : {std::vector<int64_t>{25}, {10, 15}, {1, 0, 24}}) {
    Stream resumed = fresh;
    resumed.seek(position);
    std::vector<int64_t> found;
    for (const int64_t chunk : chunks) {
      const auto part = resumed.next(chunk);
      found.insert(found.end(), part.begin(), part.end());
    }
    EXPECT_EQ(found, expected);
  }
  EXPECT_THROW(stream.seek(-1), std::invalid_argument);
}

TEST(ShuffledIndices, ResumesFromItsPosition) {
  expect_resumes(ShuffledIndices(10, 3), ShuffledIndices(10, 3));  // over two ends of epochs
  EXPECT_THROW(ShuffledIndices(0, 3), std::invalid_argument);
}

TEST(RandomStarts, ResumesFromItsPosition) {
  expect_resumes(RandomStarts(1000, 3), RandomStarts(1000, 3));
  EXPECT_THROW(RandomStarts(0, 3), std::invalid_argument);
}

TEST(RandomStarts, IsTheFormula) {
  RandomStarts starts(1'000'003, 9);
  const auto found = starts.next(50);
  for (uint32_t n = 0; n < 50; ++n) {
    const auto words = philox4x32_10({n, 0, 0, 2}, 9);
    const long double fraction = (words[0] * 4294967296.0L + words[1]) / 18446744073709551616.0L;
    EXPECT_EQ(found[n], static_cast<int64_t>(fraction * 1'000'003));
  }
}

TEST(RandomStarts, CoversItsRange) {
  const int64_t bound = 5;
  std::vector<int> counts(bound);
  for (const int64_t start : RandomStarts(bound, 1).next(5000)) ++counts.at(start);
  for (const int count : counts) EXPECT_NEAR(count, 1000, 5 * std::sqrt(5000 * 0.2 * 0.8));
  EXPECT_EQ(RandomStarts(1, 1).next(3), (std::vector<int64_t>{0, 0, 0}));
}

}  // namespace
}  // namespace iha::tasks
