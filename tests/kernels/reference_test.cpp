// The oracle on inputs whose right answers are known by hand. Most rows come from faults that users of other
// libraries reported: window conventions, alignment, empty rows, head mapping, hidden NaN.
#include "iha/kernels/reference/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/calls.h"

namespace iha {
namespace {

using testing::Call;
using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using testing::make_problem;
using ::testing::Pointwise;
using testing::Shape;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Which keys the queries of head 0 see, from the weights: "10 11" is causal for two tokens.
std::string picture(const Problem& problem) {
  Call call(problem, testing::kNothing, 1);
  std::vector<int64_t> rows(problem.queries);
  for (int64_t i = 0; i < problem.queries; ++i) rows[i] = i;
  const std::vector<double> weights = reference::weights(problem, call.inputs(), rows);
  const int64_t columns = problem.keys * problem.pseudo_heads;
  std::string text;
  for (int64_t row = 0; row < problem.queries * problem.pseudo_heads; ++row) {
    if (row > 0) text += ' ';
    for (int64_t column = 0; column < columns; ++column)
      text += weights[row * columns + column] > 0 ? '1' : '0';
  }
  return text;
}

std::string picture(const Pattern& pattern, int64_t queries, int64_t keys) {
  return picture(make_problem({.queries = queries, .keys = keys}, {pattern}));
}

// Hugging Face's window 2 is causal_sliding:1: self and one before.
TEST(Visible, WindowsCountTokens) {
  EXPECT_EQ(picture(causal_sliding(1), 5, 5), "10000 11000 01100 00110 00011");
  EXPECT_EQ(picture(causal_sliding(0), 3, 3), "100 010 001");
  EXPECT_EQ(picture(sliding(1), 4, 4), "1100 1110 0111 0011");
  EXPECT_EQ(picture(causal_sliding(4), 4, 4), "1000 1100 1110 1111");
  EXPECT_EQ(picture(window(1, 2), 5, 5), "11100 11110 01111 00111 00011");
}

TEST(Visible, QueriesLieAtTheEndOfTheKeys) {
  EXPECT_EQ(picture(causal(), 2, 5), "11110 11111");
  EXPECT_EQ(picture(causal(), 1, 5), "11111");
  EXPECT_EQ(picture(causal(), 5, 2), "00 00 00 10 11");
  EXPECT_EQ(picture(causal_sliding(1), 1, 4), "0011");  // three cached, one new
}

TEST(Visible, StepsAndChunks) {
  EXPECT_EQ(picture(strided(2), 4, 4), "1010 0101 1010 0101");
  EXPECT_EQ(picture(causal_strided(2), 4, 4), "1000 0100 1010 0101");
  EXPECT_EQ(picture(every(2), 3, 4), "1010 1010 1010");
  EXPECT_EQ(picture(causal_every(2), 4, 4), "1000 1000 1010 1010");
  EXPECT_EQ(picture(chunked(2), 4, 4), "1100 1100 0011 0011");
  EXPECT_EQ(picture(causal_sliding(0).with_first(1), 3, 3), "100 110 101");
  EXPECT_EQ(picture(causal_sliding(0).with_first(2), 3, 3), "100 110 111");  // first, but not in the future
  EXPECT_EQ(picture(window(0, 1).with_first(1), 3, 3), "110 111 101");
}

TEST(Visible, NegativePositionsRoundDown) {
  Problem problem = make_problem({.queries = 4, .keys = 2}, {chunked(2)});
  problem.query_offset = {-2};
  EXPECT_EQ(picture(problem), "00 00 11 11");
}

TEST(Visible, FlatOrderIsCausalInTheInterleavedSequence) {
  Problem problem = make_problem({.queries = 2, .keys = 2, .pseudo_heads = 2}, {causal()});
  EXPECT_EQ(picture(problem), "1000 1100 1110 1111");
  problem.order = Order::kToken;
  EXPECT_EQ(picture(problem), "1100 1100 1111 1111");
  problem.layout = Layout::kParallel;
  EXPECT_EQ(picture(problem), "1000 0100 1010 0101");
  problem.order = Order::kFlat;
  EXPECT_EQ(picture(problem), "1000 0100 1010 0101");
}

TEST(Visible, FlatOrderLeavesOtherPatternsAlone) {
  EXPECT_EQ(picture(make_problem({.queries = 1, .keys = 1, .pseudo_heads = 2}, {sliding(1)})), "11 11");
  EXPECT_EQ(picture(make_problem({.queries = 1, .keys = 1, .pseudo_heads = 2}, {sliding(0)})), "10 11");
  EXPECT_EQ(picture(make_problem({.queries = 1, .keys = 1, .pseudo_heads = 2}, {sliding(0).with_first(1)})),
            "10 11");
}

TEST(Visible, DocumentsHaveTheirOwnFirstTokens) {
  Problem problem = make_problem({.queries = 5, .keys = 5}, {causal_sliding(0).with_first(1)});
  problem.documents = {7, 3, 7, 3, 7};
  EXPECT_EQ(picture(problem), "10000 01000 10100 01010 10001");
  problem.key_lengths = {1};  // hides the first token of document 3 like any key
  EXPECT_EQ(picture(problem), "10000 00000 10000 00000 10000");
}

// S = 4, window 2, keys 2 and 3 padded: the last query sees nothing.
TEST(EmptyRows, GiveZeroAndNoGradient) {
  Problem problem = make_problem({.queries = 4, .keys = 4}, {causal_sliding(1)});
  problem.key_lengths = {2};
  Call call(problem, testing::kNothing, 1);
  call.query = call.key = {0, 0, 0, 0};
  call.value = {1, 2, 3, 4};
  call.grad_out = call.grad_parts = {0, 0, 0, kNaN};  // what a row that sees nothing gets does not matter
  call.grad_lse = {0, 0, 0, kNaN};
  const reference::Outputs outputs = call.forward();
  EXPECT_THAT(outputs.out, ElementsAre(1, 1.5, 2, 0));
  EXPECT_THAT(outputs.lse, ElementsAre(0, DoubleEq(std::log(2)), 0, -kInf));
  const reference::Gradients gradients = call.backward();
  EXPECT_THAT(gradients.query, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(gradients.key, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(gradients.value, ElementsAre(0, 0, 0, 0));
}

TEST(EmptyRows, OneSequenceOfTheBatchOnly) {
  Problem problem = make_problem({.batch = 2, .query_heads = 2, .key_heads = 2, .queries = 2, .keys = 2});
  problem.key_lengths = {2, 0};
  const reference::Outputs outputs = Call(problem, testing::kNothing, 3).forward();
  for (int row = 0; row < 8; ++row) EXPECT_EQ(outputs.lse[row] == -kInf, row >= 4) << row;
}

TEST(Heads, GroupsAreRepeatedInPlace) {
  Call call(make_problem({.query_heads = 4, .key_heads = 2}), testing::kNothing, 1);
  call.value = {10, 20};
  EXPECT_THAT(call.forward().out, ElementsAre(10, 10, 20, 20));
}

TEST(Heads, PermutationMixingPermutes) {
  const Problem problem = make_problem(
      {.query_heads = 2, .key_heads = 2, .queries = 4, .keys = 4, .head_dim = 3, .value_dim = 2}, {causal()});
  Call plain(problem, testing::kNothing, 5);
  Call swapped = plain;
  swapped.alpha_q = swapped.alpha_k = swapped.alpha_v = {0, 1, 1, 0};  // [source, head]
  const std::vector<double> out = plain.forward().out, mixed = swapped.forward().out;
  for (std::size_t at = 0; at < 8; ++at) {
    EXPECT_EQ(mixed[at], out[8 + at]);
    EXPECT_EQ(mixed[8 + at], out[at]);
  }
}

// alpha is [source, head]: head 0 reads head 1's values, head 1 its own.
TEST(Heads, MixingReadsFromItsSource) {
  Call call(make_problem({.query_heads = 2, .key_heads = 2}), testing::kNothing, 1);
  call.value = {10, 20};
  call.alpha_v = {0, 0, 1, 1};
  EXPECT_THAT(call.forward().out, ElementsAre(20, 20));
}

class IdentityMixing : public ::testing::TestWithParam<RopeKind> {};

// With P equal pseudo-heads every key counts P times: the same weights in token order, log P more in lse.
TEST_P(IdentityMixing, IsThePlainLayerInTokenOrder) {
  Problem plain = make_problem(
      {.batch = 2, .query_heads = 4, .key_heads = 2, .queries = 5, .keys = 7, .head_dim = 4, .value_dim = 3},
      {causal(), sliding(2), global(), causal_every(2)});
  plain.rope.kind = GetParam();
  Problem wide = plain;
  wide.pseudo_heads = 3;
  wide.order = Order::kToken;
  const reference::Outputs one = Call(plain, testing::kNothing, 5).forward();
  const reference::Outputs three = Call(wide, testing::kNothing, 5).forward();
  EXPECT_THAT(three.out, Pointwise(DoubleNear(1e-14), one.out));
  for (std::size_t row = 0; row < one.lse.size(); ++row) {
    for (int p = 0; p < 3; ++p) {
      if (one.lse[row] == -kInf) {
        EXPECT_EQ(three.lse[row * 3 + p], -kInf);
      } else {
        EXPECT_NEAR(three.lse[row * 3 + p], one.lse[row] + std::log(3), 1e-14);
      }
    }
  }
}

// In flat order only the last pseudo-query sees all copies of its own token.
TEST_P(IdentityMixing, IsThePlainLayerForTheLastPseudoQueryInFlatOrder) {
  const Shape shape{.query_heads = 2, .key_heads = 2, .queries = 5, .keys = 5, .head_dim = 4, .value_dim = 3};
  Problem plain = make_problem(shape, {causal()});
  plain.rope.kind = GetParam();
  Problem wide = plain;
  wide.pseudo_heads = 2;
  wide.collapse = CollapseKind::kPerHead;
  Call call(wide, testing::kNothing, 5);
  call.collapse = {0, 1, 0, 1};
  const std::vector<double> expected = Call(plain, testing::kNothing, 5).forward().out;
  EXPECT_THAT(call.forward().out, Pointwise(DoubleNear(1e-14), expected));
  call.collapse = {1, 0, 1, 0};
  EXPECT_THAT(call.forward().out, ::testing::Not(Pointwise(DoubleNear(1e-3), expected)));
}

INSTANTIATE_TEST_SUITE_P(Ropes, IdentityMixing, ::testing::Values(RopeKind::kNone, RopeKind::kToken));

TEST(Heads, VirtualPositionsChangeEvenIdentityMixing) {
  Problem problem = make_problem({.queries = 4, .keys = 4, .head_dim = 4, .value_dim = 2, .pseudo_heads = 2});
  problem.order = Order::kToken;
  const std::vector<double> without = Call(problem, testing::kNothing, 5).forward().out;
  problem.rope.kind = RopeKind::kVirtual;
  EXPECT_THAT(Call(problem, testing::kNothing, 5).forward().out,
              ::testing::Not(Pointwise(DoubleNear(1e-3), without)));
}

TEST(Collapse, AddsPartsAsItsKindSays) {
  Problem problem = make_problem({.query_heads = 2, .key_heads = 2, .pseudo_heads = 2}, {causal()});
  problem.layout = Layout::kParallel;  // one key each: parts are v~
  Call call(problem, testing::kNothing, 1);
  call.value = {1, 10};
  call.alpha_v = {1, 2, 0, 0, 0, 0, 1, 3};  // v~ of head 0: 1, 2; of head 1: 10, 30
  EXPECT_THAT(call.forward().parts, ElementsAre(1, 2, 10, 30));
  EXPECT_THAT(call.forward().out, ElementsAre(1.5, 20));
  call.problem.collapse = CollapseKind::kPerHead;
  call.collapse = {1, -1, 0.5, 0.1};
  EXPECT_THAT(call.forward().out, ElementsAre(-1, DoubleEq(8)));
  call.problem.collapse = CollapseKind::kGlobal;
  call.collapse = {1, 0, 1, 0, 0, 2, 0, -1};  // [head, source, pseudo]
  EXPECT_THAT(call.forward().out, ElementsAre(11, -26));
}

TEST(Sinks, AreAScoreWithoutAValue) {
  Problem problem = make_problem({.queries = 1, .keys = 2});
  Call call(problem, testing::kSinks, 1);
  call.query = {0};
  call.value = {3, 6};
  call.sinks = {0};
  EXPECT_THAT(call.forward().out, ElementsAre(DoubleEq(3)));
  EXPECT_THAT(call.forward().lse, ElementsAre(DoubleEq(std::log(3))));
  call.sinks = {800};  // beyond exp's range; every weight underflows, lse does not
  EXPECT_THAT(call.forward().out, ElementsAre(0));
  EXPECT_THAT(call.forward().lse, ElementsAre(800));
  call.sinks = {-kInf};  // no sink
  EXPECT_THAT(call.forward().out, ElementsAre(4.5));
  call.problem.key_lengths = {0};
  call.sinks = {0.25};
  EXPECT_THAT(call.forward().out, ElementsAre(0));
  EXPECT_THAT(call.forward().lse, ElementsAre(0.25));
  call.grad_out = call.grad_lse = {kNaN};
  EXPECT_THAT(call.backward().sinks, ElementsAre(0));
}

TEST(Scores, MayBeFarOutsideTheRangeOfExp) {
  Problem problem = make_problem({.queries = 1, .keys = 2, .head_dim = 64});
  Call call(problem, testing::kNothing, 1);
  call.query.assign(64, 400.0);
  call.key.assign(128, 400.0);
  call.value = {1, 3};
  EXPECT_THAT(call.forward().out, ElementsAre(2));
  EXPECT_THAT(call.forward().lse, ElementsAre(DoubleEq(1280000 + std::log(2))));
}

TEST(Dropout, OfEverythingGivesZero) {
  Problem problem = make_problem({.queries = 3, .keys = 3, .head_dim = 2, .value_dim = 2});
  const std::vector<double> lse = Call(problem, testing::kNothing, 1).forward().lse;
  problem.dropout_p = 1;
  const Call call(problem, testing::kNothing, 1);
  EXPECT_THAT(call.forward().out, ::testing::Each(0));
  EXPECT_EQ(call.forward().lse, lse);  // the softmax does not know of it
  EXPECT_THAT(call.backward().value, ::testing::Each(0));
}

// Each head's weights against the mask of Philox, counted over all pseudo-rows and pseudo-columns of the
// call.
TEST(Dropout, DrawsTheMaskOfItsDefinition) {
  Problem problem = make_problem({.batch = 2,
                                  .query_heads = 2,
                                  .key_heads = 1,
                                  .queries = 3,
                                  .keys = 5,
                                  .head_dim = 2,
                                  .value_dim = 1,
                                  .pseudo_heads = 2});
  problem.order = Order::kToken;
  const Call plain(problem, testing::kNothing, 9);
  problem.dropout_p = 0.4;
  problem.dropout_seed = 0x123456789abcdef0u;
  const std::vector<double> parts = Call(problem, testing::kNothing, 9).forward().parts;
  const std::vector<double> weights = reference::weights(problem, plain.inputs(), {0, 1, 2});
  for (int64_t row = 0; row < 2 * 2 * 6; ++row) {
    const int64_t batch_head = row / 6;
    double expected = 0;
    for (int64_t column = 0; column < 10; ++column) {
      const uint32_t word = philox4x32_10({static_cast<uint32_t>(column / 4), static_cast<uint32_t>(row % 6),
                                           static_cast<uint32_t>(batch_head), 0},
                                          problem.dropout_seed)[column % 4];
      const double kept = word >= 1717986918u ? 1 / 0.6 : 0;  // round(0.4 * 2^32)
      expected += kept * weights[row * 10 + column] * plain.value[batch_head / 2 * 5 + column / 2];
    }
    EXPECT_NEAR(parts[row], expected, 1e-14) << row;
  }
}

TEST(Weights, MakeTheParts) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Call call = testing::random_call(seed);
    call.problem.dropout_p = 0;
    call.alpha_v.clear();
    const Problem& problem = call.problem;
    const int64_t last = problem.queries - 1, columns = problem.keys * problem.pseudo_heads;
    const std::vector<double> weights = reference::weights(problem, call.inputs(), {last});
    const reference::Outputs outputs = call.forward();
    for (int64_t row = 0; row < problem.batch * problem.query_heads * problem.pseudo_heads; ++row) {
      const int64_t head = row / problem.pseudo_heads, b = head / problem.query_heads;
      const int64_t key_head = b * problem.key_heads + head % problem.query_heads / problem.group();
      const int64_t part =
          (head * problem.queries + last) * problem.pseudo_heads + row % problem.pseudo_heads;
      double expected = 0, sum = 0;
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t token = key_head * problem.keys + column / problem.pseudo_heads;
        expected += weights[row * columns + column] * call.value[token * problem.value_dim];
        sum += weights[row * columns + column];
      }
      EXPECT_NEAR(outputs.parts[part * problem.value_dim], expected, 1e-13) << "seed " << seed;
      const bool sums_to_one = call.sinks.empty() && outputs.lse[part] != -kInf;
      EXPECT_TRUE(!sums_to_one || std::abs(sum - 1) < 1e-14) << "seed " << seed << ": " << sum;
    }
  }
}

TEST(Weights, RefuseRowsThatAreNone) {
  const Call call(make_problem({.queries = 2, .keys = 2}), testing::kNothing, 1);
  EXPECT_THROW(reference::weights(call.problem, call.inputs(), {2}), std::invalid_argument);
  EXPECT_THROW(reference::weights(call.problem, call.inputs(), {-1}), std::invalid_argument);
}

// Only differences of positions count, so a far offset of both sides gives the plain result.
TEST(RoPE, IsRelativeAtAnyPosition) {
  Problem problem = make_problem({.queries = 1, .keys = 1, .head_dim = 8, .value_dim = 1});
  problem.rope.kind = RopeKind::kToken;
  Call call(problem, testing::kNothing, 4);
  double dot = 0;
  for (int c = 0; c < 8; ++c) dot += call.query[c] * call.key[c];
  EXPECT_NEAR(call.forward().lse[0], dot / std::sqrt(8.0), 1e-14);
  call.problem.query_offset = {1};
  EXPECT_GT(std::abs(call.forward().lse[0] - dot / std::sqrt(8.0)), 1e-3);
}

// By hand: d = 2, one pair, frequency 1: the score of a query at n against key 0 is scale * cos(n) for unit
// vectors.
TEST(RoPE, TurnsByThePosition) {
  Problem problem = make_problem({.queries = 1, .keys = 1, .head_dim = 2, .value_dim = 1, .pseudo_heads = 2});
  problem.layout = Layout::kParallel;
  problem.scale = 1;
  problem.query_offset = {123456};
  Call call(problem, testing::kNothing, 4);
  call.query = call.key = {1, 0};
  call.problem.rope.kind = RopeKind::kToken;
  EXPECT_THAT(call.forward().lse, ElementsAre(DoubleEq(std::cos(123456.0)), DoubleEq(std::cos(123456.0))));
  call.problem.rope.kind = RopeKind::kVirtual;  // n * P + p against p
  EXPECT_NEAR(call.forward().lse[0], std::cos(2 * 123456.0), 1e-15);
  EXPECT_NEAR(call.forward().lse[1], std::cos(2 * 123456.0), 1e-10);  // two angles of 2.5e5, ulp 3e-11
}

// --- What a query does not see never reaches it ---

// True where (b, i) of some head sees token j of its sequence through any head that mixing lets it read.
bool sees_token(const Call& call, const Visibility& visible, int64_t b, int64_t i, int64_t j) {
  const Problem& problem = call.problem;
  for (int64_t h = 0; h < problem.query_heads; ++h) {
    for (int64_t p = 0; p < problem.pseudo_heads; ++p) {
      for (int64_t r = 0; r < problem.pseudo_heads; ++r) {
        if (visible(b, h, i, p, j, r)) return true;
      }
    }
  }
  return false;
}

void fill_token(const Problem& problem, std::vector<double>& array, int64_t j, int64_t width, double with) {
  for (int64_t row = 0; row < problem.batch * problem.key_heads; ++row) {
    for (int64_t c = 0; c < width; ++c) array[(row * problem.keys + j) * width + c] = with;
  }
}

// Bits of rows of [B, Hq, Nq, width].
template <class Skip>
void expect_same_bits(const Problem& problem, const std::vector<double>& left,
                      const std::vector<double>& right, int64_t width, const Skip& skip) {
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t at = 0; at < left.size(); ++at) {
    const int64_t row = static_cast<int64_t>(at) / width, i = row % problem.queries;
    const int64_t b = row / problem.queries / problem.query_heads;
    if (skip(b, i)) continue;
    ASSERT_EQ(left[at], right[at]) << "sequence " << b << ", query " << i;
  }
}

TEST(Hidden, ChangingATokenChangesNoBitOfWhatDoesNotSeeIt) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Call call = testing::random_call(seed);
    const Problem& problem = call.problem;
    const Visibility visible(problem);
    const reference::Outputs before = call.forward();
    for (const double with : {1e300, kNaN, kInf}) {
      const int64_t j = static_cast<int64_t>(seed) % problem.keys;
      Call changed = call;
      fill_token(problem, changed.key, j, problem.head_dim, with);
      fill_token(problem, changed.value, j, problem.value_dim, with);
      const reference::Outputs after = changed.forward();
      const auto skip = [&](int64_t b, int64_t i) { return sees_token(call, visible, b, i, j); };
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ": " << testing::describe(problem));
      expect_same_bits(problem, before.out, after.out, problem.value_dim, skip);
      expect_same_bits(problem, before.parts, after.parts, problem.pseudo_heads * problem.value_dim, skip);
      expect_same_bits(problem, before.lse, after.lse, problem.pseudo_heads, skip);
    }
  }
}

// NaN in keys that nobody sees, and in queries that see nothing, reaches no gradient, mixing weights
// included.
TEST(Hidden, NaNReachesNoGradient) {
  int planted = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    const Call call = testing::random_call(seed);
    const Problem& problem = call.problem;
    const Visibility visible(problem);
    Call changed = call;
    const auto plant = [&](std::vector<double>& array, int64_t row, int64_t width) {
      for (int64_t c = 0; c < width; ++c) array[row * width + c] = c % 2 == 0 ? kNaN : kInf;
      ++planted;
    };
    for (int64_t b = 0; b < problem.batch; ++b) {
      for (int64_t j = 0; j < problem.keys; ++j) {
        bool seen = false;
        for (int64_t i = 0; i < problem.queries; ++i) seen = seen || sees_token(call, visible, b, i, j);
        for (int64_t h = 0; h < problem.key_heads && !seen; ++h) {
          plant(changed.key, (b * problem.key_heads + h) * problem.keys + j, problem.head_dim);
          plant(changed.value, (b * problem.key_heads + h) * problem.keys + j, problem.value_dim);
        }
      }
      for (int64_t i = 0; i < problem.queries; ++i) {
        bool sees = false;
        for (int64_t j = 0; j < problem.keys; ++j) sees = sees || sees_token(call, visible, b, i, j);
        for (int64_t h = 0; h < problem.query_heads && !sees; ++h) {
          plant(changed.query, (b * problem.query_heads + h) * problem.queries + i, problem.head_dim);
        }
      }
    }
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ": " << testing::describe(problem));
    testing::for_each_array(
        call.backward(), changed.backward(),
        [](const char* name, const auto& left, const auto& right) { EXPECT_EQ(left, right) << name; });
    EXPECT_EQ(call.forward().out, changed.forward().out);
  }
  EXPECT_GT(planted, 100);
}

TEST(Hidden, NaNInOneHeadStaysThereWithoutMixing) {
  Call call(make_problem({.query_heads = 2, .key_heads = 2, .queries = 2, .keys = 2}), testing::kNothing, 1);
  call.value[0] = kNaN;
  const std::vector<double> out = call.forward().out;
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
  EXPECT_FALSE(std::isnan(out[2]) || std::isnan(out[3]));
}

TEST(Hidden, VisibleNaNPropagates) {
  Call call(make_problem({.queries = 2, .keys = 2}, {causal()}), testing::kNothing, 1);
  call.key[1] = kNaN;
  EXPECT_FALSE(std::isnan(call.forward().out[0]));
  EXPECT_TRUE(std::isnan(call.forward().out[1]));
  EXPECT_TRUE(std::isnan(call.forward().lse[1]));
}

TEST(Sizes, MayBeZero) {
  const std::vector<Shape> shapes = {{.batch = 0},
                                     {.query_heads = 0, .key_heads = 0},
                                     {.query_heads = 0, .key_heads = 2},
                                     {.queries = 0, .keys = 3},
                                     {.queries = 3, .keys = 0},
                                     {.value_dim = 0},
                                     {.head_dim = 0}};
  for (const Shape& shape : shapes) {
    const Call call(make_problem(shape), testing::kSinks, 1);
    SCOPED_TRACE(testing::describe(call.problem));
    const reference::Outputs outputs = call.forward();
    EXPECT_EQ(outputs.out.size(), call.grad_out.size());
    EXPECT_EQ(outputs.lse.size(), call.grad_lse.size());
    for (const double value : outputs.out) EXPECT_TRUE(std::isfinite(value));
    EXPECT_EQ(call.backward().key.size(), call.key.size());
  }
}

}  // namespace
}  // namespace iha
