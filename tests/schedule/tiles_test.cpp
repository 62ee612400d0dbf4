#include "iha/schedule/tiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <stdexcept>
#include <string>

#include "iha/core/error.h"
#include "tests/patterns/all_patterns.h"

namespace iha {

void PrintTo(const TileRun& run, std::ostream* stream) {
  *stream << (run.kind == TileKind::kFull ? "full " : "partial ") << run.first << "+" << run.count;
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kSize = 40;        // keys and queries go up to here
constexpr int64_t kDraws = 2;        // of what is drawn, for each of what is not
constexpr int64_t kFar = 3 * kSize;  // positions from -kFar to kFar
constexpr std::array kTiles{1, 2, 3, 4, 5, 7, 8, 13, 16, 39, 40, 41, 64};

std::string describe(const HeadScope& scope) {
  const Pattern& p = scope.pattern;
  return text("left ", p.left, " right ", p.right, " step ", static_cast<int>(p.step), " every ", p.every,
              " chunk ", p.chunk, " first ", p.first, "; ", scope.queries, " queries at ", scope.query_offset,
              ", ", scope.keys, " keys, partial_diagonal ", scope.partial_diagonal);
}

// The predicate as rows of bits: bit j of row(i) says whether query position i sees key j, of 40.
class Mask {
 public:
  explicit Mask(const Pattern& pattern) {
    for (int64_t i = -kFar; i <= kFar; ++i) {
      for (int64_t j = 0; j < kSize; ++j) rows_[i + kFar] |= uint64_t{visible(pattern, i, j)} << j;
    }
  }
  uint64_t row(int64_t position) const { return rows_[position + kFar]; }

 private:
  std::array<uint64_t, 2 * kFar + 1> rows_{};
};

uint64_t bits(int64_t begin, int64_t end) {
  return (uint64_t{1} << end) - (uint64_t{1} << begin);
}

// Whether one candidate of a learned pattern shows all pairs, to all pseudo-queries.
bool filled_by_one(const HeadScope& scope, int64_t q0, int64_t q1, int64_t k0, int64_t k1) {
  for (const Pattern& candidate : scope.pattern.candidates) {
    bool all = true;
    for (int64_t i = q0; i < q1; ++i) {
      for (int64_t j = k0; j < k1; ++j) {
        all = all && visible(candidate, i, j) && !(scope.partial_diagonal && candidate.causal() && i == j);
      }
    }
    if (all) return true;
  }
  return false;
}

// Adds tile `tile` with queries at positions [q0, q1) and keys [k0, k1) the slow way.
void add_expected(const HeadScope& scope, const Mask& mask, int64_t tile, int64_t q0, int64_t q1, int64_t k0,
                  int64_t k1, std::vector<TileRun>& runs) {
  uint64_t some = 0, all = ~uint64_t{0};
  bool diagonal = false;
  for (int64_t i = q0; i < q1; ++i) {
    some |= mask.row(i);
    all &= mask.row(i);
    diagonal = diagonal || (i >= k0 && i < k1);
  }
  const uint64_t keys = bits(k0, k1);
  if ((some & keys) == 0) return;
  const bool hidden = scope.partial_diagonal && scope.pattern.causal() && diagonal;
  bool full = (all & keys) == keys && !hidden;
  if (scope.pattern.learned()) full = filled_by_one(scope, q0, q1, k0, k1);
  const TileKind kind = full ? TileKind::kFull : TileKind::kPartial;
  if (!runs.empty() && runs.back().kind == kind && runs.back().first + runs.back().count == tile) {
    ++runs.back().count;
  } else {
    runs.push_back({tile, 1, kind});
  }
}

std::vector<TileRun> expected_key_tiles(const HeadScope& scope, const Mask& mask, int64_t begin, int64_t end,
                                        int64_t tile) {
  std::vector<TileRun> runs;
  for (int64_t t = 0; t * tile < scope.keys && begin < end; ++t) {
    add_expected(scope, mask, t, scope.query_offset + begin, scope.query_offset + end, t * tile,
                 std::min(scope.keys, (t + 1) * tile), runs);
  }
  return runs;
}

std::vector<TileRun> expected_query_tiles(const HeadScope& scope, const Mask& mask, int64_t begin,
                                          int64_t end, int64_t tile) {
  std::vector<TileRun> runs;
  for (int64_t t = 0; t * tile < scope.queries && begin < end; ++t) {
    add_expected(scope, mask, t, scope.query_offset + t * tile,
                 scope.query_offset + std::min(scope.queries, (t + 1) * tile), begin, end, runs);
  }
  return runs;
}

std::vector<TileRun> keys_of(const HeadScope& scope, int64_t begin, int64_t end, int64_t tile) {
  std::vector<TileRun> runs{{-1, -1, TileKind::kFull}};  // whatever was there is replaced
  key_tiles(scope, begin, end, tile, runs);
  return runs;
}

std::vector<TileRun> queries_of(const HeadScope& scope, int64_t begin, int64_t end, int64_t tile) {
  std::vector<TileRun> runs{{-1, -1, TileKind::kFull}};
  query_tiles(scope, begin, end, tile, runs);
  return runs;
}

int64_t pick(std::mt19937& random, int64_t from, int64_t to) {
  return from + static_cast<int64_t>(random() % static_cast<uint64_t>(to - from + 1));
}

// Every number of keys and every first query position meet every pattern; numbers of queries, tiles and the
// diagonal are drawn.
TEST(KeyTiles, EqualThePredicateAtEverySize) {
  std::mt19937 random(1);
  int64_t draw = 0;
  for (const Pattern& pattern : testing::all_patterns()) {
    const Mask mask(pattern);
    for (int64_t keys = 0; keys <= kSize; ++keys) {
      for (int64_t position = -kSize - 5; position <= kSize + 5; position += draw++ % kDraws == 0) {
        const int64_t before = pick(random, 0, 3);  // queries of the call before the tile
        HeadScope scope{.pattern = pattern, .keys = keys, .query_offset = position - before};
        const int64_t end = before + pick(random, 1, kSize);
        scope.queries = end + pick(random, 0, 3);
        scope.partial_diagonal = pick(random, 0, 1) == 1;
        const int64_t tile = kTiles[pick(random, 0, kTiles.size() - 1)];
        ASSERT_EQ(keys_of(scope, before, end, tile), expected_key_tiles(scope, mask, before, end, tile))
            << describe(scope) << ", queries " << before << " to " << end << ", tile " << tile;
      }
    }
  }
}

TEST(QueryTiles, EqualThePredicateAtEverySize) {
  std::mt19937 random(2);
  int64_t draw = 0;
  for (const Pattern& pattern : testing::all_patterns()) {
    const Mask mask(pattern);
    for (int64_t queries = 0; queries <= kSize; ++queries) {
      for (int64_t offset = -kSize - 5; offset <= kSize + 5; offset += draw++ % kDraws == 0) {
        HeadScope scope{.pattern = pattern, .queries = queries, .query_offset = offset};
        scope.keys = pick(random, 1, kSize);
        scope.partial_diagonal = pick(random, 0, 1) == 1;
        const int64_t begin = pick(random, 0, scope.keys - 1);
        const int64_t end = pick(random, begin + 1, scope.keys);
        const int64_t tile = kTiles[pick(random, 0, kTiles.size() - 1)];
        ASSERT_EQ(queries_of(scope, begin, end, tile), expected_query_tiles(scope, mask, begin, end, tile))
            << describe(scope) << ", keys " << begin << " to " << end << ", tile " << tile;
      }
    }
  }
}

// Nothing drawn: all small shapes, offsets, tiles and both diagonals for one pattern of each kind.
TEST(Tiles, EqualThePredicateOnAllSmallShapes) {
  constexpr int64_t kSmall = 9;
  for (const Pattern& pattern :
       {global(), causal(), sliding(2), causal_sliding(3), window(1, 4), strided(3), causal_strided(2),
        every(4), causal_every(3), chunked(4), causal_chunked(3), causal_sliding(1).with_first(2),
        sliding(1).with_first(4), every(5).with_first(1),
        Pattern{.left = 3, .right = 2, .step = Step::kAbsolute, .every = 3, .chunk = 5}}) {
    const Mask mask(pattern);
    for (int64_t queries = 0; queries <= kSmall; ++queries) {
      for (int64_t keys = 0; keys <= kSmall; ++keys) {
        for (int64_t offset = -kSmall - 1; offset <= kSmall + 1; ++offset) {
          for (int64_t tile = 1; tile <= kSmall + 1; ++tile) {
            for (const bool partial_diagonal : {false, true}) {
              const HeadScope scope{.pattern = pattern,
                                    .queries = queries,
                                    .keys = keys,
                                    .query_offset = offset,
                                    .partial_diagonal = partial_diagonal};
              ASSERT_EQ(keys_of(scope, 0, queries, tile), expected_key_tiles(scope, mask, 0, queries, tile))
                  << describe(scope) << ", tile " << tile;
              ASSERT_EQ(queries_of(scope, 0, keys, tile), expected_query_tiles(scope, mask, 0, keys, tile))
                  << describe(scope) << ", tile " << tile;
            }
          }
        }
      }
    }
  }
}

TEST(Tiles, CausalSelfAttentionIsFullBelowTheDiagonal) {
  HeadScope scope{.pattern = causal(), .queries = 40, .keys = 40};
  EXPECT_THAT(keys_of(scope, 16, 24, 8),
              ElementsAre(TileRun{0, 2, TileKind::kFull}, TileRun{2, 1, TileKind::kPartial}));
  EXPECT_THAT(queries_of(scope, 16, 24, 8),
              ElementsAre(TileRun{2, 1, TileKind::kPartial}, TileRun{3, 2, TileKind::kFull}));
  // One query alone sees all of itself, but for its own later pseudo-keys.
  EXPECT_THAT(keys_of(scope, 7, 8, 8), ElementsAre(TileRun{0, 1, TileKind::kFull}));
  scope.partial_diagonal = true;
  EXPECT_THAT(keys_of(scope, 7, 8, 8), ElementsAre(TileRun{0, 1, TileKind::kPartial}));
}

// Window and chunk alone decide how much is looked at: 2^40 keys cost nothing.
TEST(Tiles, ListOnlyWhatWindowAndChunkReach) {
  const int64_t n = int64_t{1} << 40;
  HeadScope scope{.pattern = causal_sliding(100).with_first(4), .queries = n, .keys = n};
  EXPECT_THAT(keys_of(scope, n - 64, n, 64),
              ElementsAre(TileRun{0, 1, TileKind::kPartial}, TileRun{n / 64 - 3, 3, TileKind::kPartial}));
  EXPECT_THAT(queries_of(scope, 1 << 20, (1 << 20) + 64, 64),
              ElementsAre(TileRun{(1 << 20) / 64, 3, TileKind::kPartial}));
  scope.pattern = chunked(128);
  EXPECT_THAT(keys_of(scope, 64, 128, 64), ElementsAre(TileRun{0, 2, TileKind::kFull}));
  EXPECT_THAT(queries_of(scope, 64, 128, 64), ElementsAre(TileRun{0, 2, TileKind::kFull}));
}

TEST(Tiles, EmptyCallsTouchNothing) {
  EXPECT_THAT(keys_of({.pattern = global(), .queries = 4, .keys = 0}, 0, 4, 8), IsEmpty());
  EXPECT_THAT(keys_of({.pattern = global(), .queries = 0, .keys = 4}, 0, 0, 8), IsEmpty());
  EXPECT_THAT(queries_of({.pattern = global(), .queries = 0, .keys = 4}, 0, 4, 8), IsEmpty());
  EXPECT_THAT(queries_of({.pattern = global(), .queries = 4, .keys = 2}, 2, 4, 8), IsEmpty());
}

TEST(Tiles, RefuseTilesOfNothing) {
  const HeadScope scope{.pattern = global(), .queries = 4, .keys = 4};
  std::vector<TileRun> runs;
  EXPECT_THROW(key_tiles(scope, 0, 4, 0, runs), std::invalid_argument);
  EXPECT_THROW(query_tiles(scope, 0, 4, -8, runs), std::invalid_argument);
}

}  // namespace
}  // namespace iha
