// The oracle's learned and dynamic heads against their formula written out, and what weights may be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "iha/patterns/parse.h"
#include "tests/kernels/calls.h"

namespace iha {
namespace {

using testing::Call;
using ::testing::HasSubstr;
using testing::make_problem;

constexpr double kInf = std::numeric_limits<double>::infinity();

// Two heads, one sequence, P = 1, a channel each: small enough to write the sums out.
Call small_call(const char* patterns, int64_t tokens) {
  Problem problem =
      make_problem({.query_heads = 2, .queries = tokens, .keys = tokens}, parse_patterns(patterns).expand(2));
  return Call(problem, testing::kNothing, 3);
}

// sum_j w exp(s) v / sum_j w exp(s) and log of the denominator; `weight(i, j)` of head h.
template <class Weight>
void expect_weighted(const Call& call, int64_t h, const Weight& weight) {
  const int64_t tokens = call.problem.keys;
  const reference::Outputs found = call.forward();
  for (int64_t i = 0; i < tokens; ++i) {
    double sum = 0, weighted = 0;
    for (int64_t j = 0; j < tokens; ++j) {
      if (weight(i, j) == 0) continue;
      const double term = weight(i, j) * std::exp(call.query[h * tokens + i] * call.key[j]);
      sum += term;
      weighted += term * call.value[j];
    }
    EXPECT_NEAR(found.out[h * tokens + i], sum == 0 ? 0 : weighted / sum, 1e-14)
        << "head " << h << " row " << i;
    if (sum == 0) {
      EXPECT_EQ(found.lse[h * tokens + i], -kInf);
    } else {
      EXPECT_NEAR(found.lse[h * tokens + i], std::log(sum), 1e-15 * (10 + std::abs(std::log(sum))))
          << "head " << h << " row " << i;
    }
  }
}

TEST(PairWeights, OfALearnedHeadAreSumsOverTheCandidatesThatShowThePair) {
  Call call = small_call("learned(causal|sliding:1|strided:3),learned(global)", 7);
  call.mode_weights = {0.5, 2, 0.25, 3, -kInf, std::nan("")};  // what lies past its candidates no head reads
  expect_weighted(call, 0, [](int64_t i, int64_t j) {
    return (j <= i ? 0.5 : 0) + (std::abs(i - j) <= 1 ? 2 : 0) + ((i - j) % 3 == 0 ? 0.25 : 0);
  });
  expect_weighted(call, 1, [](int64_t, int64_t) { return 3.0; });
}

TEST(PairWeights, ZeroHidesAndSoDoesWhatIsTooSmallToCount) {
  Call call = small_call("learned(causal|sliding:1),learned(every:9+first:0|strided:2)", 7);
  call.mode_weights = {1.1e-38, 0.7, 0, 0};
  expect_weighted(call, 0, [](int64_t i, int64_t j) { return std::abs(i - j) <= 1 ? 0.7 : 0; });
  expect_weighted(call, 1, [](int64_t, int64_t) { return 0.0; });
  call.mode_weights = {1.2e-38, 0, 0, 2};
  expect_weighted(call, 0, [](int64_t i, int64_t j) { return j <= i ? 1.2e-38 : 0; });
}

TEST(PairWeights, OfADynamicHeadAreThoseOfTheKeysBlock) {
  Call call = small_call("causal_dynamic:3:1,dynamic:3:2", 7);
  for (std::size_t at = 0; at < call.block_weights.size(); ++at) {
    call.block_weights[at] = at % 4 == 1 ? 0 : 0.1 * static_cast<double>(at);
  }
  for (const int64_t h : {0, 1}) {
    expect_weighted(call, h, [&](int64_t i, int64_t j) {
      return h == 0 && j > i ? 0 : call.block_weights[(h * 7 + i) * 3 + j / 3];
    });
  }
}

// Pairs of weight 0 give nothing and get nothing, whatever they hold.
TEST(PairWeights, HiddenPairsGetNoGradientAndReachNothing) {
  Call call = small_call("causal_dynamic:3:1,learned(causal|global)", 6);
  for (int64_t row = 0; row < 6; ++row) call.block_weights[row * 2] = 0;  // nobody sees tokens 0 to 2
  call.mode_weights = {0, 0, 0, 0};
  for (int64_t token = 0; token < 3; ++token) call.key[token] = call.value[token] = std::nan("");
  const reference::Outputs outputs = call.forward();
  const reference::Gradients gradients = call.backward();
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(std::isinf(outputs.lse[i]), i < 3 || i >= 6) << i;
    EXPECT_FALSE(std::isnan(outputs.out[i])) << i;
    EXPECT_FALSE(std::isnan(gradients.query[i])) << i;
    EXPECT_EQ(gradients.block_weights[i * 2], 0) << i;
  }
  for (int64_t token = 0; token < 3; ++token) {
    EXPECT_EQ(gradients.key[token], 0);
    EXPECT_EQ(gradients.value[token], 0);
  }
  EXPECT_EQ(gradients.mode_weights, std::vector<double>(4));
}

std::string error_of(const Call& call) {
  try {
    call.forward();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST(PairWeights, RefuseWhatIsNoWeight) {
  Call call = small_call("learned(causal|global),causal_dynamic:3:1", 5);
  const Call good = call;
  for (const auto& [value, said] :
       std::vector<std::pair<double, const char*>>{{-1e-9, "-1e-09"}, {std::nan(""), "NaN"}, {kInf, "inf"}}) {
    call.mode_weights[1] = value;
    EXPECT_THAT(error_of(call), HasSubstr(std::string("a value of mode_weights is ") + said));
    call = good;
    call.block_weights.back() = value;
    EXPECT_THAT(error_of(call), HasSubstr(std::string("a value of block_weights is ") + said));
    call = good;
  }
  call.mode_weights.clear();
  EXPECT_THAT(error_of(call), HasSubstr("mode_weights is absent, expected [query heads, 2]"));
  call = good;
  call.block_weights.clear();
  EXPECT_THAT(error_of(call),
              HasSubstr("block_weights is absent, expected [batch, query heads, queries, 2]"));
}

}  // namespace
}  // namespace iha
