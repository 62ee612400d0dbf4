// Dropout of attention weights: the mask is a function of the seed and the place alone, is drawn anew where
// no seed is given, and is the same in the backward pass. That values and gradients follow the mask is
// checked in oracle_test.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "iha/core/philox.h"
#include "tests/ops/operator_call.h"

namespace iha {
namespace {

using testing::add_mixing;
using testing::OperatorCall;
using testing::random_operator_call;
using testing::same_bits;

// Identity values show the weights: out[.., i, j] = w[i, j] D[i, j].
OperatorCall weights_call(int64_t tokens, at::ScalarType dtype) {
  OperatorCall call = random_operator_call({2, 3, 1, tokens, tokens, 4, tokens}, "global", dtype);
  call.value = at::eye(tokens, at::TensorOptions().dtype(dtype)).expand({2, 1, tokens, tokens});
  return call;
}

TEST(Dropout, TheMaskIsPhiloxOfSeedAndPlace) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const int64_t tokens = 13;
    OperatorCall call = weights_call(tokens, dtype);
    const at::Tensor weights = call.attention();
    call.options.dropout_p = 0.48;
    call.options.dropout_seed = -5;
    const at::Tensor dropped = call.attention();
    const uint64_t threshold = dropout_threshold(0.48);
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t h = 0; h < 3; ++h) {
        for (int64_t i = 0; i < tokens; ++i) {
          for (int64_t j = 0; j < tokens; ++j) {
            const bool kept = dropout_keeps(threshold, static_cast<uint64_t>(int64_t{-5}), b * 3 + h, i, j);
            const double expected = kept ? weights[b][h][i][j].item<double>() / 0.52 : 0.0;
            ASSERT_NEAR(dropped[b][h][i][j].item<double>(), expected, 1e-6) << b << h << i << j;
          }
        }
      }
    }
  }
}

TEST(Dropout, KeepsTheShareAndTheMean) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    OperatorCall call = weights_call(96, dtype);
    call.query = at::zeros_like(call.query);  // all weights 1/96
    for (const double p : {0.1, 0.5, 0.9}) {
      call.options.dropout_p = p;
      call.options.dropout_seed = 11;
      const at::Tensor out = call.attention();
      const double count = static_cast<double>(out.numel());
      const double kept = out.count_nonzero().item<double>() / count;
      EXPECT_NEAR(kept, 1 - p, 5 * std::sqrt(p * (1 - p) / count)) << p;
      // 16-bit weights carry their own rounding.
      EXPECT_NEAR(out.to(at::kDouble).mean().item<double>() * 96, kept / (1 - p), 5e-3) << p;
    }
  }
}

TEST(Dropout, OfEverythingGivesZeroAndOfNothingChangesNoBit) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    OperatorCall call = random_operator_call({}, "causal", dtype);
    add_mixing(call, 2);
    const at::Tensor plain = call.attention();
    call.options.dropout_seed = 3;
    EXPECT_TRUE(same_bits(call.attention(), plain));
    call.options.dropout_p = 1;
    const at::Tensor out = call.attention();
    EXPECT_EQ(out.count_nonzero().item<int64_t>(), 0);
    for (const at::Tensor& gradient : testing::gradients(call, {out}, {at::ones_like(out)})) {
      if (gradient.defined()) {
        EXPECT_EQ(gradient.count_nonzero().item<int64_t>(), 0);
      }
    }
  }
}

TEST(Dropout, WithoutASeedEachCallDrawsItsOwnFromTorchsGenerator) {
  OperatorCall call = random_operator_call({2, 2, 2, 20, 20, 8, 8}, "global");
  call.options.dropout_p = 0.5;
  at::manual_seed(4);
  const at::Tensor first = call.attention(), second = call.attention();
  EXPECT_FALSE(same_bits(first, second));
  at::manual_seed(4);
  EXPECT_TRUE(same_bits(call.attention(), first));
  EXPECT_TRUE(same_bits(call.attention(), second));
}

TEST(Dropout, WithoutDropoutTheGeneratorIsLeftAlone) {
  OperatorCall call = random_operator_call({}, "global");
  at::manual_seed(4);
  const at::Tensor expected = at::rand({3});
  at::manual_seed(4);
  call.attention();
  EXPECT_TRUE(same_bits(at::rand({3}), expected));
}

}  // namespace
}  // namespace iha
