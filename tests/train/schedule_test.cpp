#include "iha/train/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace iha::train {
namespace {

TEST(RateAt, ClimbsInEqualStepsToThePeak) {
  const RateSchedule schedule{.peak = 0.4, .steps = 100, .warmup = 4};
  EXPECT_DOUBLE_EQ(rate_at(schedule, 0), 0.1);
  EXPECT_DOUBLE_EQ(rate_at(schedule, 1), 0.2);
  EXPECT_DOUBLE_EQ(rate_at(schedule, 3), 0.4);
  EXPECT_DOUBLE_EQ(rate_at(schedule, 4), 0.4);
}

TEST(RateAt, FollowsHalfACosineToTheFloor) {
  const RateSchedule schedule{.peak = 1.0, .steps = 110, .warmup = 10, .floor = 0.2};
  EXPECT_NEAR(rate_at(schedule, 60), 0.6, 1e-15);  // half way: the middle of 1 and 0.2
  EXPECT_NEAR(rate_at(schedule, 35), 0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2, 1e-15);
  EXPECT_NEAR(rate_at(schedule, 110), 0.2, 1e-15);
  EXPECT_NEAR(rate_at(schedule, 1000), 0.2, 1e-15);  // past the end it stays
}

TEST(RateAt, NeverRisesAfterTheWarmUp) {
  const RateSchedule schedule{.peak = 0.01, .steps = 57, .warmup = 5};
  for (int64_t step = 5; step < 60; ++step) EXPECT_LE(rate_at(schedule, step + 1), rate_at(schedule, step));
}

TEST(RateAt, TakesNoWarmUpAndAWarmUpAsLongAsTheRun) {
  EXPECT_DOUBLE_EQ(rate_at({.peak = 2.0, .steps = 10, .warmup = 0}, 0), 2.0);
  EXPECT_DOUBLE_EQ(rate_at({.peak = 2.0, .steps = 10, .warmup = 10}, 9), 2.0);
  EXPECT_DOUBLE_EQ(rate_at({.peak = 2.0, .steps = 10, .warmup = 100}, 9), 0.2);
  EXPECT_DOUBLE_EQ(rate_at({.peak = 2.0, .steps = 1, .warmup = 0}, 0), 2.0);
}

TEST(CheckSchedule, NamesWhatIsWrong) {
  const auto message = [](const RateSchedule& schedule) {
    try {
      check(schedule);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message({}), "");
  EXPECT_THAT(message({.peak = 0}), testing::HasSubstr("learning rate of 0"));
  EXPECT_THAT(message({.peak = std::nan("")}), testing::HasSubstr("learning rate of nan"));
  EXPECT_THAT(message({.steps = -1}), testing::HasSubstr("-1 steps"));
  EXPECT_THAT(message({.warmup = -2}), testing::HasSubstr("-2 warm-up steps"));
  EXPECT_THAT(message({.floor = 1.5}), testing::HasSubstr("1.5"));
}

}  // namespace
}  // namespace iha::train
