#include "iha/report/weight_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "iha/core/philox.h"

namespace iha::report {
namespace {

using testing::ElementsAre;

// Weights of a row [P, tokens, P] that sum to 1 for each p, from a stream.
std::vector<float> random_row(int64_t tokens, int64_t pseudo, PhiloxStream& stream) {
  std::vector<float> row(static_cast<std::size_t>(pseudo * tokens * pseudo));
  for (int64_t p = 0; p < pseudo; ++p) {
    double sum = 0;
    for (int64_t at = 0; at < tokens * pseudo; ++at) {
      const double weight = std::exp(3 * stream.next_normal());
      row[p * tokens * pseudo + at] = static_cast<float>(weight);
      sum += weight;
    }
    for (int64_t at = 0; at < tokens * pseudo; ++at) row[p * tokens * pseudo + at] /= static_cast<float>(sum);
  }
  return row;
}

// w(j) of one row: mean over p of the sum over r.
std::vector<double> by_token(const std::vector<float>& row, int64_t tokens, int64_t pseudo) {
  std::vector<double> sums(static_cast<std::size_t>(tokens));
  for (std::size_t at = 0; at < row.size(); ++at)
    sums[at / pseudo % tokens] += static_cast<double>(row[at]) / static_cast<double>(pseudo);
  return sums;
}

class Summaries : public testing::TestWithParam<std::pair<int64_t, int64_t>> {};

TEST_P(Summaries, AreSumsOfTheRows) {
  const auto [tokens, pseudo] = GetParam();
  WeightSummary summary(tokens, pseudo);
  PhiloxStream stream(7);
  std::vector<std::vector<double>> rows;
  std::vector<std::vector<float>> raw;
  for (int64_t i = 0; i < tokens; ++i) {
    raw.push_back(random_row(tokens, pseudo, stream));
    rows.push_back(by_token(raw.back(), tokens, pseudo));
    summary.add(i, raw.back());
  }
  const HeadWeights weights = summary.take();
  const Masses& masses = weights.masses;
  ASSERT_EQ(masses.block, tokens <= kExactTokens ? 1 : (tokens + 63) / 64);
  ASSERT_EQ(masses.values.size(), masses.side * masses.side);
  std::vector<double> expected(masses.values.size());
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t row = i / masses.block;
    const auto queries = static_cast<double>(std::min(masses.block, tokens - row * masses.block));
    for (int64_t j = 0; j < tokens; ++j)
      expected[row * masses.side + j / masses.block] += rows[i][j] / queries;
  }
  // Sums of at most block * block terms in double.
  for (std::size_t at = 0; at < expected.size(); ++at) EXPECT_NEAR(masses.values[at], expected[at], 1e-12);
  if (tokens <= kExactTokens) {
    EXPECT_TRUE(weights.heaviest_keys.empty());
  } else {
    for (int64_t i = 0; i < tokens; ++i) {
      double kept = 0;
      for (int64_t k = i * kHeaviest; k < (i + 1) * kHeaviest; ++k) {
        const int32_t key = weights.heaviest_keys[k];
        EXPECT_EQ(weights.heaviest_weights[k], static_cast<float>(rows[i][key]));
        if (k > i * kHeaviest) {
          EXPECT_LE(weights.heaviest_weights[k], weights.heaviest_weights[k - 1]);
        }
        kept += rows[i][key];
      }
      double all = 0;
      for (const double weight : rows[i]) all += weight;
      EXPECT_NEAR(weights.rest[i], all - kept,
                  1e-6);  // one rounding to float of a number below 1, and their sum
    }
  }
  if (pseudo == 1) return;
  ASSERT_EQ(weights.parts.size(), static_cast<std::size_t>(pseudo * pseudo));
  for (int64_t p = 0; p < pseudo; ++p) {
    for (int64_t r = 0; r < pseudo; ++r) {
      const Masses& part = weights.parts[p * pseudo + r];
      EXPECT_EQ(part.block == 1, tokens * pseudo <= kExactTokens);
      double sum = 0;  // of the first block of queries
      for (int64_t i = 0; i < std::min(part.block, tokens); ++i) {
        for (int64_t j = 0; j < tokens; ++j)
          sum += static_cast<double>(raw[i][(p * tokens + j) * pseudo + r]);
      }
      double found = 0;
      for (int64_t column = 0; column < part.side; ++column) found += part.values[column];
      EXPECT_NEAR(found, sum / static_cast<double>(std::min(part.block, tokens)), 1e-12);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Summaries,
                         testing::Values(std::pair{1, 1}, std::pair{5, 3}, std::pair{63, 4}, std::pair{65, 4},
                                         std::pair{256, 1}, std::pair{257, 1}, std::pair{300, 2}));

TEST(WeightSummary, EqualWeightsGoByTheLowerKeyAndNothingIsNotListed) {
  WeightSummary summary(300, 1);
  std::vector<float> row(300);
  row[7] = row[3] = row[200] = 0.25F;
  row[100] = 0.125F;
  row[101] = std::numeric_limits<float>::quiet_NaN();
  summary.add(299, row);
  const HeadWeights weights = summary.take();
  const auto at = [&](const auto& list) {
    return std::vector(list.begin() + 299 * kHeaviest, list.begin() + 299 * kHeaviest + 5);
  };
  EXPECT_THAT(at(weights.heaviest_keys), ElementsAre(3, 7, 200, 100, -1));
  EXPECT_THAT(at(weights.heaviest_weights), ElementsAre(0.25F, 0.25F, 0.25F, 0.125F, 0));
  EXPECT_EQ(weights.rest[299], 0);
  EXPECT_EQ(weights.heaviest_keys[0], -1);  // a query that was never added
}

TEST(WeightSummary, WhatDoesNotFitIsRefused) {
  EXPECT_THROW(WeightSummary(-1, 1), std::invalid_argument);
  EXPECT_THROW(WeightSummary(kMostTokens + 1, 1), std::invalid_argument);
  EXPECT_THROW(WeightSummary(1, 0), std::invalid_argument);
  WeightSummary summary(2, 2);
  EXPECT_THROW(summary.add(2, std::vector<float>(8)), std::invalid_argument);
  EXPECT_THROW(summary.add(0, std::vector<float>(7)), std::invalid_argument);
  EXPECT_EQ(WeightSummary(0, 1).take().masses.side, 0);
}

TEST(WeightSummary, RowsAtATimeKeepMemorySmall) {
  EXPECT_EQ(rows_at_a_time(12 * 4096), 341);
  EXPECT_EQ(rows_at_a_time(int64_t{1} << 40), 1);
  EXPECT_EQ(rows_at_a_time(0), int64_t{1} << 24);
}

}  // namespace
}  // namespace iha::report
