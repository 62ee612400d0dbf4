// A tile is a rectangle of positions: queries by keys. Whether some or all of its pairs are visible follows
// from its corners, because
// - the differences j - i of a rectangle are all the integers between those of two corners: windows and
//   relative steps ask about an interval of integers, absolute steps about an interval of keys;
// - chunks are squares on the diagonal: a visible pair whose key is also one of the queries may be moved to
//   j = i, which every window and relative step allows, and the chunk of any other pair holds the first or
//   the last query;
// - first tokens are whole columns, cut at j = i where the pattern is causal.
#include "iha/schedule/tiles.h"

#include <algorithm>
#include <cassert>
#include <optional>

#include "iha/core/error.h"
#include "iha/patterns/arithmetic.h"
#include "iha/patterns/count.h"

namespace iha {
namespace {

// Positions first..last, both included; empty where last < first.
struct Interval {
  int64_t first = 0;
  int64_t last = 0;

  bool empty() const { return last < first; }
  bool single() const { return first == last; }
  bool has_multiple_of(int64_t k) const { return multiples_in(first, last + 1, k) > 0; }
};

Interval meet(const Interval& a, const Interval& b) {
  return {std::max(a.first, b.first), std::min(a.last, b.last)};
}

Interval chunk_of(int64_t position, int64_t chunk) {
  const int64_t first = position - floor_mod(position, chunk);
  return {first, add_saturated(first, chunk - 1)};
}

// Is some pair visible by window and step alone?
bool window_and_step_meet(const Pattern& pattern, const Interval& queries, const Interval& keys) {
  if (queries.empty() || keys.empty()) return false;
  const Interval ahead{keys.first - queries.last, keys.last - queries.first};
  const Interval allowed = meet(ahead, {-pattern.left, pattern.right});
  if (allowed.empty()) return false;
  if (pattern.step == Step::kRelative) return allowed.has_multiple_of(pattern.every);
  if (pattern.step == Step::kNone) return true;
  const Interval reach{subtract_saturated(queries.first, pattern.left),
                       add_saturated(queries.last, pattern.right)};
  return meet(keys, reach).has_multiple_of(pattern.every);
}

bool base_meets(const Pattern& pattern, const Interval& queries, const Interval& keys) {
  if (pattern.chunk == 0) return window_and_step_meet(pattern, queries, keys);
  const Interval diagonal = meet(queries, keys);
  if (!diagonal.empty() && (pattern.step != Step::kAbsolute || diagonal.has_multiple_of(pattern.every)))
    return true;
  for (const int64_t query : {queries.first, queries.last}) {
    const Interval chunk = chunk_of(query, pattern.chunk);
    if (window_and_step_meet(pattern, meet(queries, chunk), meet(keys, chunk))) return true;
  }
  return false;
}

bool step_fills(const Pattern& pattern, const Interval& queries, const Interval& keys) {
  if (pattern.step == Step::kNone || pattern.every == 1) return true;
  if (!keys.single()) return false;
  if (pattern.step == Step::kAbsolute) return keys.first % pattern.every == 0;
  return queries.single() && (keys.first - queries.first) % pattern.every == 0;
}

bool base_fills(const Pattern& pattern, const Interval& queries, const Interval& keys) {
  const bool in_window =
      keys.first - queries.last >= -pattern.left && keys.last - queries.first <= pattern.right;
  const bool in_chunk = pattern.chunk == 0 || floor_div(std::min(queries.first, keys.first), pattern.chunk) ==
                                                  floor_div(std::max(queries.last, keys.last), pattern.chunk);
  return in_window && in_chunk && step_fills(pattern, queries, keys);
}

// Are all pairs visible, where of these keys those before `first_end` are first tokens?
bool fills(const Pattern& pattern, const Interval& queries, const Interval& keys, int64_t first_end) {
  const Interval first = meet(keys, {keys.first, first_end - 1});
  const Interval others = meet(keys, {first_end, keys.last});
  if (!first.empty() && pattern.causal() && first.last > queries.first) return false;
  return others.empty() || base_fills(pattern, queries, others);
}

// Nothing where no pair is visible.
std::optional<TileKind> classify(const HeadScope& scope, const Pattern& pattern, const Interval& queries,
                                 const Interval& keys) {
  if (pattern.learned()) {
    std::optional<TileKind> kind;
    for (const Pattern& candidate : pattern.candidates) {
      const std::optional<TileKind> own = classify(scope, candidate, queries, keys);
      if (own && kind != TileKind::kFull) kind = own;
    }
    return kind;
  }
  int64_t first_end = pattern.first;
  bool has_first = keys.first < first_end;
  bool may_be_full = !(scope.partial_diagonal && pattern.causal() && !meet(queries, keys).empty());
  if (scope.documents != nullptr) {
    const DocumentSpan of_queries = scope.documents->span(queries.first, queries.last + 1);
    const DocumentSpan of_keys = scope.documents->span(keys.first, keys.last + 1);
    if (of_queries.greatest_document < of_keys.least_document ||
        of_keys.greatest_document < of_queries.least_document) {
      return std::nullopt;
    }
    may_be_full = may_be_full && of_queries.one_document() && of_keys.one_document();
    has_first = of_keys.least_rank < pattern.first;
    // Used for a full tile only: all its keys are of one document, so their ranks ascend by one.
    first_end = has_first ? add_saturated(keys.first, pattern.first - scope.documents->rank(keys.first)) : 0;
  }
  const bool first_meets = has_first && (!pattern.causal() || keys.first <= queries.last);
  if (!first_meets && !base_meets(pattern, queries, keys)) return std::nullopt;
  return may_be_full && fills(pattern, queries, keys, first_end) ? TileKind::kFull : TileKind::kPartial;
}

// How many first tokens the pattern has, or the candidate that has most.
int64_t first_of(const Pattern& pattern) {
  int64_t first = pattern.first;
  for (const Pattern& candidate : pattern.candidates) first = std::max(first, candidate.first);
  return first;
}

void append(std::vector<TileRun>& runs, int64_t tile, TileKind kind) {
  if (!runs.empty() && runs.back().kind == kind && runs.back().first + runs.back().count == tile) {
    ++runs.back().count;
  } else {
    runs.push_back({tile, 1, kind});
  }
}

// Classifies the tiles, from `next` on, that hold indices [begin, end) of 0..size-1; returns the tile after.
template <class Classify>
int64_t append_tiles(int64_t begin, int64_t end, int64_t size, int64_t tile, int64_t next,
                     const Classify& classify, std::vector<TileRun>& runs) {
  if (begin >= end) return next;
  const int64_t past = (end - 1) / tile + 1;
  for (next = std::max(next, begin / tile); next < past; ++next) {
    const Interval indices{next * tile, std::min(size, (next + 1) * tile) - 1};
    if (const std::optional<TileKind> kind = classify(indices)) append(runs, next, *kind);
  }
  return past;
}

}  // namespace

void key_tiles(const HeadScope& scope, int64_t begin, int64_t end, int64_t tile, std::vector<TileRun>& runs) {
  check(tile >= 1, "iha::key_tiles: tiles of ", tile, " keys, expected at least 1");
  assert(0 <= begin && end <= scope.queries);
  runs.clear();
  if (begin >= end) return;
  const Interval queries{scope.query_offset + begin, scope.query_offset + end - 1};
  const auto of_tile = [&](const Interval& keys) { return classify(scope, scope.pattern, queries, keys); };
  // Of documents: where their tokens lie; their first tokens may lie anywhere among them.
  Interval reach{0, scope.keys - 1};
  int64_t first_end = first_keys(scope.pattern, queries.last, scope.keys);
  if (scope.documents != nullptr) {
    const DocumentSpan span = scope.documents->span(queries.first, queries.last + 1);
    reach = meet(reach, {span.first_token, span.last_token});
    if (first_of(scope.pattern) > 0) first_end = scope.pattern.causal() ? queries.last + 1 : scope.keys;
  }
  first_end = std::min(first_end, reach.last + 1);
  const int64_t next = append_tiles(reach.first, first_end, scope.keys, tile, 0, of_tile, runs);
  const Interval base = meet(reach, {base_range(scope.pattern, queries.first, scope.keys).begin,
                                     base_range(scope.pattern, queries.last, scope.keys).end - 1});
  append_tiles(base.first, base.last + 1, scope.keys, tile, next, of_tile, runs);
}

void query_tiles(const HeadScope& scope, int64_t begin, int64_t end, int64_t tile,
                 std::vector<TileRun>& runs) {
  check(tile >= 1, "iha::query_tiles: tiles of ", tile, " queries, expected at least 1");
  assert(0 <= begin);
  runs.clear();
  end = std::min(end, scope.keys);
  if (begin >= end) return;
  const Pattern& pattern = scope.pattern;
  const Interval keys{begin, end - 1};
  Interval reach{subtract_saturated(keys.first, pattern.right), add_saturated(keys.last, pattern.left)};
  if (pattern.chunk > 0) {
    reach = meet(reach, {chunk_of(keys.first, pattern.chunk).first, chunk_of(keys.last, pattern.chunk).last});
  }
  if (scope.documents != nullptr ? first_of(pattern) > 0 : keys.first < first_of(pattern)) {
    reach = {pattern.causal() ? keys.first : scope.query_offset, Pattern::kUnbounded};
  }
  if (scope.documents != nullptr) {
    const DocumentSpan span = scope.documents->span(keys.first, keys.last + 1);
    reach = meet(reach, {span.first_token, span.last_token});
  }
  reach = meet(reach, {scope.query_offset, scope.query_offset + scope.queries - 1});
  if (reach.empty()) return;
  const auto of_tile = [&](const Interval& indices) {
    return classify(scope, pattern, {scope.query_offset + indices.first, scope.query_offset + indices.last},
                    keys);
  };
  append_tiles(reach.first - scope.query_offset, reach.last - scope.query_offset + 1, scope.queries, tile, 0,
               of_tile, runs);
}

}  // namespace iha
