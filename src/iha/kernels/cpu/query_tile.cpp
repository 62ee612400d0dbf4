#include "iha/kernels/cpu/query_tile.h"

#include <algorithm>
#include <cmath>

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
  const Key key{of.pattern, of.queries, scope.view(), of.heads(),     offset,
                stream,     begin,      end,          scope.regions()};
  if (filled_ == key) return;
  filled_ = key;
  const int64_t rows = of.heads() * tokens() * plan.rows_per_token;
  resize(rows);
  bias.clear();
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
  fill_modes(scope);
}

void QueryTile::resize(int64_t rows) {
  position.resize(rows);
  pseudo.resize(rows);
  spans.resize(rows);
  heads_.resize(rows);
  indices_.resize(rows);
  common = {0, INT64_MAX, INT64_MAX};
}

void QueryTile::gather(const Plan& plan, const Scope& scope, const Slice& of, int64_t in_batch,
                       int64_t in_stream, std::span<const int64_t> tokens, std::span<const float> weights) {
  slice = &of;
  batch = in_batch;
  stream = in_stream;
  begin = 0;
  end = static_cast<int64_t>(tokens.size());
  filled_.reset();
  resize(end * plan.rows_per_token);
  modes.clear();
  bias.resize(rows());
  int64_t row = 0;
  for (int64_t i = 0; i < end; ++i) {
    const int64_t at = plan.problem.query_offset[batch] + of.queries.token(tokens[i]);
    const float of_token = std::log2(weights[i]) / plan.log2_scale;
    for (int64_t in_token = 0; in_token < plan.rows_per_token; ++in_token, ++row) {
      position[row] = at;
      pseudo[row] = plan.pseudo(stream, in_token);
      heads_[row] = 0;
      indices_[row] = tokens[i];
      bias[row] = of_token;
      const Span& span = spans[row] = scope.span(at, in_token);
      common = {std::max(common.begin, span.begin), std::min(common.end, span.end),
                std::min(common.first_end, span.first_end)};
    }
  }
}

void QueryTile::fill_modes(const Scope& scope) {
  modes.resize(scope.modes().size());
  for (size_t m = 0; m < modes.size(); ++m) {
    ModeSpans& mode = modes[m];
    mode.spans.resize(rows());
    mode.common = {0, INT64_MAX, INT64_MAX};
    mode.hull = {INT64_MAX, 0, 0};
    for (int64_t row = 0; row < rows(); ++row) {
      const Span& span = mode.spans[row] = scope.modes()[m].span(position[row], pseudo[row]);
      mode.common = {std::max(mode.common.begin, span.begin), std::min(mode.common.end, span.end),
                     std::min(mode.common.first_end, span.first_end)};
      if (span.begin < span.end) {
        mode.hull.begin = std::min(mode.hull.begin, span.begin);
        mode.hull.end = std::max(mode.hull.end, span.end);
      }
      mode.hull.first_end = std::max(mode.hull.first_end, span.first_end);
    }
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

std::optional<uint32_t> QueryTile::common_modes(const Scope& scope, int64_t first, int64_t last) const {
  uint32_t full = 0;
  for (size_t m = 0; m < modes.size(); ++m) {
    const Span &own = modes[m].common, &hull = modes[m].hull;
    const bool absent =
        (first * kPanel >= hull.end || last * kPanel <= hull.begin) && first * kPanel >= hull.first_end;
    if (absent) continue;
    const bool all =
        scope.modes()[m].spans_decide() &&
        ((first * kPanel >= own.begin && last * kPanel <= own.end) || last * kPanel <= own.first_end);
    if (!all) return std::nullopt;
    full |= uint32_t{1} << m;
  }
  return full;
}

bool GroupPanels::take_all(const QueryTile& tile, const Scope& scope, int64_t begin, int64_t end) {
  const Regions* regions = scope.regions();
  uint32_t shown = 0;
  if (regions != nullptr) {
    const std::optional<uint32_t> common = tile.common_modes(scope, begin, end);
    if (!common) return false;
    shown = *common;
  } else if (!tile.all_see(scope, begin, end)) {
    return false;
  }
  count = regions != nullptr && (shown & regions->positive) == 0 ? 0 : static_cast<int>(end - begin);
  for (int slot = 0; slot < count; ++slot) {
    panel[slot] = begin + slot;
    partial[slot] = false;
    layers[slot].clear();
    if (regions == nullptr) continue;
    set[slot] = shown;
    bias[slot] = regions->bias[shown];
  }
  return true;
}

GroupPanels::Biases GroupPanels::biases(const QueryTile& tile, int64_t row) const {
  if (!tile.bias.empty()) return {tile.bias.data() + row, 1, 0};
  if (!tile.modes.empty()) return {bias.data(), 0, 1};
  return {};
}

void GroupPanels::shift(const Primitives& primitives, int slot, float* scores, int64_t score_row,
                        int64_t rows) const {
  for (const RegionLayer& layer : layers[slot]) {
    primitives.shift(scores, score_row, rows, layer.bits.data(), layer.bias.data());
  }
}

// Panels by the modes that show them. Where each mode shows a panel to all of the rows or to none, it is of
// one region; else rows are split into regions pair by pair.
void GroupPanels::find_regions(const QueryTile& tile, const Scope& scope, int64_t row, int64_t rows,
                               int64_t begin, int64_t end) {
  const Regions& regions = *scope.regions();
  std::array<std::array<uint32_t, kMaxGroupRows>, Pattern::kMaxCandidates> shown;
  for (int64_t at = begin; at < end; ++at) {
    uint32_t full = 0, some = 0;
    for (size_t m = 0; m < tile.modes.size(); ++m) {
      const Span* spans = &tile.modes[m].spans[row];
      const Sight sight = scope.modes()[m].sight(spans, &tile.position[row], rows, at * kPanel);
      if (sight == Sight::kFull) full |= uint32_t{1} << m;
      if (sight != Sight::kPartial) continue;
      some |= uint32_t{1} << m;
      scope.modes()[m].bits(spans, &tile.position[row], rows, at * kPanel, shown[m].data());
    }
    if (((full | some) & regions.positive) == 0) continue;
    panel[count] = at;
    partial[count] = false;
    set[count] = full;
    bias[count] = regions.bias[full];
    layers[count].clear();
    if (some == 0 || mix(regions, count, rows, full, some, shown)) ++count;
  }
}

// Splits the rows of a slot into regions; false where no pair is left.
bool GroupPanels::mix(const Regions& regions, int slot, int64_t rows, uint32_t full, uint32_t some,
                      const std::array<std::array<uint32_t, kMaxGroupRows>, Pattern::kMaxCandidates>& shown) {
  struct Region {
    uint32_t bits, set;
  };
  std::array<Region, kPanel> own;  // they share no bit
  uint32_t any = 0, all = ~0u;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t found = 1;
    own[0] = {~0u, full};
    for (int m = 0; some >> m != 0; ++m) {
      if ((some >> m & 1u) == 0) continue;
      for (int64_t i = 0, until = found; i < until; ++i) {
        const uint32_t inside = own[i].bits & shown[m][row];
        if (inside == 0) continue;
        if (inside != own[i].bits) own[found++] = {own[i].bits & ~inside, own[i].set};
        own[i] = {inside, own[i].set | uint32_t{1} << m};
      }
    }
    uint32_t seen = 0;
    size_t layer = 0;
    for (int64_t i = 0; i < found; ++i) {
      if ((own[i].set & regions.positive) == 0) continue;
      if (layer == layers[slot].size()) layers[slot].push_back({});
      RegionLayer& to = layers[slot][layer++];
      to.bits[row] = own[i].bits;
      to.set[row] = own[i].set;
      to.bias[row] = regions.bias[own[i].set];
      seen |= own[i].bits;
    }
    bits[slot][row] = seen;
    any |= seen;
    all &= seen;
  }
  bias[slot] = 0.0f;
  partial[slot] = all != ~0u;
  return any != 0;
}

void GroupPanels::find(const QueryTile& tile, const Scope& scope, int64_t row, int64_t rows, int64_t begin,
                       int64_t end) {
  count = 0;
  if (scope.regions() != nullptr) return find_regions(tile, scope, row, rows, begin, end);
  for (int64_t at = begin; at < end; ++at) {
    const Sight sight = scope.sight(&tile.spans[row], &tile.position[row], rows, at * kPanel);
    if (sight == Sight::kNone) continue;
    if (sight == Sight::kPartial) {
      scope.bits(&tile.spans[row], &tile.position[row], rows, at * kPanel, bits[count].data());
      uint32_t any = 0;
      for (int64_t i = 0; i < rows; ++i) any |= bits[count][i];
      if (any == 0) continue;
    }
    panel[count] = at;
    partial[count] = sight == Sight::kPartial;
    layers[count].clear();
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
