// The choice of blocks against sorting, and its rules: eligibility, ties, lengths, offsets, tiles, NaN,
// threads.
#include "iha/kernels/choose_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "iha/core/philox.h"
#include "iha/patterns/arithmetic.h"

namespace iha {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t blocks_of(const BlockChoice& choice) {
  const int64_t size = dynamic_block(choice.patterns, "test");
  return (choice.keys + size - 1) / size;
}

std::vector<double> chosen(const BlockChoice& choice, const std::vector<double>& scores,
                           const ParallelFor& parallel = serial()) {
  std::vector<double> weights(choice.batch * choice.patterns.size() * choice.queries * blocks_of(choice),
                              kNaN);
  choose_blocks(choice, scores.data(), weights.data(), parallel);
  return weights;
}

// One query at `position` over `scores.size()` whole blocks.
std::vector<double> row(const Pattern& pattern, int64_t position, const std::vector<double>& scores) {
  const auto keys = static_cast<int64_t>(scores.size()) * pattern.block;
  return chosen({.batch = 1, .queries = 1, .keys = keys, .patterns = {pattern}, .query_offset = {position}},
                scores);
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

using Row = std::vector<double>;

TEST(ChooseBlocks, OwnBlockHasWeightOneAndTheHighestTheirSigmoid) {
  EXPECT_EQ(row(dynamic(4, 2), 5, {0.5, 9, -1, 2, 1}), (Row{0, 1, 0, sigmoid(2), sigmoid(1)}));
  EXPECT_EQ(row(dynamic(4, 1), 5, {-3, 9, -4, -5, -6}), (Row{sigmoid(-3), 1, 0, 0, 0}));
}

TEST(ChooseBlocks, CausalHeadsChooseAmongBlocksThatEnded) {
  EXPECT_EQ(row(causal_dynamic(4, 2), 11, {1, 2, 7, 9, 8}), (Row{sigmoid(1), sigmoid(2), 1, 0, 0}));
  EXPECT_EQ(row(causal_dynamic(4, 1), 8, {1, 2, 7, 9, 8}), (Row{0, sigmoid(2), 1, 0, 0}));
  EXPECT_EQ(row(causal_dynamic(4, 3), 7, {1, 2, 7, 9, 8}), (Row{sigmoid(1), 1, 0, 0, 0}));  // fewer than K
  EXPECT_EQ(row(causal_dynamic(4, 2), 3, {1, 2, 7, 9, 8}), (Row{1, 0, 0, 0, 0}));
}

TEST(ChooseBlocks, PositionsOutsideTheKeysHaveNoOwnBlock) {
  EXPECT_EQ(row(causal_dynamic(4, 2), -1, {1, 2, 3}), (Row{0, 0, 0}));
  EXPECT_EQ(row(dynamic(4, 1), -1, {1, 2, 3}), (Row{0, 0, sigmoid(3)}));
  EXPECT_EQ(row(causal_dynamic(4, 1), 100, {1, 2, 3}), (Row{0, 0, sigmoid(3)}));
}

TEST(ChooseBlocks, TiesGoToTheLowerIndex) {
  EXPECT_EQ(row(dynamic(1, 2), 0, {0, 5, 5, 5, 5}), (Row{1, sigmoid(5), sigmoid(5), 0, 0}));
  std::vector<double> scores(40, 1.0);  // several groups
  scores[30] = 2;
  const Row weights = row(dynamic(1, 3), 39, scores);
  for (int64_t j = 0; j < 39; ++j) EXPECT_EQ(weights[j] > 0, j < 2 || j == 30) << j;
}

TEST(ChooseBlocks, NanAndMinusInfinityAreNeverChosen) {
  EXPECT_EQ(row(dynamic(1, 3), 0, {1, kNaN, -kInfinity, 2, kNaN}), (Row{1, 0, 0, sigmoid(2), 0}));
  EXPECT_EQ(row(dynamic(1, 1), 0, {1, 2, kInfinity}), (Row{1, 0, 1}));
  EXPECT_EQ(row(dynamic(1, 2), 0, {kNaN, kNaN, kNaN}), (Row{1, 0, 0}));
}

TEST(ChooseBlocks, BlocksWithoutKeysAreNotEligible) {
  BlockChoice choice{.batch = 2, .queries = 1, .keys = 11, .patterns = {dynamic(4, 3)}};
  choice.query_offset = {0, 0};
  choice.key_lengths = {4, 5};
  EXPECT_EQ(chosen(choice, {1, 2, 3, 1, 2, 3}), (Row{1, 0, 0, 1, sigmoid(2), 0}));
}

TEST(ChooseBlocks, OtherHeadsGetZeros) {
  const BlockChoice choice{.batch = 1,
                           .queries = 1,
                           .keys = 4,
                           .patterns = {causal(), dynamic(2, 1), global(), causal_dynamic(2, 1)},
                           .query_offset = {2}};
  EXPECT_EQ(chosen(choice, {1, 2, 3, 4}), (Row{0, 0, sigmoid(1), 1, 0, 0, sigmoid(3), 1}));
}

TEST(ChooseBlocks, AnEmptyCallDoesNothing) {
  EXPECT_TRUE(chosen({.batch = 0, .queries = 3, .keys = 8, .patterns = {dynamic(2, 1)}}, {}).empty());
  const BlockChoice no_keys{.batch = 1, .queries = 3, .patterns = {dynamic(2, 1)}, .query_offset = {0}};
  EXPECT_TRUE(chosen(no_keys, {}).empty());
}

// By sorting, from the definition.
Row sorted_choice(const Pattern& pattern, int64_t own, int64_t exist, const double* scores, int64_t blocks) {
  std::vector<int64_t> eligible;
  for (int64_t j = 0; j < exist; ++j) {
    if (j != own && (!pattern.causal() || j < own)) eligible.push_back(j);
  }
  std::ranges::stable_sort(eligible, [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  eligible.resize(std::min<size_t>(eligible.size(), pattern.chosen));
  Row weights(blocks, 0.0);
  if (own >= 0 && own < blocks) weights[own] = 1;
  for (const int64_t j : eligible) weights[j] = sigmoid(scores[j]);
  return weights;
}

TEST(ChooseBlocks, EqualsSortingForAnyNumberOfBlocksQueriesAndWorkers) {
  PhiloxStream stream(3);
  for (const int64_t blocks : {1, 2, 7, 8, 9, 33}) {
    for (const Pattern& pattern :
         {dynamic(3, 1), dynamic(3, 7), causal_dynamic(3, 2), causal_dynamic(3, 40)}) {
      const int64_t keys = 3 * blocks - 1, queries = 300;  // more queries than a task takes
      const BlockChoice choice{.batch = 1,
                               .queries = queries,
                               .keys = keys,
                               .patterns = {pattern},
                               .query_offset = {keys - queries}};
      std::vector<double> scores(queries * blocks);
      for (double& score : scores) score = static_cast<double>(stream.next_below(12)) / 4 - 1;  // many ties
      const Row weights = chosen(choice, scores);
      for (int64_t i = 0; i < queries; ++i) {
        const int64_t own = floor_div(keys - queries + i, 3);
        const Row expected = sorted_choice(pattern, own, blocks, scores.data() + i * blocks, blocks);
        ASSERT_EQ(Row(weights.begin() + i * blocks, weights.begin() + (i + 1) * blocks), expected)
            << blocks << " " << i;
      }
      for (const int workers : {2, 3}) EXPECT_EQ(chosen(choice, scores, thread_pool(workers)), weights);
    }
  }
}

TEST(ChooseBlocks, QueriesOfATileShareScoresNotTheirOwnBlock) {
  // Tiles of 3 queries, blocks of 2 keys: own blocks change within tiles.
  const BlockChoice choice{
      .batch = 1, .queries = 7, .keys = 7, .tile = 3, .patterns = {dynamic(2, 1)}, .query_offset = {0}};
  const std::vector<double> scores = {4, 3, 2, 1, /**/ 1, 2, 3, 4, /**/ 0, 5, 0, 0};
  const Row weights = chosen(choice, scores);
  for (int64_t i = 0; i < 7; ++i) {
    const Row expected = sorted_choice(choice.patterns[0], i / 2, 4, scores.data() + i / 3 * 4, 4);
    EXPECT_EQ(Row(weights.begin() + i * 4, weights.begin() + (i + 1) * 4), expected) << i;
  }
}

struct QueryAndKey {
  Row query, key;
  bool operator==(const QueryAndKey&) const = default;
};

TEST(ChooseBlocks, GradientsGoThroughTheChosenSigmoidsForAnyNumberOfWorkers) {
  constexpr int64_t kBatch = 2, kQueries = 13, kKeys = 14, kBlocks = 4, kDim = 3;
  for (const int64_t tile : {1, 3}) {
    const BlockChoice choice{
        .batch = kBatch,
        .queries = kQueries,
        .keys = kKeys,
        .tile = tile,
        .patterns = {dynamic(4, 2), causal(), tile == 1 ? causal_dynamic(4, 1) : dynamic(4, 1)},
        .query_offset = {1, 1}};
    const int64_t rows = (kQueries + tile - 1) / tile, heads = 3, dynamic = 2;
    PhiloxStream stream(8);
    const auto drawn = [&](int64_t count) {
      Row values(count);
      for (double& value : values) value = stream.next_normal();
      return values;
    };
    const Row query = drawn(kBatch * dynamic * rows * kDim),
              grad = drawn(kBatch * heads * kQueries * kBlocks);
    Row key = drawn(kBatch * dynamic * kBlocks * kDim);
    Row scores(kBatch * dynamic * rows * kBlocks, 0.0);
    for (int64_t row = 0; row < kBatch * dynamic * rows; ++row) {
      for (int64_t j = 0; j < kBlocks; ++j) {
        for (int64_t c = 0; c < kDim; ++c) {
          scores[row * kBlocks + j] += query[row * kDim + c] * key[(row / rows * kBlocks + j) * kDim + c];
        }
      }
    }
    for (int64_t row = 0; row < rows; ++row) scores[row * kBlocks] = kNaN;  // of one head: nobody chooses it
    for (int64_t c = 0; c < kDim; ++c) key[c] = kNaN;
    const Row weights = chosen(choice, scores);
    const auto run = [&](const ParallelFor& parallel) {
      QueryAndKey found{Row(query.size(), kNaN), Row(key.size(), kNaN)};
      choose_blocks_backward<double>(
          choice,
          {kDim, weights.data(), grad.data(), query.data(), key.data(), found.query.data(), found.key.data()},
          parallel);
      return found;
    };
    QueryAndKey expected{Row(query.size(), 0.0), Row(key.size(), 0.0)};
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t e = 0; e < dynamic; ++e) {
        for (int64_t i = 0; i < kQueries; ++i) {
          for (int64_t j = 0; j < kBlocks; ++j) {
            const int64_t weight = ((b * heads + 2 * e) * kQueries + i) * kBlocks + j;
            const double w = weights[weight];
            if (w == 0 || j == (i + 1) / 4) continue;
            for (int64_t c = 0; c < kDim; ++c) {
              const int64_t q = ((b * dynamic + e) * rows + i / tile) * kDim + c,
                            k = ((b * dynamic + e) * kBlocks + j) * kDim + c;
              expected.query[q] += grad[weight] * w * (1 - w) * key[k];
              expected.key[k] += grad[weight] * w * (1 - w) * query[q];
            }
          }
        }
      }
    }
    const QueryAndKey found = run(serial());
    for (size_t i = 0; i < query.size(); ++i) ASSERT_NEAR(found.query[i], expected.query[i], 1e-14) << i;
    for (size_t i = 0; i < key.size(); ++i) ASSERT_NEAR(found.key[i], expected.key[i], 1e-14) << i;
    for (const int workers : {2, 3, 7}) EXPECT_EQ(run(thread_pool(workers)), found);
  }
}

}  // namespace
}  // namespace iha
