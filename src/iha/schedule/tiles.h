// From a pattern to work: which key tiles a tile of queries touches (and the reverse, for gradients of keys),
// without walking pairs. Absent tiles are not listed, full ones need no mask. Exact for patterns and lengths;
// with documents conservative: a tile with a visible pair is always listed, one with a hidden pair is never
// called full. A learned pattern's tile is full where one of its candidates fills it. What weights hide (0
// for a candidate or a block) is not known here.
#pragma once

#include <cstdint>
#include <vector>

#include "iha/patterns/pattern.h"
#include "iha/schedule/documents.h"

namespace iha {

// What decides visibility for one head of one sequence, in tokens.
struct HeadScope {
  Pattern pattern;
  int64_t queries = 0;
  int64_t keys = 0;  // already cut to the sequence's key length
  int64_t query_offset = 0;
  // Of the whole sequence (keys may be fewer); null: one document. Query i is token query_offset + i of it.
  const DocumentIndex* documents = nullptr;
  // Flat order with P > 1: the pair j = i of a causal pattern is visible to some pseudo-queries only, so a
  // tile that has such a pair is partial. Other patterns do not mind.
  bool partial_diagonal = false;
};

enum class TileKind : uint8_t { kPartial, kFull };

// `count` tiles of one kind, beginning with tile `first`.
struct TileRun {
  int64_t first = 0;
  int64_t count = 0;
  TileKind kind = TileKind::kPartial;
  friend bool operator==(const TileRun&, const TileRun&) = default;
};

// The key tiles of `tile` keys ([t * tile, min(keys, (t + 1) * tile))) that queries [begin, end) of the call
// (not positions) touch, ascending; neighbouring runs of one kind are joined. Replaces the content of `runs`.
// O(1) for each tile in the reach of window, chunk, first tokens and the queries' documents, O(log tile) with
// documents. Throws std::invalid_argument if tile < 1.
void key_tiles(const HeadScope& scope, int64_t begin, int64_t end, int64_t tile, std::vector<TileRun>& runs);

// The query tiles of `tile` queries that see keys [begin, end), ascending, the same way.
void query_tiles(const HeadScope& scope, int64_t begin, int64_t end, int64_t tile,
                 std::vector<TileRun>& runs);

}  // namespace iha
