// A tile of query rows of one slice: which rows, what each may see, and how one register tile's rows meet a
// block of key panels. Shared by forward and backward.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "iha/kernels/cpu/plan.h"

namespace iha::cpu {

// Rows a tile aims at: its operands and state stay in L2 beside a block of keys, and packed keys are read
// from L3 once for all of them.
constexpr int64_t kTileRows = 128;

// Heads of the slice, then tokens, then pseudo-queries; rows are numbered in that order.
struct QueryTile {
  const Slice* slice = nullptr;
  int64_t batch = 0, stream = 0;
  int64_t begin = 0, end = 0;             // of the slice's query view
  std::vector<int64_t> position, pseudo;  // a row
  std::vector<Span> spans;                // a row
  Span common;                            // what every row sees

  int64_t tokens() const { return end - begin; }
  int64_t rows() const { return static_cast<int64_t>(spans.size()); }
  // Head, index in the view.
  int64_t head(int64_t row) const { return slice->head_begin + heads_[row]; }
  int64_t index(int64_t row) const { return indices_[row]; }

  // Whether every row sees all of panels [first, last).
  bool all_see(const Scope& scope, int64_t first, int64_t last) const;
  void fill(const Plan& plan, const Scope& scope, const Slice& slice, int64_t batch, int64_t stream,
            int64_t begin, int64_t end);

 private:
  // What rows depend on, the plan apart. Short sequences meet the same tile in every head and batch.
  struct Key {
    Pattern pattern;
    View queries, keys;
    int64_t heads, offset, stream, begin, end;
    bool operator==(const Key&) const = default;
  };
  std::optional<Key> filled_;
  std::vector<int64_t> heads_, indices_;  // a row: of the slice, of its view
};

// Tokens of a tile: as many as make kTileRows rows over the slice's heads, at least one.
int64_t tile_tokens(const Plan& plan, const Slice& slice);
// The most rows that a tile of the plan can have.
int64_t largest_tile(const Plan& plan);

// The panels [begin, end) that rows of the tile may see: two ranges, of first tokens and of the rest.
struct PanelRange {
  int64_t begin = 0, end = 0;
};
std::array<PanelRange, 2> visible_panels(const QueryTile& tile);

// The panels of one block that one group of rows sees, in order. `slot` counts them.
constexpr int64_t kBlockPanels = 16;
struct GroupPanels {
  int count = 0;
  std::array<int64_t, kBlockPanels> panel;
  std::array<bool, kBlockPanels> partial;
  // bits[slot][row]: set only where partial.
  std::array<std::array<uint32_t, kMaxGroupRows>, kBlockPanels> bits;

  // Rows [row, row + rows) of the tile and panels [begin, end), at most kBlockPanels.
  void find(const QueryTile& tile, const Scope& scope, int64_t row, int64_t rows, int64_t begin, int64_t end);
  // Panels [begin, end), seen by every row.
  void take_all(int64_t begin, int64_t end);
  // The number of slots from `slot` whose panels follow each other without a gap.
  int run(int slot) const {
    int next = slot + 1;
    while (next < count && panel[next] == panel[next - 1] + 1) ++next;
    return next - slot;
  }
};

// Dropout's keep bits [rows][slots] of a group.
void fill_keep_bits(const Plan& plan, const QueryTile& tile, int64_t row, int64_t rows,
                    const GroupPanels& panels, uint32_t* keep);

}  // namespace iha::cpu
