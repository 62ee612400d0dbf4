#include "iha/patterns/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "tests/patterns/all_patterns.h"

namespace iha {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Parse, ReadsEveryMode) {
  const std::vector<std::pair<std::string, Pattern>> modes{
      {"global", global()},
      {"causal", causal()},
      {"sliding:64", sliding(64)},
      {"causal_sliding:64", causal_sliding(64)},
      {"window:3:5", window(3, 5)},
      {"strided:4", strided(4)},
      {"causal_strided:4", causal_strided(4)},
      {"every:4", every(4)},
      {"causal_every:4", causal_every(4)},
      {"chunked:16", chunked(16)},
      {"causal_chunked:16", causal_chunked(16)},
      {"window:5:0", causal_sliding(5)},
      {"sliding:0", causal_sliding(0)},
      {"strided:1", strided(1)},
      {"sliding:007", sliding(7)},
      {"sliding:9223372036854775807", global()},
      {"causal+first:4", causal().with_first(4)},
      {"window:0:2+first:1", window(0, 2).with_first(1)},
      {"every:9+first:0", every(9)},
      {"dynamic:64:4", dynamic(64, 4)},
      {"causal_dynamic:16:1", causal_dynamic(16, 1)},
      {"learned(causal)", learned({causal()})},
      {"learned(global|sliding:64|strided:8+first:2)",
       learned({global(), sliding(64), strided(8).with_first(2)})},
  };
  for (const auto& [text, pattern] : modes) {
    EXPECT_EQ(parse_pattern(text), pattern) << text;
    EXPECT_EQ(parse_patterns(text), PatternList(pattern)) << text;
  }
}

TEST(Parse, ReadsCountsOnEitherSide) {
  EXPECT_EQ(parse_patterns("causal*4,2xsliding:64,global+first:4"),
            causal() * 4 + sliding(64) * 2 + global().with_first(4));
  EXPECT_EQ(parse_patterns("3xcausal+first:2"), causal().with_first(2) * 3);
  EXPECT_EQ(parse_patterns("causal+first:2*3"), causal().with_first(2) * 3);
  EXPECT_EQ(parse_patterns("causal*1"), causal() * 1);
  EXPECT_EQ(parse_patterns("1xcausal"), causal() * 1);
  EXPECT_NE(parse_patterns("1xcausal"), PatternList(causal()));
  EXPECT_EQ(parse_patterns("causal,causal"), causal() * 2);
  EXPECT_EQ(parse_patterns("causal*65536").entries().size(), 65536U);
}

TEST(Print, WritesCanonicalNamesAndRuns) {
  EXPECT_EQ(to_text(PatternList(causal())), "causal");
  EXPECT_EQ(to_text(causal() * 1), "causal*1");
  EXPECT_EQ(to_text(causal() * 4 + sliding(64) * 2 + global()), "causal*4,sliding:64*2,global");
  EXPECT_EQ(to_text(global() + causal() + global()), "global,causal,global");
  EXPECT_EQ(to_text(parse_patterns("window:5:0,causal_sliding:5,sliding:0+first:2")),
            "causal_sliding:5*2,causal_sliding:0+first:2");
  EXPECT_EQ(to_text(window(Pattern::kUnbounded, 2)), "window:9223372036854775807:2");
}

TEST(Print, RoundTripsLearnedAndDynamicPatterns) {
  std::vector<Pattern> patterns = testing::learned_patterns();
  patterns.insert(patterns.end(), {dynamic(4, 2), causal_dynamic(4, 1)});
  for (const Pattern& pattern : patterns) {
    for (const PatternList& list : {PatternList(pattern), pattern * 1, pattern * 3, pattern + causal()}) {
      EXPECT_EQ(parse_patterns(to_text(list)), list) << to_text(list);
    }
  }
  EXPECT_EQ(parse_patterns("2xlearned(global|causal),dynamic:8:1*2"),
            learned({global(), causal()}) * 2 + dynamic(8, 1) * 2);
}

TEST(Parse, RefusesWhatLearnedAndDynamicHeadsAreNot) {
  const std::vector<std::pair<std::string, std::string>> mistakes{
      {"learned", "column 8: found the end, expected \"(\""},
      {"learned()", "column 9: found \")\", expected a mode: global"},
      {"learned(global", "found the end, expected \"|\" and a mode, or \")\""},
      {"learned(global|slidng:3)",
       "column 16: found \"slidng:3)\", expected a mode: did you mean \"sliding\"?"},
      {"learned(global*2)", "column 15: found \"*2)\", expected \"|\" and a mode"},
      {"learned(global|learned(causal))", "expected a candidate that is not learned"},
      {"learned(global|dynamic:8:1)", "expected a candidate that is not dynamic"},
      {"learned(global)+first:2", "expected no modifier: candidates have their own"},
      {"learned(causal|causal|causal|causal|causal|causal|causal|causal|causal)", "at most 8 candidates"},
      {"leraned(global)", "did you mean \"learned\"?"},
      {"dynamic:8", "expected \":K\", as in dynamic:B:K"},
      {"dynamic:0:1", "expected B of dynamic:B:K, an integer of at least 1"},
      {"dynamic:8:0", "expected K of dynamic:B:K, an integer of at least 1"},
      {"dynamic:8:1+first:2", "expected no modifier: a dynamic head weighs whole blocks"},
      {"dynamic:8:1,causal_dynamic:4:1", "blocks of 8 and of 4 tokens, expected one size"},
  };
  for (const auto& [text, expected] : mistakes) {
    try {
      parse_patterns(text);
      ADD_FAILURE() << text << " is taken";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(expected)) << text;
    }
  }
}

TEST(Print, RoundTripsEveryNamedPattern) {
  PatternList everything = global() * 2;
  for (const Pattern& base : testing::named_bases()) {
    for (const int64_t first : {0, 1, 50}) {
      const Pattern pattern = base.with_first(first);
      EXPECT_EQ(parse_pattern(to_text(pattern)), pattern) << to_text(pattern);
      for (const PatternList& list : {PatternList(pattern), pattern * 1, pattern * 3, pattern + causal()}) {
        EXPECT_EQ(parse_patterns(to_text(list)), list) << to_text(list);
      }
      everything = everything + pattern;
    }
  }
  EXPECT_EQ(parse_patterns(to_text(everything)), everything);
}

TEST(Print, RefusesWhatTheGrammarHasNoNameFor) {
  const auto error_of = [](const auto& value) -> std::string {
    try {
      return to_text(value);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  };
  EXPECT_THAT(error_of(Pattern{.left = 4, .right = 0, .chunk = 8}),
              HasSubstr("the grammar has no name for it"));
  EXPECT_THAT(error_of(Pattern{.right = 3, .step = Step::kRelative, .every = 2}), HasSubstr("no name"));
  EXPECT_THAT(error_of(Pattern{.step = Step::kAbsolute, .every = 2, .chunk = 8}), HasSubstr("no name"));
  EXPECT_THAT(error_of(Pattern{.left = -4}), HasSubstr("left window is -4"));
  EXPECT_THAT(error_of(PatternList(std::vector<Pattern>{})), HasSubstr("0 heads, expected at least one"));
}

struct Fault {
  std::string text;
  std::string message;  // after "iha::parse_patterns: "
};

const Fault kFaults[] = {
    {"causl*4", R"("causl*4", column 1: found "causl*4", expected a mode: did you mean "causal"?)"},
    {"causal*4,slidng:3", R"(column 10: found "slidng:3", expected a mode: did you mean "sliding"?)"},
    {"casual", R"(did you mean "causal"?)"},
    {"Causal", R"(did you mean "causal"?)"},
    {"chunk:8", R"(did you mean "chunked"?)"},
    {"causal_slide:8", R"(did you mean "causal_sliding"?)"},
    {"local", "expected a mode: global, causal, sliding:W, causal_sliding:W, window:L:R, strided:K, "},
    {std::string(5000, 'a'), R"(aaa...", expected a mode: global)"},
    {"", R"("", column 1: found the end, expected a mode: global)"},
    {"causal,", "column 8: found the end, expected a mode"},
    {",causal", R"(column 1: found ",", expected a mode)"},
    {"causal,,causal", R"(column 8: found ",", expected a mode)"},
    {"causal, global", R"(column 8: found " global", expected a mode (a list has no spaces))"},
    {" causal", R"(column 1: found " causal", expected a mode (a list has no spaces))"},
    {"causal ", R"(column 1: found "causal ", expected a mode (a list has no spaces))"},
    {"sliding:3 ,causal", R"(column 10: found " ", expected "*count", "+first:S", "," or the end)"},
    {"sliding", R"(column 8: found the end, expected ":W", as in sliding:W)"},
    {"sliding*2", R"(column 8: found "*2", expected ":W", as in sliding:W)"},
    {"sliding:", "column 9: found the end, expected W of sliding:W, an integer of at least 0"},
    {"sliding:-3", R"(column 9: found "-3", expected W of sliding:W, an integer of at least 0)"},
    {"sliding:+3", R"(column 9: found "+3", expected W of sliding:W)"},
    {"sliding:w,causal", R"(column 9: found "w", expected W of sliding:W)"},
    {"sliding:3.5", R"(column 10: found ".5", expected "*count")"},
    {"sliding:9223372036854775808", "expected W of sliding:W, an integer of at most 9223372036854775807"},
    {"sliding:99999999999999999999999999", "an integer of at most 9223372036854775807"},
    {"sliding:184467440737095516160",
     "an integer of at most 9223372036854775807"},  // 2^64, which wraps to 0, by 10
    {"window:3", R"(column 9: found the end, expected ":R", as in window:L:R)"},
    {"window:3:", "column 10: found the end, expected R of window:L:R, an integer of at least 0"},
    {"window:3:4:5", R"(column 11: found ":5", expected "*count")"},
    {"causal:3", R"(column 7: found ":3", expected "*count", "+first:S", "," or the end)"},
    {"strided:0", R"(column 9: found "0", expected K of strided:K, an integer of at least 1)"},
    {"causal_every:0*3", R"(found "0*3", expected K of causal_every:K, an integer of at least 1)"},
    {"chunked:0", R"(found "0", expected C of chunked:C, an integer of at least 1)"},
    {"causal*0", R"(column 8: found "0", expected a count, an integer of at least 1)"},
    {"causal*-1", R"(column 8: found "-1", expected a count)"},
    {"causal*", "column 8: found the end, expected a count"},
    {"causal*4x", R"(column 9: found "x", expected "," or the end)"},
    {"0xcausal", R"(column 1: found "0xcausal", expected a count, an integer of at least 1)"},
    {"4causal", R"(column 2: found "causal", expected "x" and a mode after the count)"},
    {"4x", "column 3: found the end, expected a mode"},
    {"4xcausal*2", R"(column 9: found "*2", expected "," or the end)"},
    {"4x4xcausal", R"(column 3: found "4xcausal", expected a mode: global)"},
    {"causal*999999999999", R"(column 1: found "causal*999999999999", expected at most 65536 heads in all)"},
    {"causal*65536,global", R"(column 14: found "global", expected at most 65536 heads in all)"},
    {"999999999999999999999xcausal", "expected a count, an integer of at most 9223372036854775807"},
    {"causal+", R"(column 8: found the end, expected "first:S" after "+")"},
    {"causal+last:3", R"(column 8: found "last:3", expected "first:S")"},
    {"causal+first", R"(column 13: found the end, expected ":S", as in +first:S)"},
    {"causal+first:", "column 14: found the end, expected S of +first:S, an integer of at least 0"},
    {"causal+first:-1", R"(found "-1", expected S of +first:S)"},
    {"causal+first:2+first:3", R"(column 15: found "+first:3", expected "*count")"},
    {"causal*2+first:2", R"(column 9: found "+first:2", expected "," or the end)"},
    {"sliding:3\n", R"(found "\x0a", expected "*count")"},
    {"\xff", R"("\xff", column 1: found "\xff", expected a mode)"},
    {std::string("causal\0", 7), R"(found "causal\x00", expected a mode: did you mean "causal"?)"},
};

TEST(Parse, FaultsNamePositionFoundAndExpected) {
  for (const auto& [text, message] : kFaults) {
    try {
      parse_patterns(text);
      ADD_FAILURE() << text << " was accepted";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(std::string(error.what()), StartsWith("iha::parse_patterns: \""));
      EXPECT_THAT(std::string(error.what()), HasSubstr(message));
    }
  }
}

TEST(Parse, ASingleModeHasNoCountAndNoCompany) {
  for (const char* text : {"causal*2", "causal,global", "2xcausal"}) {
    try {
      parse_pattern(text);
      FAIL() << text << " was accepted";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(std::string(error.what()), HasSubstr("iha::parse_pattern: "));
    }
  }
}

}  // namespace
}  // namespace iha
