// The forward pass: online softmax over blocks of keys, one pass over queries, keys and values.
//
// Work. A task is a sequence, a slice (heads of one pattern and key head, or all where a global collapse
// joins heads) and a chunk of 512 to 2048 query rows. It packs the keys and values that the chunk sees, panel
// by panel when first met, and takes its query rows in tiles of 128. Packing again for each chunk costs under
// 2 % and saves every barrier and every tensor over all heads.
//
// A tile meets keys in blocks of 512 rows: in L2 the block's panels (d * 2 KB) and values (dv * 2 KB), read
// from L3 once a tile; in L1 the scores of one register tile's rows (8 x 512 floats, 16 KB; with AMX 32 x
// 256, 32 of 48 KB). For each such group of rows: scores = q k^T on full panels without, on partial ones with
// a mask; weights by exp2 with a reference per row that moves only when it must; output += weights * values.
// 4 * pairs * d flops, both products from operands read in order.
//
// Few queries (a slice of one tile): tasks are ranges of the keys that the tile sees (cut.h), whose states
// (output, largest, sum) are joined in order afterwards. A few rows of plain keys read keys and values where
// they lie, each byte once for all of the slice's heads: the memory's bandwidth is the limit, and packing
// would cost more than the products. Slices whose keys lie side by side take turns within one task.
//
// Heads that choose: a learned head's panels have a bias each, or regions where candidates' edges cross them;
// a dynamic head goes by blocks of keys (forward_chosen.cpp).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "iha/kernels/cpu/engine.h"
#include "iha/kernels/cpu/forward_worker.h"

namespace iha::cpu {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr int64_t kMostScores = 32 * 256;  // of one register tile's rows in L1

}  // namespace

ForwardWorker::ForwardWorker(const Plan& plan, const Cut& cut, const core::AttentionOutputs& outputs)
    : plan_(plan),
      cut_(cut),
      outputs_(outputs),
      prim_(plan.primitives),
      reader_(plan),
      keys_(plan, reader_, /*panels=*/true, /*rows=*/false),
      values_(plan, reader_, /*panels=*/false, /*rows=*/true),
      all_queries_{0, 1, plan.problem.queries},
      collapses_(outputs.out.data != nullptr && !plan.collapse.empty()),
      block_panels_(std::min(kBlockPanels, kMostScores / kPanel / plan.primitives.group_rows)),
      // A cache line more than the block, so that the rows do not all fall into the same sets of L1.
      score_row_(block_panels_ * kPanel + 16),
      query_row_(plan.primitives.pairs ? round_up(plan.key_depth, kColumnMultiple) : plan.key_columns) {
  scores_.ensure(prim_.group_rows * score_row_);
  state_.ensure(state_size(plan, cut));
  allocate_queries();
  if (plan.drop_threshold > 0) keep_.resize(kMaxGroupRows * kBlockPanels);
}

void ForwardWorker::allocate_queries() {
  now_->query_rows.ensure(cut_.tile_rows * plan_.key_columns);
  if (prim_.pairs) now_->queries.ensure(cut_.tile_rows * query_row_);
}

void ForwardWorker::clear(const State& state, int64_t rows) {
  std::fill(state.output, state.output + rows * plan_.value_columns, 0.0f);
  std::fill(state.largest, state.largest + rows, kNone);
  std::fill(state.sum, state.sum + rows, 0.0f);
}

void ForwardWorker::begin_slice(const Slice& slice, const Scope& scope, int64_t batch, int64_t stream) {
  if (cut_.unpacked) {
    if (scope.rows() == 0) return;
    now_->keys = RowsInPlace(plan_, plan_.inputs.key, batch, slice);
    now_->values = RowsInPlace(plan_, plan_.inputs.value, batch, slice);
    return;
  }
  const RowSet set{batch, slice.key_head, stream, &slice.keys};
  keys_.reset(key_source(plan_), set, scope.rows(), plan_.key_depth, plan_.key_columns);
  values_.reset(value_source(plan_), set, scope.rows(), plan_.value_depth, plan_.value_columns);
}

// The tile's queries as the left operand: [rows][cells of d].
void ForwardWorker::load_queries() {
  const QueryTile& tile = now_->tile;
  const int64_t rows_of_head = tile.tokens() * plan_.rows_per_token;
  const RowSource source = query_source(plan_);
  for (int64_t head = tile.slice->head_begin; head < tile.slice->head_end; ++head) {
    const RowSet set{tile.batch, head, tile.stream, &tile.slice->queries,
                     plan_.problem.query_offset[tile.batch]};
    float* rows = now_->query_rows.get() + (head - tile.slice->head_begin) * rows_of_head * plan_.key_columns;
    reader_.read(source, set, tile.begin * plan_.rows_per_token, tile.end * plan_.rows_per_token, rows,
                 plan_.key_columns);
  }
  now_->operand = prim_.pairs ? now_->queries.get() : reinterpret_cast<const Cell*>(now_->query_rows.get());
  if (!prim_.pairs) return;
  for (int64_t row = 0; row < tile.rows(); ++row) {
    Cell* cells = now_->queries.get() + row * query_row_;
    prim_.pack_along(now_->query_rows.get() + row * plan_.key_columns, plan_.key_depth, cells);
    std::fill(cells + plan_.key_depth, cells + query_row_, Cell{0});
  }
}

void ForwardWorker::attend(const Scope& scope, const State& state, int64_t first, int64_t last) {
  const QueryTile& tile = now_->tile;
  for (const PanelRange& range : visible_panels(tile)) {
    const int64_t end = std::min(range.end, last);
    for (int64_t block = std::max(range.begin, first); block < end; block += block_panels_) {
      const int64_t block_end = std::min(block + block_panels_, end);
      const bool all = panels_.take_all(tile, scope, block, block_end);
      if (all && panels_.count == 0) continue;
      for (int64_t row = 0; row < tile.rows(); row += prim_.group_rows) {
        const int64_t rows = std::min<int64_t>(prim_.group_rows, tile.rows() - row);
        if (!all) panels_.find(tile, scope, row, rows, block, block_end);
        if (panels_.count > 0) attend_group(scope, state, row, rows);
      }
    }
  }
}

void ForwardWorker::score_packed(int64_t row, int64_t rows) {
  for (int slot = 0; slot < panels_.count;) {
    const int run = panels_.run(slot);
    for (int i = 0; i < run; ++i) {
      keys_.ensure(panels_.panel[slot + i]);
      values_.ensure(panels_.panel[slot + i]);
    }
    prim_.multiply({.rows = rows,
                    .columns = run * kPanel,
                    .depth = plan_.key_depth,
                    .a = queries(row),
                    .a_row = query_row_,
                    .a_depth = 1,
                    .b = keys_.panel(panels_.panel[slot]),
                    .b_depth = kPanel,
                    .b_panel = keys_.panel_size(),
                    .c = scores_.get() + slot * kPanel,
                    .c_row = score_row_,
                    .accumulate = false});
    slot += run;
  }
}

void ForwardWorker::score_unpacked(const Scope& scope, int64_t row, int64_t rows) {
  for (int slot = 0; slot < panels_.count;) {
    const int run = panels_.run(slot);
    const int64_t first = panels_.panel[slot] * kPanel;
    prim_.score_rows({.rows = rows,
                      .count = std::min(run * kPanel, scope.rows() - first),
                      .width = plan_.problem.head_dim,
                      .queries = queries(row),
                      .query_row = query_row_,
                      .keys = now_->keys.at(first),
                      .dtype = plan_.inputs.key.dtype,
                      .key_row = now_->keys.row(),
                      .scores = scores_.get() + slot * kPanel,
                      .score_row = score_row_,
                      .ahead = row == 0 ? ahead(now_->keys, plan_.inputs.key, first) : Ahead{}});
    slot += run;
  }
}

void ForwardWorker::attend_group(const Scope& scope, const State& state, int64_t row, int64_t rows) {
  if (cut_.unpacked) {
    score_unpacked(scope, row, rows);
  } else {
    score_packed(row, rows);
  }
  for (int slot = 0; slot < panels_.count; ++slot) {
    panels_.shift(prim_, slot, scores_.get() + slot * kPanel, score_row_, rows);
    if (panels_.partial[slot]) {
      prim_.hide(scores_.get() + slot * kPanel, score_row_, rows, panels_.bits[slot].data(), kNone);
    }
  }
  const uint32_t* keep = nullptr;
  if (plan_.drop_threshold > 0) {
    fill_keep_bits(plan_, now_->tile, row, rows, panels_, keep_.data());
    keep = keep_.data();
  }
  const GroupPanels::Biases biases = panels_.biases(now_->tile, row);
  prim_.softmax({.rows = rows,
                 .columns = panels_.count * kPanel,
                 .scores = scores_.get(),
                 .score_row = score_row_,
                 .log2_scale = plan_.log2_scale,
                 .largest = state.largest + row,
                 .sum = state.sum + row,
                 .output = state.output + row * plan_.value_columns,
                 .output_row = plan_.value_columns,
                 .output_columns = plan_.value_columns,
                 .keep = keep,
                 .keep_row = panels_.count,
                 .bias = biases.values,
                 .bias_row = biases.row,
                 .bias_panel = biases.panel});
  if (cut_.unpacked) {
    weigh_unpacked(state, row, rows);
  } else {
    weigh_values(state, row, rows);
  }
}

void ForwardWorker::weigh_values(const State& state, int64_t row, int64_t rows) {
  const int64_t cells = values_.row_cells();
  const auto careful = [&](int slot) {
    return panels_.partial[slot] && !values_.finite(panels_.panel[slot]);
  };
  for (int slot = 0; slot < panels_.count;) {
    if (careful(slot)) {
      weigh_hidden(state, row, rows, slot++);
      continue;
    }
    int run = 1;
    while (run < panels_.run(slot) && !careful(slot + run)) ++run;
    prim_.multiply({.rows = rows,
                    .columns = plan_.value_columns,
                    .depth = run * cells,
                    .a = reinterpret_cast<const Cell*>(scores_.get()) + slot * cells,
                    .a_row = score_row_,
                    .a_depth = 1,
                    .b = values_.rows(panels_.panel[slot]),
                    .b_depth = plan_.value_columns,
                    .b_panel = kPanel,
                    .c = state.output + row * plan_.value_columns,
                    .c_row = plan_.value_columns,
                    .accumulate = true});
    slot += run;
  }
}

// A partial panel with NaN or inf among its values: each row gets a copy in which what it does not see is 0.
// The sums are those of the fast way, bit for bit.
void ForwardWorker::weigh_hidden(const State& state, int64_t row, int64_t rows, int slot) {
  const int64_t cells = values_.row_cells(), columns = plan_.value_columns;
  Cell* copy = patched_.ensure(values_.rows_size());
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(copy, values_.rows(panels_.panel[slot]), values_.rows_size() * sizeof(Cell));
    clear_hidden(plan_.primitives.pairs, panels_.bits[slot][i], columns, copy);
    prim_.multiply({.rows = 1,
                    .columns = columns,
                    .depth = cells,
                    .a = reinterpret_cast<const Cell*>(scores_.get() + i * score_row_) + slot * cells,
                    .a_row = score_row_,
                    .a_depth = 1,
                    .b = copy,
                    .b_depth = columns,
                    .b_panel = kPanel,
                    .c = state.output + (row + i) * columns,
                    .c_row = columns,
                    .accumulate = true});
  }
}

void ForwardWorker::weigh_unpacked(const State& state, int64_t row, int64_t rows) {
  for (int slot = 0; slot < panels_.count;) {
    if (panels_.partial[slot]) {
      weigh_visible(state, row, rows, slot++);
      continue;
    }
    int run = 1;
    while (run < panels_.run(slot) && !panels_.partial[slot + run]) ++run;
    prim_.weigh_rows({.rows = rows,
                      .panels = run,
                      .width = plan_.problem.value_dim,
                      .weights = reinterpret_cast<const Cell*>(scores_.get()) + slot * values_.row_cells(),
                      .weight_row = score_row_,
                      .values = now_->values.at(panels_.panel[slot] * kPanel),
                      .dtype = plan_.inputs.value.dtype,
                      .value_row = now_->values.row(),
                      .output = state.output + row * plan_.value_columns,
                      .output_row = plan_.value_columns,
                      .ahead = row == 0
                                   ? ahead(now_->values, plan_.inputs.value, panels_.panel[slot] * kPanel)
                                   : Ahead{}});
    slot += run;
  }
}

// A partial panel: rows that see the same (every row, where there is one query) get a copy in which the rest
// is 0, finite or not. Nothing past the last key is read.
void ForwardWorker::weigh_visible(const State& state, int64_t row, int64_t rows, int slot) {
  const auto& bits = panels_.bits[slot];
  const int64_t width = plan_.problem.value_dim, bytes = width * plan_.element_size;
  char* copy = visible_values_.ensure(kPanel * bytes);
  for (int64_t i = 0, next = 1; i < rows; i = next++) {
    while (next < rows && bits[next] == bits[i]) ++next;
    for (int64_t key = 0; key < kPanel; ++key) {
      if (bits[i] >> key & 1u) {
        std::memcpy(copy + key * bytes, now_->values.at(panels_.panel[slot] * kPanel + key), bytes);
      } else {
        std::memset(copy + key * bytes, 0, bytes);
      }
    }
    prim_.weigh_rows({.rows = next - i,
                      .panels = 1,
                      .width = width,
                      .weights = reinterpret_cast<const Cell*>(scores_.get() + i * score_row_) +
                                 slot * values_.row_cells(),
                      .weight_row = score_row_,
                      .values = copy,
                      .dtype = plan_.inputs.value.dtype,
                      .value_row = width,
                      .output = state.output + (row + i) * plan_.value_columns,
                      .output_row = plan_.value_columns});
  }
}

// The states of a slice's ranges of keys, in order, as one.
void ForwardWorker::join(const StateRange& range, const float* states, const State& state) {
  clear(state, rows_.tile.rows());
  for (int64_t number = range.begin; number < range.end; ++number) {
    const State part = state_at(const_cast<float*>(states) + number * state_size(plan_, cut_));
    for (int64_t row = 0; row < rows_.tile.rows(); ++row) {
      if (part.sum[row] == 0.0f) continue;  // saw nothing
      const float largest = std::max(state.largest[row], part.largest[row]);
      const float reference = largest == kNone ? 0.0f : largest;
      const float old_factor = std::exp2((state.largest[row] - reference) * plan_.log2_scale);
      const float part_factor = std::exp2((part.largest[row] - reference) * plan_.log2_scale);
      state.largest[row] = largest;
      state.sum[row] = state.sum[row] * old_factor + part.sum[row] * part_factor;
      float* output = state.output + row * plan_.value_columns;
      prim_.scale(output, old_factor, plan_.value_columns);
      prim_.add_scaled(output, part.output + row * plan_.value_columns, part_factor, plan_.value_columns);
    }
  }
}

void ForwardWorker::write_row(const core::MutableArray& array, int64_t at, int64_t step, const float* row) {
  if (step == 1) {
    auto* data = static_cast<char*>(array.data) + at * static_cast<int64_t>(size_of(array.dtype));
    prim_.narrow(row, array.dtype, plan_.problem.value_dim, data);
    return;
  }
  for (int64_t c = 0; c < plan_.problem.value_dim; ++c) store(array.data, array.dtype, at + c * step, row[c]);
}

// Normalises the tile's rows, writes parts and logsumexp, and adds to the outputs of tokens [out_begin, ...).
void ForwardWorker::finish(const State& state, int64_t out_begin, int64_t out_tokens) {
  constexpr auto kLog2E = static_cast<float>(std::numbers::log2e),
                 kLn2 = static_cast<float>(std::numbers::ln2);
  for (int64_t row = 0; row < rows_.tile.rows(); ++row) {
    const int64_t head = rows_.tile.head(row);
    const int64_t token = rows_.tile.slice->queries.token(rows_.tile.index(row));
    const bool sees = state.sum[row] != 0.0f;
    float lse = kNone, factor = 0.0f;
    if (sees) {
      const float exponent = state.largest[row] * plan_.log2_scale + rows_.tile.slice->log2_weight;
      float sum = state.sum[row], reference = exponent, shrink = 1.0f;
      if (!plan_.sinks.empty()) {
        const float sink = plan_.sinks[head] * kLog2E;
        reference = std::max(exponent, sink);
        shrink = std::exp2(exponent - reference);
        sum = sum * shrink + std::exp2(sink - reference);
      }
      lse = (reference + std::log2(sum)) * kLn2;
      factor = shrink * plan_.keep_scale / sum;
    } else if (!plan_.sinks.empty()) {
      lse = plan_.sinks[head];
    }
    float* output = state.output + row * plan_.value_columns;
    if (sees) prim_.scale(output, factor, plan_.value_columns);
    if (outputs_.lse.data != nullptr) {
      const auto& s = outputs_.lse.strides;
      static_cast<float*>(outputs_.lse.data)[rows_.tile.batch * s[0] + head * s[1] + token * s[2] +
                                             rows_.tile.pseudo[row] * s[3]] = lse;
    }
    if (outputs_.parts.data != nullptr) {
      const auto& s = outputs_.parts.strides;
      write_row(outputs_.parts,
                rows_.tile.batch * s[0] + head * s[1] + token * s[2] + rows_.tile.pseudo[row] * s[3], s[4],
                output);
    }
    if (outputs_.out.data != nullptr && !collapses_) {
      const auto& s = outputs_.out.strides;
      write_row(outputs_.out, rows_.tile.batch * s[0] + head * s[1] + token * s[2], s[3], output);
    }
  }
  if (collapses_) collapse(state, out_begin, out_tokens);
}

// Adds the tile's rows to the outputs that the collapse makes of them, a token's pseudo-heads at once: [out
// heads, P] times [P, channels]. Every sum is over heads, streams and pseudo-heads in this order, whoever
// runs them.
void ForwardWorker::collapse(const State& state, int64_t out_begin, int64_t out_tokens) {
  const Problem& problem = plan_.problem;
  const bool global = problem.collapse == CollapseKind::kGlobal;
  const int64_t columns = plan_.value_columns, per_token = plan_.rows_per_token;
  for (int64_t row = 0; row < rows_.tile.rows(); row += per_token) {
    const int64_t head = rows_.tile.head(row), pseudo = rows_.tile.pseudo[row];
    const int64_t at =
        (cut_.joins_heads ? rows_.tile.slice->queries.token(rows_.tile.index(row)) : rows_.tile.index(row)) -
        out_begin;
    const float* weights = plan_.collapse.data() + head * problem.pseudo_heads + pseudo;
    prim_.multiply_float(
        {.rows = global ? problem.query_heads : 1,
         .columns = columns,
         .depth = per_token,
         .a = reinterpret_cast<const Cell*>(weights),
         .a_row = problem.query_heads * problem.pseudo_heads,
         .a_depth = 1,
         .b = reinterpret_cast<const Cell*>(state.output + row * columns),
         .b_depth = columns,
         .b_panel = kPanel,
         .c = out_.get() + ((global ? 0 : head - out_head_begin_) * out_tokens + at) * columns,
         .c_row = out_tokens * columns,
         .accumulate = true});
  }
}

void ForwardWorker::write_out(int64_t batch, const View& view, int64_t head_begin, int64_t head_end,
                              int64_t begin, int64_t end) {
  const auto& s = outputs_.out.strides;
  const float* row = out_.get();
  for (int64_t head = head_begin; head < head_end; ++head) {
    for (int64_t index = begin; index < end; ++index, row += plan_.value_columns) {
      write_row(outputs_.out, batch * s[0] + head * s[1] + view.token(index) * s[2], s[3], row);
    }
  }
}

void ForwardWorker::run_chunk(int64_t batch, int64_t slice_index, int64_t begin, int64_t end,
                              const float* states) {
  const auto& slices = plan_.slices(batch);
  const int64_t slice_begin = cut_.joins_heads ? 0 : slice_index;
  const int64_t slice_end = cut_.joins_heads ? static_cast<int64_t>(slices.size()) : slice_index + 1;
  out_head_begin_ = cut_.joins_heads ? 0 : slices[slice_begin].head_begin;
  const int64_t out_head_end = cut_.joins_heads ? plan_.problem.query_heads : slices[slice_begin].head_end;
  if (collapses_) {
    const int64_t size = (out_head_end - out_head_begin_) * (end - begin) * plan_.value_columns;
    std::fill_n(out_.ensure(size), size, 0.0f);
  }
  const State state = state_at(state_.get());
  for (int64_t at = slice_begin; at < slice_end; ++at) {
    const Slice& slice = slices[at];
    const Scope scope = plan_.scope(batch, slice);
    // Joined heads share tokens, not indices of a view.
    const int64_t first = cut_.joins_heads ? slice.queries.index_from(begin) : begin;
    const int64_t last = cut_.joins_heads ? slice.queries.index_from(end) : end;
    for (int64_t stream = 0; stream < plan_.streams; ++stream) {
      const bool chooses = slice.pattern.dynamic();
      if (chooses) {
        attend_chosen(slice, batch, stream, first, last);
      } else {
        begin_slice(slice, scope, batch, stream);
      }
      for (int64_t token = first; token < last; token += tile_tokens(plan_, slice)) {
        now_->tile.fill(plan_, scope, slice, batch, stream, token,
                        std::min(token + tile_tokens(plan_, slice), last));
        if (chooses) {
          finish(chosen_state((token - first) * plan_.rows_per_token), begin, end - begin);
          continue;
        }
        if (states != nullptr) {
          join(cut_.states_of(batch, at, stream), states, state);
        } else {
          load_queries();
          clear(state, now_->tile.rows());
          attend(scope, state);
        }
        finish(state, begin, end - begin);
      }
    }
  }
  if (collapses_) {
    const View& view = cut_.joins_heads ? all_queries_ : slices[slice_begin].queries;
    write_out(batch, view, out_head_begin_, out_head_end, begin, end);
  }
}

void ForwardWorker::run_splits(const Turns& task, float* states) {
  const auto count = static_cast<size_t>(task.end - task.begin);
  if (in_turn_.size() < count) in_turn_.resize(count);
  int64_t panels = 0;
  for (size_t i = 0; i < count; ++i) {
    const Split& split = cut_.splits[task.begin + static_cast<int64_t>(i)];
    InTurn& own = in_turn_[i];
    own.slice = plan_.slices(split.batch)[split.slice];
    own.slice.keys = split.keys;
    own.scope.emplace(plan_.scope(split.batch, own.slice));
    own.state = state_at(states + split.state * state_size(plan_, cut_));
    panels = std::max(panels, divide_up(own.scope->rows(), kPanel));
    now_ = &own.rows;
    allocate_queries();
    begin_slice(own.slice, *own.scope, split.batch, split.stream);
    now_->tile.fill(plan_, *own.scope, own.slice, split.batch, split.stream, 0, own.slice.queries.count);
    load_queries();
    clear(own.state, own.rows.tile.rows());
  }
  const int64_t first_head = in_turn_[0].slice.key_head;
  const int64_t heads = count == 1 ? 0 : in_turn_[count - 1].slice.key_head - first_head + 1;
  const int64_t step = count == 1 ? panels : task.panels;
  for (int64_t begin = 0; begin < panels; begin += step) {
    const int64_t end = std::min(begin + step, panels);
    for (size_t i = 0; i < count; ++i) {
      InTurn& own = in_turn_[i];
      const bool first_of_head = i == 0 || in_turn_[i - 1].slice.key_head != own.slice.key_head;
      turn_ = {begin, end, heads, own.slice.key_head - first_head, first_of_head && end < panels};
      now_ = &own.rows;
      attend(*own.scope, own.state, begin, end);
    }
  }
  turn_ = {};
  now_ = &rows_;
}

// What to ask for while rows from `first` on are read. Alone: the same head's, 64 rows ahead (16 to 128 make
// no difference). In turns: the next turn's tokens, whole, each head an equal share of them.
Ahead ForwardWorker::ahead(const RowsInPlace& rows, const core::Array& array, int64_t first) const {
  constexpr int64_t kAheadRows = 64;
  if (turn_.heads == 0) return {rows.at(first + kAheadRows), rows.row(), 1, 0};
  if (!turn_.asks) return {};
  const int64_t begin = turn_.begin * kPanel, end = turn_.end * kPanel;
  return {rows.at(end) - turn_.head * array.strides[1] * plan_.element_size, rows.row(), turn_.heads,
          turn_.head * (end - begin) + first - begin};
}

namespace {

struct Chunk {
  int64_t batch, slice, begin, end;
};

// All chunks, the later ones of a sequence first: with causal heads they are the long ones.
std::vector<Chunk> chunks_of(const Plan& plan, const Cut& cut) {
  std::vector<Chunk> chunks;
  // Dynamic heads meet a block of keys once a chunk: long ones pack it less often and fill their tiles.
  constexpr int64_t kManyHeads = 8, kChosenRows = 4096, kFewChosenRows = 1024;
  const bool many = plan.problem.batch * plan.problem.query_heads >= kManyHeads;
  const int64_t chosen_rows = many ? kChosenRows : kFewChosenRows;
  const auto add = [&](int64_t batch, int64_t slice, int64_t tokens, int64_t step) {
    for (int64_t begin = (tokens - 1) / step * step; begin >= 0; begin -= step) {
      chunks.push_back({batch, slice, begin, std::min(begin + step, tokens)});
    }
  };
  for (int64_t b = 0; b < plan.problem.batch; ++b) {
    if (plan.problem.queries == 0) break;
    const auto& slices = plan.slices(b);
    if (cut.joins_heads) {
      add(b, 0, plan.problem.queries, std::max<int64_t>(1, cut.chunk_rows / plan.rows_per_token));
      continue;
    }
    for (size_t i = 0; i < slices.size(); ++i) {
      const int64_t tile = tile_tokens(plan, slices[i]);
      const int64_t rows = tile * slices[i].heads() * plan.rows_per_token;
      add(b, static_cast<int64_t>(i), slices[i].queries.count,
          tile * std::max<int64_t>(1, (slices[i].pattern.dynamic() ? chosen_rows : cut.chunk_rows) / rows));
    }
  }
  return chunks;
}

}  // namespace

void forward(const Problem& problem, const core::AttentionInputs& inputs,
             const core::AttentionOutputs& outputs, const ParallelFor& parallel, Isa isa) {
  const Plan plan(problem, inputs, isa);
  const Cut cut(plan);
  const std::vector<Chunk> chunks = chunks_of(plan, cut);
  if (chunks.empty()) return;
  std::vector<std::unique_ptr<ForwardWorker>> workers(std::max(1, parallel.workers));
  const auto worker_at = [&](int index) -> ForwardWorker& {
    if (workers[index] == nullptr) workers[index] = std::make_unique<ForwardWorker>(plan, cut, outputs);
    return *workers[index];
  };
  Buffer<float> states;
  if (!cut.splits.empty()) {
    states.ensure(static_cast<int64_t>(cut.splits.size()) * ForwardWorker::state_size(plan, cut));
    parallel.run(static_cast<int64_t>(cut.turns.size()), [&](int64_t task, int worker) {
      const TaskGuard guard(plan.primitives);
      worker_at(worker).run_splits(cut.turns[task], states.get());
    });
  }
  parallel.run(static_cast<int64_t>(chunks.size()), [&](int64_t task, int worker) {
    const TaskGuard guard(plan.primitives);
    const Chunk& chunk = chunks[task];
    worker_at(worker).run_chunk(chunk.batch, chunk.slice, chunk.begin, chunk.end, states.get());
  });
}

}  // namespace iha::cpu
