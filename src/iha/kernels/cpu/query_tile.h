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

// Heads of the slice, then tokens, then pseudo-queries; rows are numbered in that order. Tokens are
// neighbours, or (gather) any of a dynamic head's that chose the slice's keys.
struct QueryTile {
  const Slice* slice = nullptr;
  int64_t batch = 0, stream = 0;
  int64_t begin = 0, end = 0;             // of the slice's query view
  std::vector<int64_t> position, pseudo;  // a row
  std::vector<Span> spans;                // a row
  Span common;                            // what every row sees
  std::vector<float> bias;                // a gathered row's, in units of scores; else empty
  // Of each mode of a learned head: what rows, every row, and any row see by it.
  struct ModeSpans {
    std::vector<Span> spans;
    Span common, hull;
  };
  std::vector<ModeSpans> modes;

  int64_t tokens() const { return end - begin; }
  int64_t rows() const { return static_cast<int64_t>(spans.size()); }
  // Head, index in the view.
  int64_t head(int64_t row) const { return slice->head_begin + heads_[row]; }
  int64_t index(int64_t row) const { return indices_[row]; }

  // Whether every row sees all of panels [first, last).
  bool all_see(const Scope& scope, int64_t first, int64_t last) const;
  // The modes that show all of these panels to every row, where the others show nothing of them to any.
  std::optional<uint32_t> common_modes(const Scope& scope, int64_t first, int64_t last) const;
  void fill(const Plan& plan, const Scope& scope, const Slice& slice, int64_t batch, int64_t stream,
            int64_t begin, int64_t end);
  // The slice's `tokens` (indices of its view) with the weight of each.
  void gather(const Plan& plan, const Scope& scope, const Slice& slice, int64_t batch, int64_t stream,
              std::span<const int64_t> tokens, std::span<const float> weights);

 private:
  void resize(int64_t rows);
  void fill_modes(const Scope& scope);

  // What rows depend on, the plan apart. Short sequences meet the same tile in every head and batch.
  struct Key {
    Pattern pattern;
    View queries, keys;
    int64_t heads, offset, stream, begin, end;
    const Regions* regions;
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
// Of a panel in which rows see pairs of several regions: in layer k, the k-th region of each row.
struct RegionLayer {
  std::array<uint32_t, kMaxGroupRows> bits, set;
  std::array<float, kMaxGroupRows> bias;
};
struct GroupPanels {
  int count = 0;
  std::array<int64_t, kBlockPanels> panel;
  std::array<bool, kBlockPanels> partial;
  // bits[slot][row]: set only where partial.
  std::array<std::array<uint32_t, kMaxGroupRows>, kBlockPanels> bits;
  // Of a learned head. Panels of one region have its set and bias; mixed ones a bias of 0, and layers.
  std::array<uint32_t, kBlockPanels> set;
  std::array<float, kBlockPanels> bias;
  std::array<std::vector<RegionLayer>, kBlockPanels> layers;  // empty: one region

  // Rows [row, row + rows) of the tile and panels [begin, end), at most kBlockPanels.
  void find(const QueryTile& tile, const Scope& scope, int64_t row, int64_t rows, int64_t begin, int64_t end);
  // Panels [begin, end), where every row of the tile sees all of them, or none; false where that is not so.
  bool take_all(const QueryTile& tile, const Scope& scope, int64_t begin, int64_t end);
  // How the biases of rows from `row` on lie for SoftmaxStep and WeightStep: value, and strides of rows and
  // panels.
  struct Biases {
    const float* values = nullptr;
    int64_t row = 0, panel = 0;
  };
  Biases biases(const QueryTile& tile, int64_t row) const;
  // Adds the biases of the layers of a slot to its scores [rows][32].
  void shift(const Primitives& primitives, int slot, float* scores, int64_t score_row, int64_t rows) const;
  // The number of slots from `slot` whose panels follow each other without a gap.
  int run(int slot) const {
    int next = slot + 1;
    while (next < count && panel[next] == panel[next - 1] + 1) ++next;
    return next - slot;
  }

 private:
  void find_regions(const QueryTile& tile, const Scope& scope, int64_t row, int64_t rows, int64_t begin,
                    int64_t end);
  bool mix(const Regions& regions, int slot, int64_t rows, uint32_t full, uint32_t some,
           const std::array<std::array<uint32_t, kMaxGroupRows>, Pattern::kMaxCandidates>& shown);
};

// Dropout's keep bits [rows][slots] of a group.
void fill_keep_bits(const Plan& plan, const QueryTile& tile, int64_t row, int64_t rows,
                    const GroupPanels& panels, uint32_t* keep);

}  // namespace iha::cpu
