#include "iha/core/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace iha {
namespace {

TEST(Rope, FrequenciesFollowTheta) {
  const std::vector<double> frequencies =
      rope_frequencies({RopeKind::kToken, 10000.0, {}, RopeStyle::kHalf}, 8);
  ASSERT_EQ(frequencies.size(), 4u);
  EXPECT_EQ(frequencies[0], 1);
  EXPECT_NEAR(frequencies[1], 0.1, 1e-16);
  EXPECT_NEAR(frequencies[2], 0.01, 1e-17);
  EXPECT_NEAR(frequencies[3], 0.001, 1e-18);
  EXPECT_EQ(rope_frequencies({RopeKind::kToken, 10000.0, {3, 2}, RopeStyle::kHalf}, 8),
            (std::vector<double>{3, 2}));
}

TEST(Rope, StylesPairTheirChannels) {
  EXPECT_EQ(rope_channels(RopeStyle::kHalf, 1, 3), (std::pair<int64_t, int64_t>{1, 4}));
  EXPECT_EQ(rope_channels(RopeStyle::kAdjacent, 1, 3), (std::pair<int64_t, int64_t>{2, 3}));
}

TEST(Rope, PositionsOfPseudoTokens) {
  EXPECT_EQ(rope_position(RopeKind::kToken, 5, 2, 3), 5);
  EXPECT_EQ(rope_position(RopeKind::kVirtual, 5, 2, 3), 17);
  EXPECT_EQ(rope_position(RopeKind::kVirtual, -5, 2, 3), -13);
}

// (a cos u - b sin u, a sin u + b cos u), the channels beyond the pairs untouched.
TEST(Rope, TurnsPairsByTheirAngle) {
  const std::vector<double> frequencies = {0.5, 0.25};
  double half[5] = {1, 2, 3, 4, 5};
  rotate(half, frequencies, RopeStyle::kHalf, 3);
  EXPECT_DOUBLE_EQ(half[0], 1 * std::cos(1.5) - 3 * std::sin(1.5));
  EXPECT_DOUBLE_EQ(half[2], 1 * std::sin(1.5) + 3 * std::cos(1.5));
  EXPECT_DOUBLE_EQ(half[1], 2 * std::cos(0.75) - 4 * std::sin(0.75));
  EXPECT_DOUBLE_EQ(half[3], 2 * std::sin(0.75) + 4 * std::cos(0.75));
  EXPECT_EQ(half[4], 5);
  double adjacent[4] = {1, 2, 3, 4};
  rotate(adjacent, frequencies, RopeStyle::kAdjacent, -3);
  EXPECT_DOUBLE_EQ(adjacent[0], 1 * std::cos(1.5) + 2 * std::sin(1.5));
  EXPECT_DOUBLE_EQ(adjacent[1], -1 * std::sin(1.5) + 2 * std::cos(1.5));
}

TEST(Rope, TurnsBack) {
  double row[4] = {1, -2, 0.5, 4};
  const std::vector<double> frequencies = {1, 0.01};
  rotate(row, frequencies, RopeStyle::kHalf, 70001);
  rotate(row, frequencies, RopeStyle::kHalf, 70001, -1);
  EXPECT_NEAR(row[0], 1, 1e-15);
  EXPECT_NEAR(row[1], -2, 1e-15);
  EXPECT_NEAR(row[2], 0.5, 1e-15);
  EXPECT_NEAR(row[3], 4, 2e-15);
}

// Angles formed in 16 bits give 256 and 257 the same place, in 32 bits 2^24 and 2^24 + 1.
TEST(Rope, TellsFarPositionsApart) {
  for (const int64_t position : {int64_t{256}, int64_t{1} << 24, int64_t{1} << 40}) {
    double here[2] = {1, 0}, next[2] = {1, 0};
    rotate(here, {1.0}, RopeStyle::kHalf, position);
    rotate(next, {1.0}, RopeStyle::kHalf, position + 1);
    EXPECT_NEAR(here[0] * next[0] + here[1] * next[1], std::cos(1.0), 1e-14) << position;
  }
}

}  // namespace
}  // namespace iha
