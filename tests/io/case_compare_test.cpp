// The rule of when a result is off, at its edges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "iha/io/case_file.h"

namespace iha::io {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Arrays arrays(const std::string& name, const std::vector<double>& values) {
  return {{name, {{static_cast<int64_t>(values.size())}, values}}};
}

// The single result for tensor `name`.
Comparison compare_values(const std::string& name, const std::vector<double>& expected,
                          const std::vector<double>& actual, DType dtype = DType::kFloat32) {
  return compare(arrays(name, expected), arrays(name, actual), dtype).at(0);
}

// Passes just inside of `allowed` and fails just outside, above and below.
void expect_allowed(const std::string& name, const std::vector<double>& expected, double allowed,
                    DType dtype = DType::kFloat32) {
  for (const double sign : {-1.0, 1.0}) {
    std::vector<double> actual = expected;
    actual[0] = expected[0] + sign * 0.999 * allowed;
    const Comparison inside = compare_values(name, expected, actual, dtype);
    EXPECT_TRUE(inside.pass) << name << " " << sign;
    EXPECT_NEAR(inside.error, 0.999, 1e-6);
    EXPECT_NEAR(inside.absolute_error, 0.999 * allowed, 1e-6 * allowed);
    EXPECT_EQ(inside.fault, "");
    actual[0] = expected[0] + sign * 1.001 * allowed;
    EXPECT_FALSE(compare_values(name, expected, actual, dtype).pass) << name << " " << sign;
  }
}

TEST(Compare, Float32Outputs) {
  for (const std::string name : {"out", "lse", "parts"}) {
    expect_allowed(name, {-3, 100}, 2e-5 + 2e-4 * 3);
    expect_allowed(name, {0, 100}, 2e-5);
    expect_allowed(name, {0, 0}, 2e-5);
  }
}

TEST(Compare, Float32GradientsScaleWithTheLargest) {
  expect_allowed("grad_q", {-3, 100}, 2e-5 * 100 + 2e-4 * 3);
  expect_allowed("grad_q", {0, 1e-6}, 2e-5 * 1e-6);
  expect_allowed("grad_W_k.bias", {2, 1}, 2e-5 * 2 + 2e-4 * 2);
}

TEST(Compare, Bfloat16ScalesWithTheLargest) {
  for (const std::string name : {"out", "lse", "grad_q"})
    expect_allowed(name, {-3, 100}, 2, DType::kBFloat16);
  expect_allowed("lse", {-3, -kInfinity, 100}, 2, DType::kBFloat16);
}

TEST(Compare, WhereEverythingIsZero) {
  expect_allowed("grad_q", {0, 0}, 2e-5);
  expect_allowed("grad_q", {0, 0}, 2e-5, DType::kBFloat16);
  expect_allowed("out", {0, 0}, 2e-5, DType::kBFloat16);
}

TEST(Compare, AGradientThatIsZeroButForRoundingTakesTheLargestOfTheCase) {
  Arrays expected = arrays("grad_W_k.bias", {1e-17, -1e-11});
  expected["grad_x"] = {{1}, {-50}};
  expected["out"] = {{1}, {7000}};  // not a gradient
  for (const auto& [dtype, allowed] :
       {std::pair{DType::kFloat32, 2e-5 * 50}, std::pair{DType::kBFloat16, 2e-2 * 50}}) {
    Arrays actual = expected;
    actual["grad_W_k.bias"].values[0] = 0.999 * allowed;
    EXPECT_TRUE(compare(expected, actual, dtype)[0].pass);
    actual["grad_W_k.bias"].values[0] = 1.001 * allowed;
    EXPECT_FALSE(compare(expected, actual, dtype)[0].pass);
  }
  // At 1e-10 the tensor stands for itself.
  expected["grad_W_k.bias"].values[1] = 1e-10;
  Arrays actual = expected;
  actual["grad_W_k.bias"].values[0] = 1e-8;
  EXPECT_FALSE(compare(expected, actual, DType::kFloat32)[0].pass);
}

TEST(Compare, InfinitiesMeetAndNanIsOff) {
  EXPECT_TRUE(compare_values("lse", {-kInfinity, 1}, {-kInfinity, 1}).pass);
  const double nan = std::nan("");
  for (const auto& [expected, actual] : std::vector<std::pair<double, double>>{{-kInfinity, -1e300},
                                                                               {-kInfinity, kInfinity},
                                                                               {1, -kInfinity},
                                                                               {1, kInfinity},
                                                                               {1, nan},
                                                                               {-kInfinity, nan},
                                                                               {nan, nan},
                                                                               {nan, 1}}) {
    const Comparison result = compare_values("lse", {0, expected}, {0, actual});
    EXPECT_FALSE(result.pass) << expected << " " << actual;
    EXPECT_EQ(result.error, kInfinity);
    EXPECT_THAT(result.fault, testing::StartsWith("lse[1]: "));
  }
}

TEST(Compare, EachExpectationIsAskedFor) {
  const Arrays expected{{"lse", {{1}, {1}}}, {"out", {{2, 1}, {1, 2}}}, {"parts", {{1}, {3}}}};
  const Arrays actual{{"more", {{1}, {5}}}, {"out", {{1, 2}, {1, 2}}}, {"parts", {{1}, {3}}}};
  const std::vector<Comparison> results = compare(expected, actual, DType::kFloat32);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].fault, "lse: not computed");
  EXPECT_EQ(results[1].fault, "out: another shape than expected");
  EXPECT_FALSE(results[0].pass);
  EXPECT_FALSE(results[1].pass);
  EXPECT_TRUE(results[2].pass);
}

TEST(Compare, TheFaultNamesTheWorstElement) {
  Arrays expected{{"out", {{2, 2, 2}, {1, 1, 1, 1, 1, 1, 1, 1}}}};
  Arrays actual = expected;
  actual["out"].values[3] = 1.1;
  actual["out"].values[5] = 2;
  const Comparison result = compare(expected, actual, DType::kFloat32).at(0);
  EXPECT_EQ(result.fault, "out[1, 0, 1]: 2, expected 1");
  EXPECT_EQ(result.absolute_error, 1);
}

TEST(Compare, NothingIsNeverOff) {
  EXPECT_TRUE(compare_values("out", {}, {}).pass);
}

}  // namespace
}  // namespace iha::io
