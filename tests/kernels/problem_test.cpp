// What check(Problem) refuses, and in which words; the largest values that it takes.
#include "iha/kernels/problem.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/kernels/calls.h"

namespace iha {
namespace {

Problem good() {
  return testing::make_problem({2, 4, 2, 3, 5, 4, 4, 2}, {causal()});
}

std::string message(const std::function<void(Problem&)>& change) {
  Problem problem = good();
  change(problem);
  try {
    check(problem, "iha::attention");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(CheckProblem, TakesWhatIsDefined) {
  EXPECT_EQ(message([](Problem&) {}), "");
  EXPECT_EQ(message([](Problem& p) { p.query_offset = {-100, 100}; }), "");
  EXPECT_EQ(message([](Problem& p) { p.key_lengths = {0, 5}; }), "");
  EXPECT_EQ(message([](Problem& p) { p.documents.assign(10, -3); }), "");
  EXPECT_EQ(message([](Problem& p) { p.scale = 0; }), "");
  EXPECT_EQ(message([](Problem& p) { p.dropout_p = 1; }), "");
}

TEST(CheckProblem, NamesWhatWasFoundAndExpected) {
  EXPECT_EQ(message([](Problem& p) { p.query_heads = 5; }),
            "iha::attention: 5 query heads is not a multiple of 2 key heads");
  EXPECT_EQ(message([](Problem& p) { p.key_heads = 0; }),
            "iha::attention: 4 query heads is not a multiple of 0 key heads");
  EXPECT_EQ(message([](Problem& p) {
              p.key_lengths = {6, 5};
            }),
            "iha::attention: key length is 6, expected 0 to 5 (the number of keys)");
  EXPECT_EQ(message([](Problem& p) { p.patterns.pop_back(); }),
            "iha::attention: 3 patterns for 4 query heads, expected one a head");
}

TEST(CheckProblem, RefusesEveryWrongValue) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const std::vector<std::function<void(Problem&)>> changes = {
      [](Problem& p) { p.batch = -1; },
      [](Problem& p) { p.queries = -1; },
      [](Problem& p) { p.keys = -1; },
      [](Problem& p) { p.head_dim = -2; },
      [](Problem& p) { p.value_dim = -1; },
      [](Problem& p) { p.pseudo_heads = 0; },
      [](Problem& p) { p.patterns[1].left = -1; },
      [](Problem& p) { p.patterns[1].every = 0; },
      [](Problem& p) { p.patterns[1].first = -1; },
      [](Problem& p) { p.query_offset = {0}; },
      [](Problem& p) { p.key_lengths = {1}; },
      [](Problem& p) {
        p.key_lengths = {1, -1};
      },
      [](Problem& p) {
        p.documents = {1, 2};
      },
      [](Problem& p) {
        p.documents.assign(10, 1), p.query_offset = {2, 3};
      },
      [](Problem& p) {
        p.documents.assign(10, 1), p.query_offset = {2, -1};
      },
      [&](Problem& p) { p.scale = nan; },
      [&](Problem& p) { p.scale = inf; },
      [](Problem& p) { p.dropout_p = -0.1; },
      [](Problem& p) { p.dropout_p = 1.1; },
      [&](Problem& p) { p.dropout_p = nan; },
      [](Problem& p) { p.rope.frequencies = {1}; },
      [](Problem& p) { p.rope.kind = RopeKind::kToken, p.head_dim = 3; },
      [](Problem& p) { p.rope.kind = RopeKind::kToken, p.rope.theta = 0; },
      [&](Problem& p) { p.rope.kind = RopeKind::kToken, p.rope.theta = nan; },
      [](Problem& p) {
        p.rope.kind = RopeKind::kToken, p.rope.frequencies = {1, 1, 1};
      },
      [&](Problem& p) {
        p.rope.kind = RopeKind::kToken, p.rope.frequencies = {1, inf};
      },
  };
  for (std::size_t at = 0; at < changes.size(); ++at) {
    EXPECT_EQ(message(changes[at]).rfind("iha::", 0), 0u) << "change " << at << ": " << message(changes[at]);
  }
}

// |position| * P < 2^53 on both sides, with P = 2 and three queries.
TEST(CheckProblem, PositionsEndWhereFloat64DoesNotHoldThem) {
  const int64_t largest = (int64_t{1} << 52) - 1;
  EXPECT_EQ(message([&](Problem& p) { p.query_offset = {largest - 2, -largest}; }), "");
  EXPECT_NE(message([&](Problem& p) { p.query_offset = {largest - 1, 0}; }), "");
  EXPECT_NE(message([&](Problem& p) { p.query_offset = {0, -largest - 1}; }), "");
  EXPECT_NE(message([&](Problem& p) { p.query_offset = {std::numeric_limits<int64_t>::max(), 0}; }), "");
  EXPECT_NE(message([&](Problem& p) { p.query_offset = {std::numeric_limits<int64_t>::min(), 0}; }), "");
}

TEST(CheckProblem, OddDimensionsTurnInPart) {
  EXPECT_EQ(message([](Problem& p) {
              p.head_dim = 3;
              p.rope.kind = RopeKind::kToken;
              p.rope.frequencies = {1};
            }),
            "");
}

}  // namespace
}  // namespace iha
