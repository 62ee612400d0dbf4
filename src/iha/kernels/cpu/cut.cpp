#include "iha/kernels/cpu/cut.h"

#include <algorithm>
#include <tuple>

#include "iha/kernels/cpu/buffer.h"
#include "iha/kernels/cpu/query_tile.h"

namespace iha::cpu {
namespace {

constexpr int64_t kChunkRows = 512, kMostChunkRows = 2048;
constexpr int64_t kEnoughChunks = 24;
// Up to so many rows reading in place takes less time than packing (measured, 128 channels: 0.45 of it for 16
// rows, 0.65 to 0.8 for 32, 0.85 to 1 for 64). Where float16 widens one by one, it must not do so again for
// every group of rows.
constexpr int64_t kUnpackedRows = 32, kUnpackedRowsSlow = 4;
// Queries with masks of their own need copies of the panels that only some of them see, which must be few.
constexpr int64_t kUnpackedKeysOfQuery = 8;

// Whether keys and values are read where they lie: they are themselves the rows that are seen (one
// pseudo-head, neither mixed nor turned, channels side by side), and few rows see them.
bool reads_in_place(const Plan& plan, int64_t tile_rows) {
  const Problem& problem = plan.problem;
  const core::Array &key = plan.inputs.key, &value = plan.inputs.value;
  const bool slow = key.dtype == DType::kFloat16 && plan.primitives.group_rows <= kUnpackedRowsSlow;
  if (tile_rows > (slow ? kUnpackedRowsSlow : kUnpackedRows)) return false;
  if (problem.pseudo_heads > 1 || !plan.alpha_k.empty() || !plan.alpha_v.empty()) return false;
  if (plan.rotation.any() || key.strides[3] != 1 || value.strides[3] != 1) return false;
  if (problem.queries == 1) return true;
  const bool spans = std::none_of(problem.patterns.begin(), problem.patterns.end(),
                                  [](const Pattern& pattern) { return pattern.step != Step::kNone; });
  return spans && problem.documents.empty() && problem.keys >= kUnpackedKeysOfQuery * problem.queries;
}

// How heads that lie side by side take turns: `heads` of them, `panels` of their keys and values at a time,
// so that tokens are read whole. What is read and what is asked for ahead share L2, and a turn has its own
// cost. Measured, 4 heads of 128, float32 and bfloat16: 128 KB for all heads read a fifth to a third faster
// than one head at a time, 256 KB a fifth slower than that; heads of 64 in bfloat16 (8 KB a panel) do not
// gain.
struct TurnShape {
  int64_t heads = 1, panels = 0;
};
TurnShape turn_shape(const Plan& plan) {
  constexpr int64_t kLeastBytes = 16 << 10, kHeadBytes = 32 << 10, kBytes = 128 << 10;
  const Problem& problem = plan.problem;
  const auto side_by_side = [&](const core::Array& array, int64_t width) {
    return array.strides[1] == width && array.strides[2] >= problem.key_heads * width;
  };
  if (!side_by_side(plan.inputs.key, problem.head_dim) ||
      !side_by_side(plan.inputs.value, problem.value_dim)) {
    return {};
  }
  const int64_t bytes = kPanel * (problem.head_dim + problem.value_dim) * plan.element_size;
  if (bytes < kLeastBytes) return {};
  const int64_t panels = std::clamp<int64_t>(kHeadBytes / bytes, 1, kBlockPanels);
  const int64_t most = std::max<int64_t>(1, kBytes / (panels * bytes));
  return {divide_up(problem.key_heads, divide_up(problem.key_heads, most)), panels};  // equal shares
}

}  // namespace

Cut::Cut(const Plan& plan)
    : joins_heads(plan.problem.collapse == CollapseKind::kGlobal),
      chunk_rows(kChunkRows),
      streams_(plan.streams) {
  const Problem& problem = plan.problem;
  int64_t states = 0;
  bool few = true;
  for (int64_t b = 0; b < problem.batch; ++b) {
    const auto& slices = plan.slices(b);
    most_slices_ = std::max(most_slices_, static_cast<int64_t>(slices.size()));
    states += static_cast<int64_t>(slices.size()) * plan.streams;
    for (const Slice& slice : slices) {
      const int64_t tokens = std::min(slice.queries.count, tile_tokens(plan, slice));
      few &= slice.queries.count == tokens;
      tile_rows = std::max(tile_rows, slice.heads() * tokens * plan.rows_per_token);
    }
  }
  if (few && states > 0 && !problem.weighted()) {
    unpacked = reads_in_place(plan, tile_rows);
    split_keys(plan, states);
  }
  // Long sequences repay larger chunks, which pack keys less often, while there are tasks enough for many
  // workers.
  const int64_t rows = problem.queries * plan.rows_per_token * (joins_heads ? 1 : problem.group());
  const int64_t chunked = problem.batch * (joins_heads ? 1 : problem.key_heads);
  while (chunk_rows < kMostChunkRows && chunked * (rows / (2 * chunk_rows)) >= kEnoughChunks) chunk_rows *= 2;
}

// Cuts the panels that each tile sees into ranges of about 1024 rows, which stay in L2 between packing and
// use; fewer ones are cut further until there are tasks enough.
void Cut::split_keys(const Plan& plan, int64_t states) {
  constexpr int64_t kEnoughTasks = 32, kRangePanels = 32;
  const Problem& problem = plan.problem;
  const TurnShape turn = unpacked ? turn_shape(plan) : TurnShape{};
  const int64_t tasks_of_range =
      turn.heads > 1 ? problem.batch * divide_up(problem.key_heads, turn.heads) : states;
  const auto ranges_of = [&](int64_t panels) {
    const int64_t most = std::max<int64_t>(1, divide_up(panels, kBlockPanels));
    return std::clamp<int64_t>(std::max(kEnoughTasks / tasks_of_range, panels / kRangePanels), 1, most);
  };
  // Short sequences are not even looked at.
  if (ranges_of(divide_up(problem.keys * plan.rows_per_token, kPanel)) == 1) return;
  bool any = false;
  QueryTile tile;
  ranges_.resize(problem.batch * most_slices_ * streams_);
  for (int64_t b = 0; b < problem.batch; ++b) {
    const auto& slices = plan.slices(b);
    for (size_t i = 0; i < slices.size(); ++i) {
      const Slice& slice = slices[i];
      const Scope scope = plan.scope(b, slice);
      for (int64_t stream = 0; stream < streams_; ++stream) {
        tile.fill(plan, scope, slice, b, stream, 0, slice.queries.count);
        const auto [first, rest] = visible_panels(tile);
        const int64_t start = first.end > 0 ? 0 : rest.begin;
        // What lies between first tokens and the rest is left out; not where panels cut tokens.
        const int64_t gap =
            plan.rows_per_token == 1 && first.end > 0 ? std::max<int64_t>(0, rest.begin - first.end) : 0;
        const int64_t panels = std::max(first.end, rest.end) - start - gap;
        // The first token of a panel, or the end of the one before, which may lie on the other side of the
        // gap.
        const auto token = [&](int64_t side, int64_t panel) {
          const int64_t row = (start + panel + (side >= first.end ? gap : 0)) * kPanel;
          return std::min(panel == panels ? divide_up(row, plan.rows_per_token) : row / plan.rows_per_token,
                          slice.keys.count);
        };
        const int64_t ranges = ranges_of(panels);
        any |= ranges > 1;
        const auto begin = static_cast<int64_t>(splits.size());
        for (int64_t range = 0; range < ranges && panels > 0; ++range) {
          const int64_t first_panel = panels * range / ranges, end_panel = panels * (range + 1) / ranges;
          const int64_t from = token(first_panel, first_panel), to = token(end_panel - 1, end_panel);
          const View keys = slice.keys.part(from, to);
          splits.push_back({b, static_cast<int64_t>(i), stream, keys, begin + range});
        }
        ranges_[(b * most_slices_ + i) * streams_ + stream] = {begin, static_cast<int64_t>(splits.size())};
      }
    }
  }
  if (!any) return splits.clear();
  // Heads of the same tokens one after the other: in token-major memory they share pages, so that the first
  // has filled the TLB for the rest.
  std::stable_sort(splits.begin(), splits.end(), [](const Split& left, const Split& right) {
    return std::tie(left.batch, left.keys.first) < std::tie(right.batch, right.keys.first);
  });
  take_turns(plan, turn.heads, turn.panels);
}

void Cut::take_turns(const Plan& plan, int64_t heads, int64_t panels) {
  const auto key_head = [&](const Split& split) { return plan.slices(split.batch)[split.slice].key_head; };
  for (int64_t at = 0; at < static_cast<int64_t>(splits.size()); ++at) {
    const Split& split = splits[at];
    if (heads > 1 && at > 0) {
      const Split &before = splits[at - 1], &first = splits[turns.back().begin];
      if (before.batch == split.batch && before.stream == split.stream && before.keys == split.keys &&
          key_head(split) - key_head(before) <= 1 && key_head(split) - key_head(first) < heads) {
        ++turns.back().end;
        continue;
      }
    }
    turns.push_back({at, at + 1, panels});
  }
}

}  // namespace iha::cpu
