// Spans, bits and sights against the predicate, and what gathering by steps saves.
#include "iha/kernels/cpu/spans.h"

#include <gtest/gtest.h>

#include <limits>

#include "iha/kernels/cpu/primitives.h"
#include "iha/kernels/cpu/regions.h"
#include "iha/patterns/parse.h"
#include "tests/kernels/cpu_call.h"

namespace iha::cpu {
namespace {

TEST(CpuSpans, SayWhatThePredicateSays) {
  int partial = 0, full = 0, none = 0;
  for (int seed = 0; seed < 120; ++seed) {
    const Call call = draw_call(1000 + seed, DType::kFloat32, seed % 3 != 0);
    const Problem& p = call.problem;
    const int64_t per_token = p.layout == Layout::kParallel ? 1 : p.pseudo_heads;
    const std::vector<int64_t> ranks = document_ranks(p);
    for (int64_t b = 0; b < p.batch; ++b) {
      const auto own_ranks =
          ranks.empty() ? std::span<const int64_t>() : std::span(ranks).subspan(b * p.keys, p.keys);
      for (int64_t h = 0; h < p.query_heads; ++h) {
        // Of a learned head: each candidate, on the classes that the weights leave.
        std::vector<std::pair<Pattern, ViewPair>> scopes;
        const Pattern& whole = p.patterns[h];
        if (whole.learned()) {
          std::vector<float> weights;
          for (size_t m = 0; m < whole.candidates.size(); ++m) {
            weights.push_back(
                static_cast<float>(call.mode_weights.get(h * p.modes() + static_cast<int64_t>(m))));
            if (weights.back() < kSmallestWeight) weights.back() = 0;
          }
          const Regions regions(whole, weights, seed % 2 == 0, 1.0f);
          for (const ViewPair& views : split_by_modes(p, regions, p.query_offset[b])) {
            for (const Pattern& mode : regions.modes) scopes.emplace_back(mode, views);
          }
        } else {
          for (const ViewPair& views : split_by_step(p, whole, p.query_offset[b]))
            scopes.emplace_back(whole, views);
        }
        for (const auto& [pattern, views] : scopes) {
          Problem alone = p;
          alone.patterns[h] = pattern;
          const Visibility visible(alone);
          const Scope scope(p, b, pattern, views.keys, per_token, own_ranks);
          for (int64_t index = 0; index < views.queries.count; ++index) {
            const int64_t i = views.queries.token(index), position = p.query_offset[b] + i;
            for (int64_t pseudo = 0; pseudo < per_token; ++pseudo) {
              const Span span = scope.span(position, pseudo);
              bool any = false;
              for (int64_t row = 0; row < scope.rows(); row += kPanel) {
                uint32_t expected = 0;
                for (int64_t key = row; key < std::min(row + kPanel, scope.rows()); ++key) {
                  const int64_t j = views.keys.token(key / per_token);
                  if (visible(b, h, i, pseudo, j, per_token > 1 ? key % per_token : pseudo)) {
                    expected |= uint32_t{1} << (key - row);
                  }
                }
                any |= expected != 0;
                ASSERT_EQ(scope.bits(span, position, row), expected)
                    << call.name << " query " << i << " row " << row;
                switch (scope.sight(&span, &position, 1, row)) {
                  case Sight::kNone:
                    ASSERT_EQ(expected, 0u) << call.name;
                    ++none;
                    break;
                  case Sight::kFull:
                    ASSERT_EQ(expected, ~0u) << call.name;
                    ++full;
                    break;
                  case Sight::kPartial:
                    ++partial;
                    break;
                }
              }
              ASSERT_EQ(scope.sees_any(span, position, pseudo), any) << call.name;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(partial, 100);
  EXPECT_GT(full, 100);
  EXPECT_GT(none, 100);
}

// A strided head meets only its own residue class, an `every` head only the keys that it may see.
TEST(CpuSpans, StepsAreGathered) {
  Problem p;
  p.batch = p.query_heads = p.key_heads = 1;
  p.queries = p.keys = 1000;
  const auto strided = split_by_step(p, parse_pattern("strided:8"), 0);
  ASSERT_EQ(strided.size(), 8u);
  int64_t pairs = 0;
  for (const ViewPair& views : strided) pairs += views.queries.count * views.keys.count;
  EXPECT_EQ(pairs, 1000 * 1000 / 8);
  const auto every = split_by_step(p, parse_pattern("causal_every:8"), 0);
  ASSERT_EQ(every.size(), 1u);
  EXPECT_EQ(every[0].queries.count * every[0].keys.count, 1000 * 125);
  // First tokens come before each class.
  const auto first = split_by_step(p, parse_pattern("strided:8+first:13"), 0);
  ASSERT_EQ(first.size(), 8u);
  pairs = 0;
  for (const ViewPair& views : first) {
    pairs += views.queries.count * views.keys.count;
    for (int64_t index = 0; index < views.keys.count; ++index) {
      const int64_t token = views.keys.token(index);
      EXPECT_TRUE(index < 13 ? token == index : token >= 13 && (token - views.queries.first) % 8 == 0);
      EXPECT_EQ(views.keys.index_from(token), index);
      EXPECT_EQ(views.keys.index_from(token + 1), index + 1);
      for (const int64_t end : {index, index + 1, views.keys.count}) {
        const View part = views.keys.part(index, end);
        EXPECT_EQ(part.count, end - index);
        for (int64_t own = 0; own < part.count; ++own) {
          ASSERT_EQ(part.token(own), views.keys.token(index + own));
          ASSERT_EQ(part.index_from(part.token(own)), own);
        }
      }
    }
  }
  EXPECT_LE(pairs, 1000 * (1000 / 8 + 13));
  const auto every_first = split_by_step(p, parse_pattern("every:8+first:3"), 0);
  ASSERT_EQ(every_first.size(), 1u);
  EXPECT_EQ(every_first[0].keys.count, 3 + 124);
  EXPECT_EQ(split_by_step(p, parse_pattern("every:2000+first:3"), 0)[0].keys.count, 3);
  EXPECT_EQ(split_by_step(p, parse_pattern("strided:8+first:1000"), 0).size(), 1u);  // nothing to gain
  Problem other = p;
  other.queries = 32;
  EXPECT_EQ(split_by_step(other, parse_pattern("strided:8+first:1"), 0).size(), 1u);
  other.queries = 33;
  EXPECT_EQ(split_by_step(other, parse_pattern("strided:8+first:1"), 0).size(), 8u);
  other.documents.assign(1000, 0);
  EXPECT_EQ(split_by_step(other, parse_pattern("strided:8+first:1"), 0).size(), 1u);
  // Small classes, where masks on all pairs cost more, and where they cost less.
  EXPECT_EQ(split_by_step(p, parse_pattern("strided:300"), 0).size(), 300u);
  EXPECT_EQ(split_by_step(p, parse_pattern("strided:900"), 0).size(), 1u);
  const auto few = split_by_step(p, parse_pattern("every:400"), 0);
  ASSERT_EQ(few.size(), 1u);
  EXPECT_EQ(few[0].keys.count, 3);
  // Steps past the end, however far.
  for (const int64_t step :
       {int64_t{999}, int64_t{1000}, int64_t{1001}, std::numeric_limits<int64_t>::max()}) {
    Pattern pattern = parse_pattern("every:9");
    pattern.every = step;
    const auto views = split_by_step(p, pattern, 0);
    ASSERT_EQ(views.size(), 1u);
    EXPECT_EQ(views[0].keys.token(0), 0);
    EXPECT_EQ(views[0].keys.count, step < 1000 ? 2 : 1);
    const Scope scope(p, 0, pattern, views[0].keys, 1, {});
    EXPECT_EQ(scope.bits(scope.span(500, 0), 500, 0), step < 1000 ? 3u : 1u);
    pattern = parse_pattern("strided:9");
    pattern.every = step;
    EXPECT_EQ(split_by_step(p, pattern, 0).size(), 1u);
  }
}

}  // namespace
}  // namespace iha::cpu
