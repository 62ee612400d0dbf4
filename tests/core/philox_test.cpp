#include "iha/core/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <stdexcept>
#include <vector>

namespace iha {
namespace {

// The known answers that come with Random123 for philox4x32-10: zeros, ones, digits of pi.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, 0), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffffu),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822u),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Dropout, ThresholdIsInUnitsOfWords) {
  EXPECT_EQ(dropout_threshold(0), 0u);
  EXPECT_EQ(dropout_threshold(0.5), uint64_t{1} << 31);
  EXPECT_EQ(dropout_threshold(1), uint64_t{1} << 32);
  EXPECT_EQ(dropout_threshold(0.1), 429496730u);  // 429496729.6
}

TEST(Dropout, ReadsTheWordOfItsDefinition) {
  const uint64_t seed = 0x0123456789abcdefu;
  for (int64_t column = 0; column < 9; ++column) {
    const uint32_t word = philox4x32_10({static_cast<uint32_t>(column / 4), 17, 5, 0}, seed)[column % 4];
    EXPECT_TRUE(dropout_keeps(word, seed, 5, 17, column));
    EXPECT_FALSE(dropout_keeps(uint64_t{word} + 1, seed, 5, 17, column));
  }
}

// Shares of kept weights over 2^16 places: four standard deviations, 4 sqrt(p (1 - p) / 2^16) <= 0.0079. The
// seeds are fixed, so this either always passes or never does.
TEST(Dropout, KeepsItsShareInEveryRowHeadAndSeed) {
  for (const double p : {0.1, 0.48, 0.8}) {
    for (const uint64_t seed : {0u, 1u, 77u}) {
      int kept = 0, agree = 0;
      for (int64_t row = 0; row < 256; ++row) {
        for (int64_t column = 0; column < 256; ++column) {
          const bool here = dropout_keeps(dropout_threshold(p), seed, 3, row, column);
          kept += here;
          agree += here == dropout_keeps(dropout_threshold(p), seed, 4, row, column);
        }
      }
      const double bound = 4 * std::sqrt(p * (1 - p) / 65536);
      EXPECT_NEAR(kept / 65536.0, 1 - p, bound) << seed;
      const double same = p * p + (1 - p) * (1 - p);  // two independent masks
      EXPECT_NEAR(agree / 65536.0, same, 4 * std::sqrt(same * (1 - same) / 65536)) << seed;
    }
  }
}

TEST(Dropout, EndsMean) {
  for (int64_t column = 0; column < 1000; ++column) {
    EXPECT_TRUE(dropout_keeps(dropout_threshold(0), 1, 0, 0, column));
    EXPECT_FALSE(dropout_keeps(dropout_threshold(1), 1, 0, 0, column));
  }
}

TEST(PhiloxStream, RepeatsItselfAndNoOther) {
  PhiloxStream first(5, 1), again(5, 1), other_stream(5, 2), other_seed(6, 1);
  std::set<uint32_t> words;
  for (int at = 0; at < 100; ++at) {
    const uint32_t word = first.next_word();
    EXPECT_EQ(word, again.next_word());
    words.insert({word, other_stream.next_word(), other_seed.next_word()});
  }
  EXPECT_EQ(words.size(), 300u);  // all different: a collision has a chance of 1e-5
}

TEST(PhiloxStream, DoublesAreUniform) {
  constexpr int kCount = 200000;
  PhiloxStream stream(3);
  double sum = 0, squares = 0, smallest = 1, largest = 0;
  for (int at = 0; at < kCount; ++at) {
    const double number = stream.next_double();
    sum += number;
    squares += number * number;
    smallest = std::min(smallest, number);
    largest = std::max(largest, number);
  }
  EXPECT_GE(smallest, 0);
  EXPECT_LT(largest, 1);
  EXPECT_LT(smallest, 1e-4);
  EXPECT_GT(largest, 1 - 1e-4);
  EXPECT_NEAR(sum / kCount, 0.5, 4 * std::sqrt(1.0 / 12 / kCount));
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 4 * std::sqrt(4.0 / 45 / kCount));
}

// Chi squared over the residues: mean k - 1, variance 2 (k - 1).
TEST(PhiloxStream, BoundedNumbersAreUnbiased) {
  constexpr int kCount = 100000;
  for (const int64_t bound : {1, 2, 3, 7, 100}) {
    PhiloxStream stream(9, static_cast<uint32_t>(bound));
    std::vector<int> counts(bound);
    for (int at = 0; at < kCount; ++at) {
      const int64_t number = stream.next_below(bound);
      ASSERT_TRUE(0 <= number && number < bound);
      ++counts[number];
    }
    double chi_squared = 0;
    const double expected = static_cast<double>(kCount) / static_cast<double>(bound);
    for (const int count : counts) chi_squared += (count - expected) * (count - expected) / expected;
    const auto freedom = static_cast<double>(bound - 1);
    EXPECT_LE(chi_squared, freedom + 4 * std::sqrt(2 * freedom)) << bound;
  }
}

// 2^64 mod (3 * 2^61) = 2^62: plain `mod` would give the numbers below 2^62 three times where it gives the
// others twice, a share of 3/4 below two thirds of the bound instead of 2/3.
TEST(PhiloxStream, LargeBoundsAreUnbiasedToo) {
  constexpr int kCount = 40000;
  const int64_t bound = 3 * (int64_t{1} << 61);
  PhiloxStream stream(4);
  int low = 0;
  for (int at = 0; at < kCount; ++at) low += stream.next_below(bound) < bound / 3 * 2;
  EXPECT_NEAR(static_cast<double>(low) / kCount, 2.0 / 3, 4 * std::sqrt(2.0 / 9 / kCount));
}

TEST(PhiloxStream, RefusesEmptyRanges) {
  PhiloxStream stream(1);
  EXPECT_THROW(stream.next_below(0), std::invalid_argument);
  EXPECT_THROW(stream.next_below(-1), std::invalid_argument);
}

// Moments 1 to 4 of the standard normal are 0, 1, 0, 3; their variances 1, 2, 15, 96 over the count.
TEST(PhiloxStream, NormalsHaveTheirMoments) {
  constexpr int kCount = 200000;
  PhiloxStream stream(8);
  double moments[4] = {}, neighbours = 0, before = 0;
  for (int at = 0; at < kCount; ++at) {
    const double number = stream.next_normal();
    ASSERT_TRUE(std::isfinite(number));
    for (int power = 0; power < 4; ++power) moments[power] += std::pow(number, power + 1) / kCount;
    neighbours += number * before / kCount;
    before = number;
  }
  const double expected[4] = {0, 1, 0, 3}, variance[4] = {1, 2, 15, 96};
  for (int power = 0; power < 4; ++power) {
    EXPECT_NEAR(moments[power], expected[power], 4 * std::sqrt(variance[power] / kCount)) << power + 1;
  }
  EXPECT_NEAR(neighbours, 0, 4 / std::sqrt(kCount));  // the two halves of Box-Muller are independent
}

}  // namespace
}  // namespace iha
