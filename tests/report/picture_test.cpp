#include "iha/report/picture.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "iha/patterns/parse.h"

namespace iha::report {
namespace {

TEST(Describe, EveryModeInWords) {
  for (const auto& [mode, words] : std::vector<std::pair<std::string, std::string>>{
           {"global", "all tokens"},
           {"causal", "itself and all tokens before"},
           {"sliding:3", "itself and 3 tokens on each side"},
           {"sliding:1", "itself and one token on each side"},
           {"sliding:0", "itself only"},
           {"causal_sliding:64", "itself and the 64 tokens before"},
           {"causal_sliding:1", "itself and the token before"},
           {"window:0:7", "itself and the 7 tokens after"},
           {"window:5:1", "itself, the 5 tokens before and the token after"},
           {"strided:2", "every 2nd token counted from itself"},
           {"causal_strided:11", "every 11th token counted from itself, up to itself"},
           {"causal_strided:1", "itself and all tokens before"},
           {"every:3", "every 3rd token of the text"},
           {"causal_every:21", "every 21st token of the text, up to itself"},
           {"chunked:8", "all tokens within its own block of 8"},
           {"causal_chunked:8", "all tokens within its own block of 8, up to itself"},
           {"causal_sliding:2+first:1", "itself and the 2 tokens before, and always the first token"},
           {"global+first:4", "all tokens, and always the first 4 tokens"}}) {
    EXPECT_EQ(describe(parse_pattern(mode)), words) << mode;
  }
}

TEST(Describe, PatternsWithoutAName) {
  EXPECT_EQ(describe(Pattern{.left = 12, .right = 0, .step = Step::kRelative, .every = 4, .chunk = 16}),
            "every 4th token counted from itself within its own block of 16, among itself and the 12 tokens "
            "before");
}

TEST(Describe, HeadsThatChoose) {
  EXPECT_EQ(describe(parse_pattern("learned(global|causal_sliding:1)")),
            "by learned weights: (all tokens) or (itself and the token before)");
  EXPECT_EQ(describe(parse_pattern("dynamic:64:4")), "its own block of 64 and the 4 others that it chooses");
  EXPECT_EQ(describe(parse_pattern("causal_dynamic:8:1")),
            "its own block of 8 and the 1 other that it chooses, up to itself");
}

TEST(Family, EveryModeHasOne) {
  for (const auto& [mode, family] :
       std::vector<std::pair<std::string, Family>>{{"global", Family::kGlobal},
                                                   {"global+first:1", Family::kGlobal},
                                                   {"causal", Family::kCausal},
                                                   {"causal_strided:1", Family::kCausal},
                                                   {"sliding:0", Family::kSliding},
                                                   {"causal_sliding:9", Family::kSliding},
                                                   {"window:3:1", Family::kSliding},
                                                   {"strided:2", Family::kStrided},
                                                   {"every:2", Family::kEvery},
                                                   {"causal_chunked:4", Family::kChunked},
                                                   {"learned(causal|global)", Family::kLearned},
                                                   {"causal_dynamic:4:1", Family::kDynamic}}) {
    EXPECT_EQ(family_of(parse_pattern(mode)), family) << mode;
  }
  EXPECT_EQ(colour_name(Family::kCausal), "green");
  EXPECT_EQ(colour_name(Family::kSliding), "blue");
  EXPECT_EQ(colour_name(Family::kGlobal), "orange");
}

TEST(AsciiPicture, CellsAreTokens) {
  EXPECT_EQ(ascii_picture(parse_pattern("causal_sliding:1"), 4), "#...\n##..\n.##.\n..##\n");
  EXPECT_EQ(ascii_picture(parse_pattern("strided:3"), 4), "#..#\n.#..\n..#.\n#..#\n");
  EXPECT_EQ(ascii_picture(parse_pattern("causal"), 0), "");
}

TEST(AsciiPicture, CellsAreBlocks) {
  EXPECT_EQ(ascii_picture(parse_pattern("causal"), 6, 3), "+..\n#+.\n##+\n");
  EXPECT_EQ(ascii_picture(parse_pattern("causal"), 5, 3), "+..\n#+.\n###\n");  // the last block is one token
  EXPECT_EQ(ascii_picture(parse_pattern("global"), 1'000'000, 2), "##\n##\n");
  EXPECT_THROW(ascii_picture(causal(), 4, 0), std::invalid_argument);
}

}  // namespace
}  // namespace iha::report
