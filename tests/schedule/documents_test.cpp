#include "iha/schedule/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "iha/schedule/tiles.h"
#include "tests/patterns/all_patterns.h"

namespace iha {
namespace {

using ::testing::ElementsAre;

using Numbers = std::vector<int64_t>;

int64_t pick(std::mt19937& random, int64_t from, int64_t to) {
  return from + static_cast<int64_t>(random() % static_cast<uint64_t>(to - from + 1));
}

// `tokens` numbers in blocks of up to `longest` tokens: new documents, or one of `returning` that come back.
Numbers documents(std::mt19937& random, int64_t tokens, int64_t longest, int64_t returning) {
  Numbers numbers;
  for (int64_t block = 0; static_cast<int64_t>(numbers.size()) < tokens; ++block) {
    const int64_t number = returning > 0 ? 7 - 5 * pick(random, 0, returning - 1) : -block;
    numbers.insert(numbers.end(), pick(random, 1, longest), number);
  }
  numbers.resize(tokens);
  return numbers;
}

int64_t rank_of(const Numbers& numbers, int64_t token) {
  return std::count(numbers.begin(), numbers.begin() + token, numbers[token]);
}

// The rule with documents, straight from the grammar's words; `whole`: to all pseudo-queries, where those of
// a causal pattern see a part of their own token.
bool sees(const Pattern& pattern, const Numbers& numbers, int64_t i, int64_t j, bool whole) {
  if (pattern.learned()) {
    return std::any_of(pattern.candidates.begin(), pattern.candidates.end(),
                       [&](const Pattern& one) { return sees(one, numbers, i, j, whole); });
  }
  if (whole && pattern.causal() && i == j) return false;
  const bool is_first = rank_of(numbers, j) < pattern.first && (!pattern.causal() || j <= i);
  return numbers[i] == numbers[j] && (is_first || base_visible(pattern, i, j));
}

// Lets `tile` say what it is: absent, partial or full.
enum class Listed { kAbsent, kPartial, kFull };
Listed kind_of(const std::vector<TileRun>& runs, int64_t tile) {
  for (const TileRun& run : runs) {
    if (tile >= run.first && tile < run.first + run.count) {
      return run.kind == TileKind::kFull ? Listed::kFull : Listed::kPartial;
    }
  }
  return Listed::kAbsent;
}

// Never absent if a pair is visible, never full if one is not.
void expect_safe(Listed kind, const HeadScope& scope, const Numbers& numbers, int64_t q0, int64_t q1,
                 int64_t k0, int64_t k1) {
  for (int64_t i = q0; i < q1; ++i) {
    for (int64_t j = k0; j < k1; ++j) {
      const bool pair = sees(scope.pattern, numbers, i, j, false);
      const bool whole = sees(scope.pattern, numbers, i, j, scope.partial_diagonal);
      ASSERT_FALSE(pair && kind == Listed::kAbsent) << "query " << i << " key " << j;
      ASSERT_FALSE(!whole && kind == Listed::kFull) << "query " << i << " key " << j;
    }
  }
}

TEST(DocumentIndex, SpansEqualALookAtTheTokens) {
  std::mt19937 random(3);
  for (int64_t tokens = 1; tokens <= 40; ++tokens) {
    const Numbers numbers = documents(random, tokens, 5, tokens % 4);
    const DocumentIndex index(numbers);
    EXPECT_EQ(index.tokens(), tokens);
    Numbers in_order;  // documents as they first occur
    for (const int64_t number : numbers) {
      if (std::find(in_order.begin(), in_order.end(), number) == in_order.end()) in_order.push_back(number);
    }
    for (int64_t begin = 0; begin < tokens; ++begin) {
      EXPECT_EQ(index.rank(begin), rank_of(numbers, begin));
      DocumentSpan span{tokens, -1, tokens, tokens, -1};
      for (int64_t end = begin + 1; end <= tokens; ++end) {
        const auto of_document = [&](int64_t number) { return number == numbers[end - 1]; };
        const int64_t number = std::find_if(in_order.begin(), in_order.end(), of_document) - in_order.begin();
        const int64_t first = std::find_if(numbers.begin(), numbers.end(), of_document) - numbers.begin();
        const int64_t last =
            tokens - 1 - (std::find_if(numbers.rbegin(), numbers.rend(), of_document) - numbers.rbegin());
        span = {std::min(span.least_document, number), std::max(span.greatest_document, number),
                std::min(span.least_rank, rank_of(numbers, end - 1)), std::min(span.first_token, first),
                std::max(span.last_token, last)};
        const DocumentSpan found = index.span(begin, end);
        ASSERT_EQ(found.least_document, span.least_document) << begin << " to " << end;
        ASSERT_EQ(found.greatest_document, span.greatest_document) << begin << " to " << end;
        ASSERT_EQ(found.least_rank, span.least_rank) << begin << " to " << end;
        ASSERT_EQ(found.first_token, span.first_token) << begin << " to " << end;
        ASSERT_EQ(found.last_token, span.last_token) << begin << " to " << end;
        ASSERT_EQ(found.one_document(), span.least_document == span.greatest_document);
      }
    }
  }
}

TEST(DocumentIndex, TakesAnyNumbers) {
  const Numbers numbers{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(), 0, -1, 0};
  const DocumentIndex index(numbers);
  EXPECT_EQ(index.span(0, 5).greatest_document, 3);
  EXPECT_EQ(index.rank(4), 1);
  EXPECT_EQ(DocumentIndex({}).tokens(), 0);
}

TEST(DocumentTiles, AreSafeForAnyOrderOfDocuments) {
  std::mt19937 random(4);
  for (const Pattern& pattern : testing::all_patterns()) {
    for (int64_t round = 0; round < 60; ++round) {
      const int64_t tokens = pick(random, 1, 40);
      const Numbers numbers = documents(random, tokens, pick(random, 1, 20), pick(random, 0, 4));
      const DocumentIndex index(numbers);
      HeadScope scope{.pattern = pattern, .documents = &index};
      scope.keys = pick(random, 0, tokens);
      scope.query_offset = pick(random, 0, tokens - 1);
      scope.queries = pick(random, 1, tokens - scope.query_offset);
      scope.partial_diagonal = round % 2 == 1;
      const int64_t query_tile = pick(random, 1, 12), key_tile = pick(random, 1, 12);
      SCOPED_TRACE(::testing::Message()
                   << "first " << pattern.first << " causal " << pattern.causal() << " round " << round);
      std::vector<TileRun> runs;
      for (int64_t q0 = 0; q0 < scope.queries; q0 += query_tile) {
        const int64_t q1 = std::min(scope.queries, q0 + query_tile);
        key_tiles(scope, q0, q1, key_tile, runs);
        for (int64_t k0 = 0; k0 < scope.keys; k0 += key_tile) {
          expect_safe(kind_of(runs, k0 / key_tile), scope, numbers, scope.query_offset + q0,
                      scope.query_offset + q1, k0, std::min(scope.keys, k0 + key_tile));
        }
      }
      for (int64_t k0 = 0; k0 < scope.keys; k0 += key_tile) {
        const int64_t k1 = std::min(scope.keys, k0 + key_tile);
        query_tiles(scope, k0, k1, query_tile, runs);
        for (int64_t q0 = 0; q0 < scope.queries; q0 += query_tile) {
          expect_safe(kind_of(runs, q0 / query_tile), scope, numbers, scope.query_offset + q0,
                      scope.query_offset + std::min(scope.queries, q0 + query_tile), k0, k1);
        }
      }
      if (HasFatalFailure()) return;
    }
  }
}

TEST(DocumentTiles, OneDocumentIsNoDocument) {
  const Numbers numbers(40, -3);
  const DocumentIndex index(numbers);
  for (const Pattern& pattern : testing::all_patterns()) {
    HeadScope plain{.pattern = pattern, .queries = 29, .keys = 37, .query_offset = 11};
    HeadScope with_documents = plain;
    with_documents.documents = &index;
    std::vector<TileRun> expected, found;
    for (int64_t begin = 0; begin < 29; begin += 5) {
      key_tiles(plain, begin, std::min<int64_t>(29, begin + 5), 6, expected);
      key_tiles(with_documents, begin, std::min<int64_t>(29, begin + 5), 6, found);
      ASSERT_EQ(found, expected);
      query_tiles(plain, begin, begin + 5, 6, expected);
      query_tiles(with_documents, begin, begin + 5, 6, found);
      ASSERT_EQ(found, expected);
    }
  }
}

// Safe is not enough: tiles of packed documents that share nothing are absent, and those inside one are full.
TEST(DocumentTiles, PackedDocumentsAreSkipped) {
  Numbers numbers;
  for (const int64_t number : {5, 2, 9}) numbers.insert(numbers.end(), 16, number);
  const DocumentIndex index(numbers);
  HeadScope scope{.pattern = causal(), .queries = 48, .keys = 48, .documents = &index};
  std::vector<TileRun> runs;
  key_tiles(scope, 40, 48, 8, runs);
  EXPECT_THAT(runs, ElementsAre(TileRun{4, 1, TileKind::kFull}, TileRun{5, 1, TileKind::kPartial}));
  query_tiles(scope, 0, 8, 8, runs);
  EXPECT_THAT(runs, ElementsAre(TileRun{0, 1, TileKind::kPartial}, TileRun{1, 1, TileKind::kFull}));
  scope.pattern = causal_sliding(1).with_first(8);
  key_tiles(scope, 44, 48, 8, runs);
  EXPECT_THAT(runs, ElementsAre(TileRun{4, 1, TileKind::kFull}, TileRun{5, 1, TileKind::kPartial}));
}

}  // namespace
}  // namespace iha
