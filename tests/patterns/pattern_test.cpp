#include "iha/patterns/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>

#include "iha/patterns/parse.h"

namespace iha {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

// The table of the grammar in other words: sets of offsets and remainders, floor by floating point.
int64_t floor_of(int64_t x, int64_t k) {
  return static_cast<int64_t>(std::floor(static_cast<double>(x) / static_cast<double>(k)));
}
bool divides(int64_t k, int64_t x) {
  return floor_of(x, k) * k == x;
}

struct Row {
  Pattern pattern;
  std::function<bool(int64_t i, int64_t j)> sees;
};

TEST(Predicate, FollowsTheTableAtPositionsOfBothSigns) {
  const std::vector<Row> rows{
      {global(), [](auto, auto) { return true; }},
      {causal(), [](auto i, auto j) { return j <= i; }},
      {sliding(3), [](auto i, auto j) { return std::abs(i - j) <= 3; }},
      {sliding(0), [](auto i, auto j) { return i == j; }},
      {causal_sliding(3), [](auto i, auto j) { return i - j >= 0 && i - j <= 3; }},
      {window(2, 5), [](auto i, auto j) { return j >= i - 2 && j <= i + 5; }},
      {window(0, 1), [](auto i, auto j) { return j == i || j == i + 1; }},
      {strided(3), [](auto i, auto j) { return divides(3, i - j); }},
      {causal_strided(3), [](auto i, auto j) { return j <= i && divides(3, i - j); }},
      {every(4), [](auto, auto j) { return divides(4, j); }},
      {causal_every(4), [](auto i, auto j) { return j <= i && divides(4, j); }},
      {chunked(5), [](auto i, auto j) { return floor_of(i, 5) == floor_of(j, 5); }},
      {causal_chunked(5), [](auto i, auto j) { return j <= i && floor_of(i, 5) == floor_of(j, 5); }},
      {sliding(1).with_first(2), [](auto i, auto j) { return j < 2 || std::abs(i - j) <= 1; }},
      {causal_sliding(1).with_first(2), [](auto i, auto j) { return j <= i && (j < 2 || i - j <= 1); }},
      {sliding(0).with_first(2), [](auto i, auto j) { return j <= i && (j < 2 || i == j); }},
      {every(4).with_first(3), [](auto, auto j) { return j < 3 || divides(4, j); }},
      {causal_chunked(5).with_first(9),
       [](auto i, auto j) { return j <= i && (j < 9 || floor_of(i, 5) == floor_of(j, 5)); }},
      {dynamic(4, 1), [](auto, auto) { return true; }},
      {causal_dynamic(4, 1), [](auto i, auto j) { return j <= i; }},
      {learned({strided(5), causal_sliding(1).with_first(2)}),
       [](auto i, auto j) { return divides(5, i - j) || (j <= i && (j < 2 || i - j <= 1)); }},
  };
  for (const Row& row : rows) {
    for (int64_t i = -20; i < 30; ++i) {
      for (int64_t j = 0; j < 30; ++j) {
        ASSERT_EQ(visible(row.pattern, i, j), row.sees(i, j))
            << to_text(row.pattern) << " query " << i << " key " << j;
      }
    }
  }
}

TEST(Predicate, LearnedPatternsAreCausalWhereAllCandidatesAre) {
  EXPECT_TRUE(learned({causal(), sliding(0), causal_every(3)}).causal());
  EXPECT_FALSE(learned({causal(), sliding(1)}).causal());
  EXPECT_EQ(most_candidates({causal(), learned({causal()}), learned({global(), causal()})}), 2);
  EXPECT_EQ(dynamic_block({causal(), dynamic(8, 1), causal_dynamic(8, 3)}, "here"), 8);
  EXPECT_THAT(error_of([] {
                dynamic_block({dynamic(8, 1), dynamic(4, 1)}, "here");
              }),
              HasSubstr("here: dynamic heads with blocks of 8 and of 4"));
  EXPECT_THAT(error_of([] { learned({}); }), HasSubstr("0 candidates"));
  EXPECT_THAT(error_of([] { learned({learned({causal()})}); }), HasSubstr("a learned candidate"));
  EXPECT_THAT(error_of([] { learned({dynamic(4, 1)}); }), HasSubstr("a dynamic candidate"));
  EXPECT_THAT(error_of([] { learned(std::vector<Pattern>(9, causal())); }), HasSubstr("9 candidates"));
  EXPECT_THAT(error_of([] { learned({causal()}).with_first(1); }), HasSubstr("a learned pattern"));
  EXPECT_THAT(error_of([] { dynamic(4, 1).with_first(1); }), HasSubstr("a dynamic pattern"));
  EXPECT_THAT(error_of([] { dynamic(0, 1); }), HasSubstr("the block is 0"));
  EXPECT_THAT(error_of([] { causal_dynamic(1, 0); }), HasSubstr("chosen blocks is 0"));
}

TEST(Predicate, CausalIsRightWindowZeroWhateverItIsCalled) {
  EXPECT_EQ(window(4, 0), causal_sliding(4));
  EXPECT_EQ(sliding(0), causal_sliding(0));
  EXPECT_EQ(window(Pattern::kUnbounded, 0), causal());
  EXPECT_EQ(sliding(Pattern::kUnbounded), global());
  for (const Pattern& pattern :
       {causal(), sliding(0), causal_strided(2), causal_every(2), causal_chunked(2)}) {
    EXPECT_TRUE(pattern.causal() && pattern.with_first(3).causal()) << to_text(pattern);
  }
  for (const Pattern& pattern : {global(), sliding(1), window(0, 1), strided(1), every(1), chunked(1)}) {
    EXPECT_FALSE(pattern.causal()) << to_text(pattern);
  }
}

// One row of the list of known faults: a window of 2 keys, self counted, is causal_sliding:1 here.
TEST(Predicate, CountsTheWindowWithoutSelf) {
  std::vector<int> counts;
  for (int64_t i = 0; i < 5; ++i) {
    int count = 0;
    for (int64_t j = 0; j < 5; ++j) count += visible(causal_sliding(1), i, j) ? 1 : 0;
    counts.push_back(count);
  }
  EXPECT_THAT(counts, ::testing::ElementsAre(1, 2, 2, 2, 2));
}

TEST(Predicate, WindowsAsWideAsTheIntegersDoNotOverflow) {
  const int64_t far = int64_t{1} << 53;
  const Pattern widest = window(Pattern::kUnbounded - 1, Pattern::kUnbounded - 1);
  EXPECT_TRUE(visible(widest, -far, far));
  EXPECT_TRUE(visible(chunked(Pattern::kUnbounded), 0, far));
  EXPECT_FALSE(visible(chunked(Pattern::kUnbounded), -1, 0));
}

TEST(Builders, RefuseValuesThatNoPredicateHas) {
  EXPECT_EQ(error_of([] { sliding(-3); }), "iha::sliding: the window is -3, expected at least 0");
  EXPECT_EQ(error_of([] { causal_sliding(-1); }),
            "iha::causal_sliding: the window is -1, expected at least 0");
  EXPECT_EQ(error_of([] { window(-1, 2); }), "iha::window: the left window is -1, expected at least 0");
  EXPECT_EQ(error_of([] { window(1, -2); }), "iha::window: the right window is -2, expected at least 0");
  EXPECT_EQ(error_of([] { strided(0); }), "iha::strided: the step is 0, expected at least 1");
  EXPECT_EQ(error_of([] { causal_strided(-1); }), "iha::causal_strided: the step is -1, expected at least 1");
  EXPECT_EQ(error_of([] { every(0); }), "iha::every: the step is 0, expected at least 1");
  EXPECT_EQ(error_of([] { causal_every(0); }), "iha::causal_every: the step is 0, expected at least 1");
  EXPECT_EQ(error_of([] { chunked(0); }), "iha::chunked: the chunk is 0, expected at least 1");
  EXPECT_EQ(error_of([] { causal_chunked(-8); }),
            "iha::causal_chunked: the chunk is -8, expected at least 1");
  EXPECT_THAT(error_of([] { causal().with_first(-1); }), HasSubstr("the number of first tokens is -1"));
}

TEST(Builders, ValuesWrittenByHandAreCheckedTheSame) {
  EXPECT_EQ(error_of([] { check(Pattern{.left = -1}, "iha::attention"); }),
            "iha::attention: a pattern's left window is -1, expected at least 0");
  EXPECT_THAT(error_of([] { check(Pattern{.right = -2}, "x"); }), HasSubstr("right window is -2"));
  EXPECT_THAT(error_of([] { check(Pattern{.every = 0}, "x"); }), HasSubstr("step is 0, expected at least 1"));
  EXPECT_THAT(error_of([] { check(Pattern{.chunk = -1}, "x"); }), HasSubstr("chunk is -1"));
  EXPECT_THAT(error_of([] { check(Pattern{.first = -1}, "x"); }), HasSubstr("first tokens is -1"));
  EXPECT_NO_THROW(
      check(Pattern{.left = 3, .right = 1, .step = Step::kAbsolute, .every = 2, .chunk = 4}, "x"));
}

TEST(PatternList, ComposesHeadsInOrder) {
  const PatternList list = causal() * 2 + sliding(64) + 2 * global();
  EXPECT_THAT(list.entries(), ::testing::ElementsAre(causal(), causal(), sliding(64), global(), global()));
  EXPECT_FALSE(list.for_all());
  EXPECT_EQ(list.expand(5), list.entries());
  EXPECT_THAT((causal() + global()).entries(), ::testing::ElementsAre(causal(), global()));
}

TEST(PatternList, OnePatternServesAllHeadsAndOneCountedHeadOnlyItself) {
  const PatternList all = causal();
  EXPECT_TRUE(all.for_all());
  EXPECT_THAT(all.expand(3), ::testing::ElementsAre(causal(), causal(), causal()));
  EXPECT_TRUE(all.expand(0).empty());
  EXPECT_NE(all, causal() * 1);
  EXPECT_EQ(error_of([] { (causal() * 1).expand(2, "iha::attention"); }),
            "iha::attention: patterns for 1 heads, expected 2 (one a head) or a single one without a count");
  EXPECT_THAT(error_of([] { (causal() * 12).expand(8); }), HasSubstr("patterns for 12 heads, expected 8"));
  EXPECT_THAT(error_of([&] { all.expand(-1); }), HasSubstr("-1 heads, expected at least 0"));
}

TEST(PatternList, RefusesCountsBelowOneAndAbsurdOnes) {
  EXPECT_THAT(error_of([] { causal() * 0; }), HasSubstr("for 0 heads, expected 1 to 65536"));
  EXPECT_THAT(error_of([] { -4 * causal(); }), HasSubstr("for -4 heads, expected 1 to 65536"));
  EXPECT_THAT(error_of([] { causal() * std::numeric_limits<int64_t>::max(); }),
              HasSubstr("expected 1 to 65536"));
  EXPECT_THAT(error_of([] { causal() * PatternList::kMaxHeads + global(); }),
              HasSubstr("65537 heads, expected at most 65536"));
}

}  // namespace
}  // namespace iha
