#include "iha/patterns/count.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "iha/patterns/arithmetic.h"
#include "tests/patterns/all_patterns.h"

namespace iha {
namespace {

std::string describe(const Pattern& pattern) {
  std::ostringstream stream;
  for (const Pattern& candidate : pattern.candidates) stream << "candidate " << describe(candidate) << "; ";
  stream << "left " << pattern.left << " right " << pattern.right << " step "
         << static_cast<int>(pattern.step) << " every " << pattern.every << " chunk " << pattern.chunk
         << " first " << pattern.first;
  return stream.str();
}

TEST(Arithmetic, RoundsDownOnBothSides) {
  for (int64_t k = 1; k <= 7; ++k) {
    int64_t quotient = -3;  // of -3 k, counted up
    for (int64_t x = -3 * k; x < 3 * k; ++x) {
      if (x == (quotient + 1) * k) ++quotient;
      EXPECT_EQ(floor_div(x, k), quotient) << x << " / " << k;
      EXPECT_EQ(floor_mod(x, k), x - quotient * k) << x << " mod " << k;
    }
  }
  EXPECT_EQ(add_saturated(5, Pattern::kUnbounded), Pattern::kUnbounded);
  EXPECT_EQ(subtract_saturated(-5, Pattern::kUnbounded), std::numeric_limits<int64_t>::min());
}

TEST(Count, KeysOfARowEqualThePredicates) {
  for (const Pattern& pattern : testing::all_patterns()) {
    for (int64_t query = -45; query < 60; ++query) {
      int64_t seen = 0;
      for (int64_t keys = 0; keys <= 41; ++keys) {
        ASSERT_EQ(visible_keys(pattern, query, keys), seen)
            << describe(pattern) << " query " << query << " keys " << keys;
        seen += visible(pattern, query, keys) ? 1 : 0;
      }
    }
  }
}

TEST(Count, BaseRangeAndFirstKeysHoldTheRowAndGrowWithIt) {
  for (const Pattern& pattern : testing::all_patterns()) {
    for (const int64_t keys : {0, 1, 17, 40}) {
      KeyRange previous = base_range(pattern, -46, keys);
      for (int64_t query = -45; query < 60; ++query) {
        const KeyRange range = base_range(pattern, query, keys);
        ASSERT_TRUE(0 <= range.begin && range.begin <= range.end && range.end <= keys);
        ASSERT_TRUE(previous.begin <= range.begin && previous.end <= range.end) << describe(pattern);
        previous = range;
        const int64_t first = first_keys(pattern, query, keys);
        for (int64_t key = 0; key < keys; ++key) {
          const bool in_range = key >= range.begin && key < range.end;
          ASSERT_TRUE(in_range || !base_visible(pattern, query, key)) << describe(pattern);
          ASSERT_TRUE(key >= first || visible(pattern, query, key)) << describe(pattern);
          ASSERT_TRUE(in_range || key < first || !visible(pattern, query, key)) << describe(pattern);
        }
      }
    }
  }
}

TEST(Count, PairsOfAHeadAreTheSumOfItsRows) {
  for (const Pattern& pattern : testing::all_patterns()) {
    for (const int64_t offset : {-50, -7, 0, 3, 45}) {
      int64_t pairs = 0;
      for (int64_t i = 0; i < 20; ++i) {
        for (int64_t j = 0; j < 33; ++j) pairs += visible(pattern, offset + i, j) ? 1 : 0;
      }
      ASSERT_EQ(visible_pairs(pattern, 20, 33, offset), pairs) << describe(pattern) << " offset " << offset;
    }
  }
  EXPECT_EQ(visible_pairs(global(), 0, 5, 0), 0);
  EXPECT_EQ(visible_pairs(global(), 5, 0, -5), 0);
}

// Pseudo-pair (i, p), (j, r) from the definition: r = p in the parallel layout; r <= p at j = i of causal
// patterns in flat order.
bool pseudo_visible(const Pattern& pattern, int64_t i, int64_t p, int64_t j, int64_t r, bool flat) {
  if (pattern.learned()) {
    return std::any_of(pattern.candidates.begin(), pattern.candidates.end(),
                       [&](const Pattern& one) { return pseudo_visible(one, i, p, j, r, flat); });
  }
  const bool later = flat && pattern.causal() && i == j && r > p;
  return visible(pattern, i, j) && !later;
}

int64_t brute_pseudo_pairs(const Pattern& pattern, int64_t queries, int64_t keys, int64_t offset,
                           int64_t pseudo_heads, bool interleaved, bool flat) {
  int64_t pairs = 0;
  for (int64_t i = offset; i < offset + queries; ++i) {
    for (int64_t j = 0; j < keys; ++j) {
      for (int64_t p = 0; p < pseudo_heads; ++p) {
        for (int64_t r = 0; r < pseudo_heads; ++r) {
          pairs += pseudo_visible(pattern, i, p, j, r, flat) && (interleaved || r == p) ? 1 : 0;
        }
      }
    }
  }
  return pairs;
}

TEST(Count, PseudoPairsFollowLayoutAndOrder) {
  for (const Pattern& pattern : testing::all_patterns()) {
    for (const int64_t offset : {-12, -3, 0, 2, 9}) {
      for (const int64_t pseudo_heads : {1, 3}) {
        for (const bool interleaved : {false, true}) {
          for (const bool flat : {false, true}) {
            ASSERT_EQ(visible_pseudo_pairs(pattern, 7, 10, offset, pseudo_heads, interleaved, flat),
                      brute_pseudo_pairs(pattern, 7, 10, offset, pseudo_heads, interleaved, flat))
                << describe(pattern) << " offset " << offset << " P " << pseudo_heads << " interleaved "
                << interleaved << " flat " << flat;
          }
        }
      }
    }
  }
}

// 12 heads of 4096 tokens as published: 4 causal, 4 with a window of 256 on each side, 4 global.
TEST(Count, ThePublishedExample) {
  const int64_t n = 4096, w = 256;
  EXPECT_EQ(visible_pairs(causal(), n, n, 0), n * (n + 1) / 2);
  EXPECT_EQ(visible_pairs(sliding(w), n, n, 0), n * (2 * w + 1) - w * (w + 1));
  EXPECT_EQ(visible_pairs(global(), n, n, 0), n * n);
}

// A query's own block, cut at itself where the head is causal, and the largest others that there are.
TEST(Count, DynamicHeadsReadAtMostTheirBlocks) {
  for (const Pattern& pattern : {dynamic(4, 2), causal_dynamic(4, 2), dynamic(7, 1), causal_dynamic(3, 50),
                                 dynamic(100, 1), causal_dynamic(1, 1)}) {
    for (int64_t query = -5; query < 30; ++query) {
      for (const int64_t keys : {0, 1, 4, 9, 23}) {
        std::vector<int64_t> sizes;
        int64_t own = 0;
        for (int64_t begin = 0; begin < keys; begin += pattern.block) {
          int64_t seen = 0;
          for (int64_t j = begin; j < std::min(keys, begin + pattern.block); ++j) {
            seen += visible(pattern, query, j) ? 1 : 0;
          }
          (floor_div(query, pattern.block) == begin / pattern.block ? own : sizes.emplace_back()) = seen;
        }
        std::sort(sizes.rbegin(), sizes.rend());
        int64_t most = own;
        for (int64_t k = 0; k < std::min<int64_t>(pattern.chosen, static_cast<int64_t>(sizes.size())); ++k) {
          most += sizes[k];
        }
        // The last block may be the short one that is not chosen: a bound, and exact where blocks are whole.
        const int64_t found = read_keys(pattern, query, keys);
        EXPECT_GE(found, most) << query << " of " << keys;
        EXPECT_LE(found, visible_keys(pattern, query, keys));
        if (keys % pattern.block == 0) {
          EXPECT_EQ(found, most) << query << " of " << keys;
        }
      }
    }
  }
  EXPECT_EQ(read_keys(dynamic(Pattern::kUnbounded, Pattern::kUnbounded), 3, 10), 10);
  EXPECT_EQ(read_keys(causal(), 3, 10), 4);
  EXPECT_EQ(read_pseudo_pairs(causal_dynamic(4, 1), 8, 8, 0, 2, true, true),
            4 * (10 + 16 + 10) - 8);  // own halves, one whole block for the second four queries; r > p
}

TEST(Count, PositionsAndWindowsAtTheirLimits) {
  const int64_t far = int64_t{1} << 53;
  // Steps whose product no int64 holds.
  const int64_t prime = (int64_t{1} << 31) - 1, other = (int64_t{1} << 61) - 1;
  EXPECT_EQ(visible_keys(learned({every(prime), every(other)}), 0, far), far / prime + 1);
  EXPECT_EQ(visible_keys(learned({every(prime - 1), every(prime)}), 0, far),
            far / prime + far / (prime - 1) + 1);
  EXPECT_EQ(visible_keys(learned({strided(prime), every(prime)}), 5, far), 2 * (far / prime + 1));
  EXPECT_EQ(visible_keys(causal(), far, far), far);
  EXPECT_EQ(visible_keys(causal_sliding(Pattern::kUnbounded - 1), far, far + 10), far + 1);
  EXPECT_EQ(visible_keys(sliding(Pattern::kUnbounded - 1), -far, far), far);
  EXPECT_EQ(visible_keys(chunked(Pattern::kUnbounded), 5, far), far);
  EXPECT_EQ(visible_keys(chunked(Pattern::kUnbounded), -5, far), 0);
  EXPECT_EQ(visible_keys(every(Pattern::kUnbounded), far, far), 1);
  EXPECT_EQ(visible_keys(causal().with_first(Pattern::kUnbounded), 9, far), 10);
}

}  // namespace
}  // namespace iha
