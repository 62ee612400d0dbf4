// Part 2 of the backward pass: for one key head and a range of its keys, five products a tile.
//
// A tile of 128 query rows meets blocks of 256 keys. For each register tile's rows: scores s = q k^T, weights
// p = 2^(s - lse), upstream dp = grad_o v^T, score gradients g = p (dp - row term); then, while the block's
// weights and score gradients (2 x 128 x 256 floats) are in L2, grad_q += g k by rows, and grad_v += p^T
// grad_o, grad_k += g^T q by panels of keys, p and g read as transposed left operands. 10 * pairs * d flops.
// Gradients of keys gather over all heads and tiles of the task in its own memory and are then added to the
// token rows of the head; those of queries are this range's share.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "iha/kernels/cpu/backward_parts.h"

namespace iha::cpu {
namespace {

constexpr int64_t kKeyPanels = 8;

const Cell* cells(const float* values) {
  return reinterpret_cast<const Cell*>(values);
}

}  // namespace

KeyRange::KeyRange(const BackwardCall& call)
    : call_(call),
      plan_(call.plan),
      prim_(call.plan.primitives),
      reader_(call.plan),
      output_gradients_(call, reader_),
      keys_(call.plan, reader_, /*panels=*/true, /*rows=*/true),
      values_(call.plan, reader_, /*panels=*/true, /*rows=*/false),
      // Transposed reads step by whole rows: a cache line more than a power of two spreads them over L1's
      // sets.
      score_row_(kKeyPanels * kPanel + 16),
      cell_row_(kKeyPanels * kPanel / 2 + 16) {
  const int64_t rows = round_up(largest_tile(plan_), 2);
  query_rows_.ensure(rows * plan_.key_columns);
  gradient_rows_.ensure(rows * plan_.value_columns);
  query_gradients_.ensure(rows * plan_.key_columns);
  log2_sum_.resize(rows);
  row_term_.resize(rows);
  weights_.ensure(rows * score_row_);
  score_gradients_.ensure(rows * score_row_);
  seen_.resize(kKeyPanels * rows);
  if (plan_.drop_threshold > 0) keep_.resize(kMaxGroupRows * kBlockPanels);
  if (!prim_.pairs) return;
  query_along_.ensure(rows * plan_.key_depth);
  gradient_along_.ensure(rows * plan_.value_depth);
  query_across_.ensure(rows / 2 * plan_.key_columns);
  gradient_across_.ensure(rows / 2 * plan_.value_columns);
  score_cells_.ensure(rows * cell_row_);
  weights_across_.ensure(rows / 2 * score_row_);
  score_across_.ensure(rows / 2 * score_row_);
}

void KeyRange::run(int64_t batch, int64_t key_head, const Rectangle& rectangle, const HeadGradients& target) {
  const Problem& problem = plan_.problem;
  const int64_t pseudo_heads = problem.pseudo_heads, begin = rectangle.key_begin, end = rectangle.key_end;
  rectangle_ = rectangle;
  std::fill_n(target.query, problem.group() * rectangle.queries() * pseudo_heads * plan_.key_columns, 0.0f);
  if (rectangle.query_begin == 0) {
    std::fill(target.key + begin * pseudo_heads * plan_.key_columns,
              target.key + end * pseudo_heads * plan_.key_columns, 0.0f);
    std::fill(target.value + begin * pseudo_heads * plan_.value_columns,
              target.value + end * pseudo_heads * plan_.value_columns, 0.0f);
  }
  for (const Slice& slice : plan_.slices(batch)) {
    if (slice.key_head != key_head) continue;
    if (slice.pattern.dynamic()) {
      run_chosen(slice, batch, begin, end, target);
      continue;
    }
    const int64_t first = slice.keys.index_from(begin), last = slice.keys.index_from(end);
    Slice part = slice;
    part.keys = slice.keys.part(first, last);
    const Scope scope = plan_.scope(batch, part);
    if (scope.rows() == 0) continue;
    if (slice.regions != nullptr) set_sums_.assign(slice.regions->weight.size(), 0.0);
    for (int64_t stream = 0; stream < plan_.streams; ++stream) {
      run_slice(scope, part, batch, stream, target);
    }
    if (slice.regions != nullptr && call_.wants_modes()) add_modes(slice, target);
  }
}

void KeyRange::run_slice(const Scope& scope, const Slice& part, int64_t batch, int64_t stream,
                         const HeadGradients& target) {
  begin_keys(scope, part, batch, stream);
  const int64_t last = part.queries.index_from(rectangle_.query_end), step = tile_tokens(plan_, part);
  for (int64_t at = part.queries.index_from(rectangle_.query_begin); at < last; at += step) {
    tile_.fill(plan_, scope, part, batch, stream, at, std::min(at + step, last));
    run_tile(scope, target);
  }
  add_keys(part.keys, scope.rows(), stream, target);
}

void KeyRange::begin_keys(const Scope& scope, const Slice& part, int64_t batch, int64_t stream) {
  const RowSet set{batch, part.key_head, stream, &part.keys};
  keys_.reset(key_source(plan_), set, scope.rows(), plan_.key_depth, plan_.key_columns);
  values_.reset(value_source(plan_), set, scope.rows(), plan_.value_depth, plan_.value_columns);
  const int64_t rows = round_up(scope.rows(), kPanel);
  std::fill_n(key_gradients_.ensure(rows * plan_.key_columns), rows * plan_.key_columns, 0.0f);
  std::fill_n(value_gradients_.ensure(rows * plan_.value_columns), rows * plan_.value_columns, 0.0f);
}

void KeyRange::run_tile(const Scope& scope, const HeadGradients& target) {
  const auto ranges = visible_panels(tile_);
  if (ranges[0].begin >= ranges[0].end && ranges[1].begin >= ranges[1].end) return;
  if (tile_.bias.empty()) {
    read_tile();
  } else {
    gather_tile();
  }
  load_tile();
  std::fill_n(query_gradients_.get(), tile_.rows() * plan_.key_columns, 0.0f);
  for (const PanelRange& range : ranges) {
    for (int64_t block = range.begin; block < range.end; block += kKeyPanels) {
      run_block(scope, block, std::min(block + kKeyPanels, range.end));
    }
  }
  write_queries(target);
}

// Rows of queries and of gradients of outputs.
void KeyRange::read_tile() {
  const int64_t rows_of_head = tile_.tokens() * plan_.rows_per_token;
  const int64_t begin = tile_.begin * plan_.rows_per_token, end = tile_.end * plan_.rows_per_token;
  const int64_t batch = tile_.batch, key_columns = plan_.key_columns, value_columns = plan_.value_columns;
  const RowSource source = query_source(plan_);
  for (int64_t head = tile_.slice->head_begin; head < tile_.slice->head_end; ++head) {
    const RowSet set{batch, head, tile_.stream, &tile_.slice->queries, plan_.problem.query_offset[batch]};
    const int64_t first = (head - tile_.slice->head_begin) * rows_of_head;
    reader_.read(source, set, begin, end, query_rows_.get() + first * key_columns, key_columns);
    output_gradients_.read(set, begin, end, gradient_rows_.get() + first * value_columns, value_columns);
  }
}

// The rows as operands, and what the forward pass left of each.
void KeyRange::load_tile() {
  const int64_t rows = tile_.rows(), batch = tile_.batch;
  const int64_t key_columns = plan_.key_columns, value_columns = plan_.value_columns;
  const core::Array& lse = call_.upstream.lse;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t head = tile_.head(row), token = tile_.slice->queries.token(tile_.index(row));
    const int64_t at = batch * lse.strides[0] + head * lse.strides[1] + token * lse.strides[2] +
                       tile_.pseudo[row] * lse.strides[3];
    const double value = load(lse.data, lse.dtype, at);
    // A row that sees nothing has no weights whatever stands here, as long as it is a number.
    log2_sum_[row] = std::isinf(value) && value < 0
                         ? 0.0f
                         : static_cast<float>(value * std::numbers::log2e) - tile_.slice->log2_weight;
    row_term_[row] = call_.row_terms[call_.row_index(batch, head, token, tile_.pseudo[row])];
  }
  tile_finite_ = prim_.finite(query_rows_.get(), rows * key_columns) &&
                 prim_.finite(gradient_rows_.get(), rows * value_columns) &&
                 prim_.finite(log2_sum_.data(), rows) && prim_.finite(row_term_.data(), rows);
  if (!prim_.pairs) return;
  if (rows % 2 != 0) {  // the second half of the last pair
    std::fill_n(query_rows_.get() + rows * key_columns, key_columns, 0.0f);
    std::fill_n(gradient_rows_.get() + rows * value_columns, value_columns, 0.0f);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const float *query = query_rows_.get() + row * key_columns,
                *gradient = gradient_rows_.get() + row * value_columns;
    prim_.pack_along(query, plan_.key_depth, query_along_.get() + row * plan_.key_depth);
    prim_.pack_along(gradient, plan_.value_depth, gradient_along_.get() + row * plan_.value_depth);
    if (row % 2 != 0) continue;
    prim_.pack_across(query, query + key_columns, key_columns, query_across_.get() + row / 2 * key_columns);
    prim_.pack_across(gradient, gradient + value_columns, value_columns,
                      gradient_across_.get() + row / 2 * value_columns);
  }
}

// One tile of queries and panels [begin, end) of the slice's keys.
void KeyRange::run_block(const Scope& scope, int64_t begin, int64_t end) {
  meetings_.fill({0, 0, false});
  const bool all = panels_.take_all(tile_, scope, begin, end);
  if (all && panels_.count == 0) return;
  for (int64_t row = 0; row < tile_.rows(); row += prim_.group_rows) {
    const int64_t rows = std::min<int64_t>(prim_.group_rows, tile_.rows() - row);
    if (!all) panels_.find(tile_, scope, row, rows, begin, end);
    if (panels_.count == 0) continue;
    score_group(scope, row, rows, begin, end);
    multiply_queries(row, rows, begin);
  }
  multiply_keys(begin, end - begin);
}

// Weights and score gradients of a register tile's rows; where pairs, packed both ways.
void KeyRange::score_group(const Scope&, int64_t row, int64_t rows, int64_t begin, int64_t end) {
  const int64_t even_rows = prim_.pairs ? round_up(rows, 2) : rows,
                tile_rows = static_cast<int64_t>(log2_sum_.size());
  float *weights = weights_.get() + row * score_row_, *gradients = score_gradients_.get() + row * score_row_;
  const Cell* queries = prim_.pairs ? query_along_.get() + row * plan_.key_depth
                                    : cells(query_rows_.get() + row * plan_.key_columns);
  const Cell* upstream = prim_.pairs ? gradient_along_.get() + row * plan_.value_depth
                                     : cells(gradient_rows_.get() + row * plan_.value_columns);
  if (plan_.drop_threshold > 0) fill_keep_bits(plan_, tile_, row, rows, panels_, keep_.data());
  const GroupPanels::Biases biases = panels_.biases(tile_, row);
  const bool sums =
      tile_.slice->regions != nullptr ? call_.wants_modes() : !tile_.bias.empty() && call_.wants_blocks();
  for (int slot = 0; slot < panels_.count;) {
    const int run = panels_.run(slot);
    for (int i = 0; i < run; ++i) {
      keys_.ensure(panels_.panel[slot + i]);
      values_.ensure(panels_.panel[slot + i]);
    }
    const int64_t panel = panels_.panel[slot], column = (panel - begin) * kPanel, columns = run * kPanel;
    prim_.multiply({.rows = rows,
                    .columns = columns,
                    .depth = plan_.key_depth,
                    .a = queries,
                    .a_row = prim_.pairs ? plan_.key_depth : plan_.key_columns,
                    .a_depth = 1,
                    .b = keys_.panel(panel),
                    .b_depth = kPanel,
                    .b_panel = keys_.panel_size(),
                    .c = weights + column,
                    .c_row = score_row_,
                    .accumulate = false});
    prim_.multiply({.rows = rows,
                    .columns = columns,
                    .depth = plan_.value_depth,
                    .a = upstream,
                    .a_row = prim_.pairs ? plan_.value_depth : plan_.value_columns,
                    .a_depth = 1,
                    .b = values_.panel(panel),
                    .b_depth = kPanel,
                    .b_panel = values_.panel_size(),
                    .c = gradients + column,
                    .c_row = score_row_,
                    .accumulate = false});
    for (int i = 0; i < run; ++i) {
      panels_.shift(prim_, slot + i, weights + column + i * kPanel, score_row_, rows);
      if (!panels_.partial[slot + i]) continue;
      prim_.hide(weights + column + i * kPanel, score_row_, rows, panels_.bits[slot + i].data(), -INFINITY);
    }
    prim_.weights({.rows = rows,
                   .columns = columns,
                   .scores = weights + column,
                   .score_row = score_row_,
                   .log2_scale = plan_.log2_scale,
                   .log2_sum = log2_sum_.data() + row,
                   .bias = biases.values == nullptr ? nullptr : biases.values + slot * biases.panel,
                   .bias_row = biases.row,
                   .bias_panel = biases.panel});
    prim_.score_gradient({.rows = rows,
                          .columns = columns,
                          .weights = weights + column,
                          .gradient = gradients + column,
                          .row = score_row_,
                          .row_term = row_term_.data() + row,
                          .keep = plan_.drop_threshold > 0 ? keep_.data() + slot : nullptr,
                          .keep_row = panels_.count,
                          .keep_scale = plan_.keep_scale});
    for (int i = 0; i < run; ++i) {
      const int64_t at = panel + i - begin;
      Meeting& meeting = meetings_[at];
      uint32_t* seen = &seen_[at * tile_rows];
      if (meeting.last > meeting.first && meeting.last < row) {  // rows between that do not see the panel
        for (int64_t skipped = meeting.last; skipped < row; ++skipped) {
          std::fill_n(weights_.get() + skipped * score_row_ + at * kPanel, kPanel, 0.0f);
          std::fill_n(score_gradients_.get() + skipped * score_row_ + at * kPanel, kPanel, 0.0f);
          seen[skipped] = 0;
          if (prim_.pairs) {
            std::fill_n(weights_across_.get() + skipped / 2 * score_row_ + at * kPanel, kPanel, 0u);
            std::fill_n(score_across_.get() + skipped / 2 * score_row_ + at * kPanel, kPanel, 0u);
          }
        }
        meeting.partial = true;
      }
      if (meeting.last == meeting.first) meeting.first = row;
      meeting.last = row + rows;
      const bool partial = panels_.partial[slot + i];
      meeting.partial |= partial;
      for (int64_t r = 0; r < rows; ++r) seen[row + r] = partial ? panels_.bits[slot + i][r] : ~0u;
      if (partial) {  // 0 times a hidden NaN, or a hidden pair's upstream that overflowed
        const uint32_t* bits = panels_.bits[slot + i].data();
        prim_.hide(gradients + at * kPanel, score_row_, rows, bits, 0.0f);
        if (!(tile_finite_ && values_.finite(panel + i))) {
          prim_.hide(weights + at * kPanel, score_row_, rows, bits, 0.0f);
        }
      }
      if (sums) sum_weights(row, rows, slot + i, gradients + at * kPanel);
    }
    if (prim_.pairs) {
      for (int64_t r = rows; r < even_rows; ++r) {
        std::fill_n(weights + r * score_row_ + column, columns, 0.0f);
        std::fill_n(gradients + r * score_row_ + column, columns, 0.0f);
      }
      for (int64_t r = 0; r < rows; ++r) {
        prim_.pack_along(gradients + r * score_row_ + column, columns / 2,
                         score_cells_.get() + (row + r) * cell_row_ + column / 2);
      }
      for (int64_t r = 0; r < even_rows; r += 2) {
        const float *w = weights + r * score_row_ + column, *g = gradients + r * score_row_ + column;
        const int64_t across = (row + r) / 2 * score_row_ + column;
        prim_.pack_across(w, w + score_row_, columns, weights_across_.get() + across);
        prim_.pack_across(g, g + score_row_, columns, score_across_.get() + across);
      }
    }
    slot += run;
  }
  static_cast<void>(end);
}

// grad_q of a register tile's rows.
void KeyRange::multiply_queries(int64_t row, int64_t rows, int64_t begin) {
  const auto careful = [&](int slot) { return panels_.partial[slot] && !keys_.finite(panels_.panel[slot]); };
  for (int slot = 0; slot < panels_.count;) {
    if (careful(slot)) {
      multiply_hidden_queries(row, rows, begin, slot++);
      continue;
    }
    int run = 1;
    while (run < panels_.run(slot) && !careful(slot + run)) ++run;
    const int64_t column = (panels_.panel[slot] - begin) * kPanel;
    const Cell* left = prim_.pairs ? score_cells_.get() + row * cell_row_ + column / 2
                                   : cells(score_gradients_.get() + row * score_row_ + column);
    prim_.multiply({.rows = rows,
                    .columns = plan_.key_columns,
                    .depth = run * keys_.row_cells(),
                    .a = left,
                    .a_row = prim_.pairs ? cell_row_ : score_row_,
                    .a_depth = 1,
                    .b = keys_.rows(panels_.panel[slot]),
                    .b_depth = plan_.key_columns,
                    .b_panel = kPanel,
                    .c = query_gradients_.get() + row * plan_.key_columns,
                    .c_row = plan_.key_columns,
                    .accumulate = true});
    slot += run;
  }
}

// The same where hidden keys are NaN or inf: every row gets a copy of the panel without what it does not see.
void KeyRange::multiply_hidden_queries(int64_t row, int64_t rows, int64_t begin, int slot) {
  const int64_t column = (panels_.panel[slot] - begin) * kPanel;
  Cell* copy = patched_.ensure(std::max(keys_.rows_size(), values_.rows_size()));
  for (int64_t i = row; i < row + rows; ++i) {
    std::memcpy(copy, keys_.rows(panels_.panel[slot]), keys_.rows_size() * sizeof(Cell));
    clear_hidden(prim_.pairs, panels_.bits[slot][i - row], plan_.key_columns, copy);
    const Cell* left = prim_.pairs ? score_cells_.get() + i * cell_row_ + column / 2
                                   : cells(score_gradients_.get() + i * score_row_ + column);
    prim_.multiply({.rows = 1,
                    .columns = plan_.key_columns,
                    .depth = keys_.row_cells(),
                    .a = left,
                    .a_row = score_row_,
                    .a_depth = 1,
                    .b = copy,
                    .b_depth = plan_.key_columns,
                    .b_panel = kPanel,
                    .c = query_gradients_.get() + i * plan_.key_columns,
                    .c_row = plan_.key_columns,
                    .accumulate = true});
  }
}

// grad_v and grad_k of the block's panels, over the rows that meet each; neighbours with the same rows at
// once.
void KeyRange::multiply_keys(int64_t begin, int64_t panels) {
  const auto finite = [&](int64_t at) {
    return tile_finite_ && keys_.finite(begin + at) && values_.finite(begin + at);
  };
  for (int64_t at = 0; at < panels;) {
    const Meeting& meeting = meetings_[at];
    if (meeting.first == meeting.last) {
      ++at;
      continue;
    }
    if (meeting.partial && !finite(at)) {
      multiply_hidden_keys(begin, at++);
      continue;
    }
    int64_t next = at + 1;
    while (next < panels && meetings_[next].first == meeting.first && meetings_[next].last == meeting.last &&
           (finite(next) || !meetings_[next].partial)) {
      ++next;
    }
    const int64_t first = prim_.pairs ? meeting.first / 2 : meeting.first;
    const int64_t depth =
        prim_.pairs ? divide_up(meeting.last - meeting.first, 2) : meeting.last - meeting.first;
    const auto add = [&](const Cell* left, const Cell* right, int64_t columns, float* sums) {
      prim_.multiply({.rows = (next - at) * kPanel,
                      .columns = columns,
                      .depth = depth,
                      .a = left + first * score_row_ + at * kPanel,
                      .a_row = 1,
                      .a_depth = score_row_,
                      .b = right + first * columns,
                      .b_depth = columns,
                      .b_panel = kPanel,
                      .c = sums + (begin + at) * kPanel * columns,
                      .c_row = columns,
                      .accumulate = true});
    };
    add(prim_.pairs ? weights_across_.get() : cells(weights_.get()),
        prim_.pairs ? gradient_across_.get() : cells(gradient_rows_.get()), plan_.value_columns,
        value_gradients_.get());
    add(prim_.pairs ? score_across_.get() : cells(score_gradients_.get()),
        prim_.pairs ? query_across_.get() : cells(query_rows_.get()), plan_.key_columns,
        key_gradients_.get());
    at = next;
  }
}

// The same where something is NaN or inf: each key gets copies of queries and gradients without the rows that
// do not see it.
void KeyRange::multiply_hidden_keys(int64_t begin, int64_t at) {
  const Meeting& meeting = meetings_[at];
  const int64_t tile_rows = static_cast<int64_t>(log2_sum_.size());
  const int64_t first = prim_.pairs ? meeting.first / 2 : meeting.first;
  const int64_t depth =
      prim_.pairs ? divide_up(meeting.last - meeting.first, 2) : meeting.last - meeting.first;
  const uint32_t* seen = &seen_[at * tile_rows];
  const auto add = [&](int64_t key, const Cell* left, const Cell* right, int64_t columns, float* sums) {
    Cell* copy = patched_.ensure(tile_rows * std::max(plan_.key_columns, plan_.value_columns));
    std::memcpy(copy, right + first * columns, depth * columns * sizeof(Cell));
    for (int64_t row = meeting.first; row < meeting.last; ++row) {
      if (seen[row] >> key & 1u) continue;
      const int64_t in = row - meeting.first;
      const Cell kept = !prim_.pairs ? 0u : in % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
      Cell* values = copy + (prim_.pairs ? in / 2 : in) * columns;
      for (int64_t c = 0; c < columns; ++c) values[c] &= kept;
    }
    prim_.multiply({.rows = 1,
                    .columns = columns,
                    .depth = depth,
                    .a = left + first * score_row_ + at * kPanel + key,
                    .a_row = 1,
                    .a_depth = score_row_,
                    .b = copy,
                    .b_depth = columns,
                    .b_panel = kPanel,
                    .c = sums + ((begin + at) * kPanel + key) * columns,
                    .c_row = columns,
                    .accumulate = true});
  };
  for (int64_t key = 0; key < kPanel; ++key) {
    add(key, prim_.pairs ? weights_across_.get() : cells(weights_.get()),
        prim_.pairs ? gradient_across_.get() : cells(gradient_rows_.get()), plan_.value_columns,
        value_gradients_.get());
    add(key, prim_.pairs ? score_across_.get() : cells(score_gradients_.get()),
        prim_.pairs ? query_across_.get() : cells(query_rows_.get()), plan_.key_columns,
        key_gradients_.get());
  }
}

void KeyRange::write_queries(const HeadGradients& target) {
  const Problem& problem = plan_.problem;
  const auto factor = static_cast<float>(problem.scale);
  for (int64_t row = 0; row < tile_.rows(); ++row) {
    const int64_t in_group = tile_.head(row) % problem.group();
    const int64_t token = tile_.slice->queries.token(tile_.index(row)) - rectangle_.query_begin;
    const int64_t at = (in_group * rectangle_.queries() + token) * problem.pseudo_heads + tile_.pseudo[row];
    prim_.add_scaled(target.query + at * plan_.key_columns, query_gradients_.get() + row * plan_.key_columns,
                     factor, plan_.key_columns);
  }
}

void KeyRange::add_keys(const View& keys, int64_t rows, int64_t stream, const HeadGradients& target) {
  const auto factor = static_cast<float>(std::abs(plan_.problem.scale));  // queries carry the sign
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t index = row / plan_.rows_per_token;
    const int64_t at = keys.token(index) * plan_.problem.pseudo_heads +
                       plan_.pseudo(stream, row - index * plan_.rows_per_token);
    prim_.add_scaled(target.key + at * plan_.key_columns, key_gradients_.get() + row * plan_.key_columns,
                     factor, plan_.key_columns);
    prim_.add_scaled(target.value + at * plan_.value_columns,
                     value_gradients_.get() + row * plan_.value_columns, 1.0f, plan_.value_columns);
  }
}

}  // namespace iha::cpu
