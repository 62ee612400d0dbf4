#include "iha/report/axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace iha::report {
namespace {

using testing::ElementsAre;

TEST(Axis, TicksAreRound) {
  EXPECT_THAT(make_axis(0, 2000, false, 7).ticks, ElementsAre(0, 500, 1000, 1500, 2000));
  EXPECT_THAT(make_axis(0, 10, false, 5).ticks, ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(make_axis(-1.2, 1.2, false, 4).ticks, ElementsAre(-1, 0, 1));
  EXPECT_THAT(make_axis(1, 1000, true, 5).ticks, ElementsAre(1, 10, 100, 1000));
  EXPECT_THAT(make_axis(1.5, 30, true, 5).ticks, ElementsAre(2, 5, 10, 20));
}

TEST(Axis, AnyRangeHasTicksWithinIt) {
  for (double low = 1e-9; low < 1e9; low *= 7.3) {
    for (double ratio = 1.0001; ratio < 1e12; ratio *= 5.7) {
      for (const bool logarithmic : {false, true}) {
        const Axis axis = make_axis(low, low * ratio, logarithmic, 5);
        ASSERT_LE(axis.ticks.size(), 12u) << low << " " << ratio << " " << logarithmic;
        if (!logarithmic || ratio > 2.6) {
          ASSERT_GE(axis.ticks.size(), 1u) << low << " " << ratio << " " << logarithmic;
        }
        for (const double tick : axis.ticks) {
          ASSERT_GE(axis.position(tick), -1e-6);
          ASSERT_LE(axis.position(tick), 1 + 1e-6);
        }
      }
    }
  }
}

TEST(Axis, ARangeOfOneValueIsWidened) {
  for (const double value : {0.0, 3.0, -5.0}) {
    const Axis axis = make_axis(value, value, false, 5);
    EXPECT_NEAR(axis.position(value), 0.5, 1e-12);
  }
  EXPECT_NEAR(make_axis(3, 3, true, 5).position(3), 0.5, 1e-12);
}

TEST(Axis, LabelsHaveTheSameDecimals) {
  EXPECT_THAT(make_axis(0.9, 1, false, 5).labels,
              ElementsAre("0.90", "0.92", "0.94", "0.96", "0.98", "1.00"));
  EXPECT_THAT(make_axis(0, 4, false, 5).labels, ElementsAre("0", "1", "2", "3", "4"));
  EXPECT_THAT(make_axis(-0.5, 0.5, false, 2).labels, ElementsAre("-0.5", "0.0", "0.5"));
  EXPECT_THAT(make_axis(0, 2000, false, 4).labels, ElementsAre("0", "500", "1,000", "1,500", "2,000"));
  EXPECT_THAT(make_axis(0.01, 1, true, 3).labels, ElementsAre("0.01", "0.1", "1"));
}

TEST(Axis, TickTexts) {
  EXPECT_EQ(tick_text(0), "0");
  EXPECT_EQ(tick_text(0.30000000000000004), "0.3");
  EXPECT_EQ(tick_text(1500), "1,500");
  EXPECT_EQ(tick_text(2.5e6), "2.5 M");
}

}  // namespace
}  // namespace iha::report
