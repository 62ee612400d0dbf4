#include "iha/kernels/cpu/query_tile.h"

#include <algorithm>

#include "iha/kernels/cpu/buffer.h"

namespace iha::cpu {

void QueryTile::fill(const Plan& plan, const Scope& scope, const Slice& of, int64_t in_batch,
                     int64_t in_stream, int64_t first, int64_t last) {
  slice = &of;
  batch = in_batch;
  stream = in_stream;
  begin = first;
  end = last;
  const int64_t offset = plan.problem.query_offset[batch];
  const Key key{of.pattern, of.queries, scope.view(), of.heads(), offset, stream, begin, end};
  if (filled_ == key) return;
  filled_ = key;
  const int64_t rows = of.heads() * tokens() * plan.rows_per_token;
  position.resize(rows);
  pseudo.resize(rows);
  spans.resize(rows);
  heads_.resize(rows);
  indices_.resize(rows);
  common = {0, INT64_MAX, INT64_MAX};
  int64_t row = 0;
  for (int64_t index = begin; index < end; ++index) {
    const int64_t at = offset + of.queries.token(index);
    for (int64_t in_token = 0; in_token < plan.rows_per_token; ++in_token, ++row) {
      position[row] = at;
      pseudo[row] = plan.pseudo(stream, in_token);
      heads_[row] = 0;
      indices_[row] = index;
      const Span& span = spans[row] = scope.span(at, in_token);
      common = {std::max(common.begin, span.begin), std::min(common.end, span.end),
                std::min(common.first_end, span.first_end)};
    }
  }
  for (const int64_t rows_of_head = row; row < rows; ++row) {  // every head of a slice sees the same
    position[row] = position[row - rows_of_head];
    pseudo[row] = pseudo[row - rows_of_head];
    spans[row] = spans[row - rows_of_head];
    heads_[row] = heads_[row - rows_of_head] + 1;
    indices_[row] = indices_[row - rows_of_head];
  }
}

int64_t tile_tokens(const Plan& plan, const Slice& slice) {
  return std::max<int64_t>(1, kTileRows / (slice.heads() * plan.rows_per_token));
}

int64_t largest_tile(const Plan& plan) {
  return std::max(kTileRows, plan.problem.group() * plan.rows_per_token);
}

std::array<PanelRange, 2> visible_panels(const QueryTile& tile) {
  int64_t begin = INT64_MAX, end = 0, first_end = 0;
  for (const Span& span : tile.spans) {
    if (span.begin < span.end) {
      begin = std::min(begin, span.begin);
      end = std::max(end, span.end);
    }
    first_end = std::max(first_end, span.first_end);
  }
  const PanelRange first{0, divide_up(first_end, kPanel)};
  if (end == 0) return {first, PanelRange{}};
  return {first,
          PanelRange{std::max(first.end, begin / kPanel), std::max(first.end, divide_up(end, kPanel))}};
}

bool QueryTile::all_see(const Scope& scope, int64_t first, int64_t last) const {
  return scope.spans_decide() && ((first * kPanel >= common.begin && last * kPanel <= common.end) ||
                                  last * kPanel <= common.first_end);
}

void GroupPanels::take_all(int64_t begin, int64_t end) {
  count = static_cast<int>(end - begin);
  for (int slot = 0; slot < count; ++slot) {
    panel[slot] = begin + slot;
    partial[slot] = false;
  }
}

void GroupPanels::find(const QueryTile& tile, const Scope& scope, int64_t row, int64_t rows, int64_t begin,
                       int64_t end) {
  count = 0;
  for (int64_t at = begin; at < end; ++at) {
    const Sight sight = scope.sight(&tile.spans[row], &tile.position[row], rows, at * kPanel);
    if (sight == Sight::kNone) continue;
    if (sight == Sight::kPartial) {
      uint32_t any = 0;
      for (int64_t i = 0; i < rows; ++i) {
        bits[count][i] = scope.bits(tile.spans[row + i], tile.position[row + i], at * kPanel);
        any |= bits[count][i];
      }
      if (any == 0) continue;
    }
    panel[count] = at;
    partial[count] = sight == Sight::kPartial;
    ++count;
  }
}

void fill_keep_bits(const Plan& plan, const QueryTile& tile, int64_t row, int64_t rows,
                    const GroupPanels& panels, uint32_t* keep) {
  const Problem& problem = plan.problem;
  const int64_t pseudo_heads = problem.pseudo_heads;
  int64_t columns[kPanel];
  for (int slot = 0; slot < panels.count; ++slot) {
    for (int64_t c = 0; c < kPanel; ++c) {
      const int64_t key = panels.panel[slot] * kPanel + c, index = key / plan.rows_per_token;
      columns[c] = tile.slice->keys.token(index) * pseudo_heads +
                   plan.pseudo(tile.stream, key - index * plan.rows_per_token);
    }
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = row + i;
      const int64_t drawn = tile.slice->queries.token(tile.index(at)) * pseudo_heads + tile.pseudo[at];
      const int64_t batch_head = tile.batch * problem.query_heads + tile.head(at);
      keep[i * panels.count + slot] =
          plan.primitives.keep_bits(plan.drop_threshold, problem.dropout_seed,
                                    static_cast<uint32_t>(batch_head), static_cast<uint32_t>(drawn), columns);
    }
  }
}

}  // namespace iha::cpu
