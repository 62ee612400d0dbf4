#include "iha/schedule/kept_keys.h"

#include <gtest/gtest.h>

#include "iha/patterns/parse.h"

namespace iha {
namespace {

// Walks later queries until every residue and every chunk has had its turn.
int64_t by_walking(const Pattern& pattern, int64_t tokens) {
  int64_t kept = 0;
  for (int64_t key = 0; key < tokens; ++key) {
    bool seen = false;
    for (int64_t query = tokens - 1; query < tokens + 70 && !seen; ++query)
      seen = visible(pattern, query, key);
    kept += seen ? 1 : 0;
  }
  return kept;
}

TEST(KeptKeys, AreThoseThatALaterQuerySees) {
  for (const std::string name :
       {"causal", "global", "causal_sliding:0", "causal_sliding:4", "sliding:7", "causal_sliding:60",
        "window:5:2", "causal_strided:3", "strided:7", "causal_every:4", "every:5", "causal_chunked:6",
        "chunked:8", "causal_sliding:3+first:2", "causal_every:4+first:3", "causal_chunked:5+first:2"}) {
    const Pattern pattern = parse_pattern(name);
    for (int64_t tokens = 0; tokens <= 33; ++tokens)
      EXPECT_EQ(kept_keys(pattern, tokens), by_walking(pattern, tokens))
          << name << ", " << tokens << " tokens";
  }
}

TEST(KeptKeys, StepsWithinAWindow) {
  Pattern pattern = causal_sliding(10);
  pattern.step = Step::kRelative;
  pattern.every = 4;
  for (int64_t tokens = 0; tokens <= 33; ++tokens)
    EXPECT_EQ(kept_keys(pattern, tokens), by_walking(pattern, tokens)) << tokens << " tokens";
}

TEST(KeptKeys, NegativeLengthsAreRefused) {
  EXPECT_THROW(kept_keys(causal(), -1), std::invalid_argument);
}

}  // namespace
}  // namespace iha
