// The forward pass of a dynamic head, block of keys by block: the queries that chose a block are gathered
// into tiles, however far apart they lie, and their states live in memory between blocks, which every query
// meets in order. So the products are those of the chosen pairs, in full register tiles.
//
// Why not tiles of neighbours: with one block in ten chosen at random, 8 neighbours choose 57 % of the blocks
// between them, 128 all. Gathering costs a query and block of 64 keys and 64 channels some 40 cycles (its row
// and its state copied in, the state back), the products 256. Where a tile's queries are neighbours they and
// their states are used where they lie, to the same bits.
#include <algorithm>
#include <cstring>

#include "iha/kernels/cpu/forward_worker.h"

namespace iha::cpu {

void ForwardWorker::attend_chosen(const Slice& slice, int64_t batch, int64_t stream, int64_t first,
                                  int64_t last) {
  const int64_t per_token = plan_.rows_per_token, rows = (last - first) * per_token;
  const RowSet set{batch, slice.head_begin, stream, &slice.queries, plan_.problem.query_offset[batch]};
  reader_.read(query_source(plan_), set, first * per_token, last * per_token,
               chosen_rows_.ensure(rows * plan_.key_columns), plan_.key_columns);
  if (prim_.pairs) {
    chosen_cells_.ensure(rows * query_row_);
    for (int64_t row = 0; row < rows; ++row) {
      Cell* cells = chosen_cells_.get() + row * query_row_;
      prim_.pack_along(chosen_rows_.get() + row * plan_.key_columns, plan_.key_depth, cells);
      std::fill(cells + plan_.key_depth, cells + query_row_, Cell{0});
    }
  }
  chosen_output_.ensure(rows * plan_.value_columns);
  chosen_largest_.ensure(rows);
  chosen_sum_.ensure(rows);
  clear(chosen_state(0), rows);

  const int64_t blocks = plan_.problem.key_blocks(), step = tile_tokens(plan_, slice);
  chosen_.find(plan_, batch, slice.head_begin, first, last, 0, blocks);
  for (int64_t block = 0; block < blocks; ++block) {
    const std::span<const int64_t> tokens = chosen_.tokens(block);
    if (tokens.empty()) continue;
    Slice part = slice;
    part.keys = keys_of_block(plan_.problem, block);
    const Scope scope = plan_.scope(batch, part);
    begin_slice(part, scope, batch, stream);
    const auto count = static_cast<int64_t>(tokens.size());
    for (int64_t begin = 0; begin < count; begin += step) {
      const int64_t size = std::min(step, count - begin);
      now_->tile.gather(plan_, scope, part, batch, stream, tokens.subspan(begin, size),
                        chosen_.weights(block).subspan(begin, size));
      if (tokens[begin + size - 1] - tokens[begin] + 1 == size) {  // neighbours: nothing to gather
        const int64_t row = (tokens[begin] - first) * per_token;
        now_->operand = chosen_queries() + row * query_row_;
        attend(scope, chosen_state(row));
        continue;
      }
      gather(first);
      attend(scope, state_at(state_.get()));
      scatter(first);
    }
  }
}

const Cell* ForwardWorker::chosen_queries() const {
  return prim_.pairs ? chosen_cells_.get() : reinterpret_cast<const Cell*>(chosen_rows_.get());
}

// The tile's queries and the states of its rows so far, to the tile's own memory.
void ForwardWorker::gather(int64_t first) {
  const int64_t per_token = plan_.rows_per_token, columns = plan_.value_columns;
  Cell* to = prim_.pairs ? now_->queries.get() : reinterpret_cast<Cell*>(now_->query_rows.get());
  const State state = state_at(state_.get()), chosen = chosen_state(0);
  for (int64_t row = 0; row < now_->tile.rows(); row += per_token) {
    const int64_t at = (now_->tile.index(row) - first) * per_token;
    std::memcpy(to + row * query_row_, chosen_queries() + at * query_row_,
                per_token * query_row_ * sizeof(Cell));
    std::copy_n(chosen.output + at * columns, per_token * columns, state.output + row * columns);
    std::copy_n(chosen.largest + at, per_token, state.largest + row);
    std::copy_n(chosen.sum + at, per_token, state.sum + row);
  }
  now_->operand = to;
}

// The states of the tile's rows, back to where they wait.
void ForwardWorker::scatter(int64_t first) {
  const int64_t per_token = plan_.rows_per_token, columns = plan_.value_columns;
  const State state = state_at(state_.get()), chosen = chosen_state(0);
  for (int64_t row = 0; row < now_->tile.rows(); row += per_token) {
    const int64_t at = (now_->tile.index(row) - first) * per_token;
    std::copy_n(state.output + row * columns, per_token * columns, chosen.output + at * columns);
    std::copy_n(state.largest + row, per_token, chosen.largest + at);
    std::copy_n(state.sum + row, per_token, chosen.sum + at);
  }
}

}  // namespace iha::cpu
