// One worker of the forward pass, which forward.cpp describes: its steps and the memory that they take.
#pragma once

#include <cstdint>
#include <vector>

#include "iha/kernels/cpu/chosen.h"
#include "iha/kernels/cpu/cut.h"
#include "iha/kernels/cpu/query_tile.h"
#include "iha/kernels/cpu/rows.h"

namespace iha::cpu {

// The online softmax's state of a tile's rows.
struct State {
  float *output, *largest, *sum;  // [rows, value_columns], [rows], [rows]
};

class ForwardWorker {
 public:
  ForwardWorker(const Plan& plan, const Cut& cut, const core::AttentionOutputs& outputs);

  // Tokens [begin, end) of one slice's query view, or of the call where heads are joined.
  void run_chunk(int64_t batch, int64_t slice, int64_t begin, int64_t end, const float* states);
  // One range of keys of a slice's only tile; the state goes to `target`.
  void run_split(const Split& split, float* target);
  static int64_t state_size(const Plan& plan, const Cut& cut) {
    return cut.tile_rows * (plan.value_columns + 2);
  }

 private:
  State state_at(float* memory) const {
    const int64_t rows = cut_.tile_rows;
    return {memory, memory + rows * plan_.value_columns, memory + rows * (plan_.value_columns + 1)};
  }
  void clear(const State& state, int64_t rows);
  // A dynamic slice's tokens [first, last), block of keys by block (forward_chosen.cpp); their rows' states
  // follow each other in chosen_state(0).
  void attend_chosen(const Slice& slice, int64_t batch, int64_t stream, int64_t first, int64_t last);
  void gather(int64_t first);
  void scatter(int64_t first);
  const Cell* chosen_queries() const;
  State chosen_state(int64_t row) const {
    return {chosen_output_.get() + row * plan_.value_columns, chosen_largest_.get() + row,
            chosen_sum_.get() + row};
  }
  void begin_slice(const Slice& slice, const Scope& scope, int64_t batch, int64_t stream);
  void load_queries();
  const Cell* queries(int64_t row) const { return tile_queries_ + row * query_row_; }
  void attend(const Scope& scope, const State& state);
  void attend_group(const Scope& scope, const State& state, int64_t row, int64_t rows);
  void score_packed(int64_t row, int64_t rows);
  void score_unpacked(const Scope& scope, int64_t row, int64_t rows);
  void weigh_values(const State& state, int64_t row, int64_t rows);
  void weigh_hidden(const State& state, int64_t row, int64_t rows, int slot);
  void weigh_unpacked(const State& state, int64_t row, int64_t rows);
  void weigh_visible(const State& state, int64_t row, int64_t rows, int slot);
  void join(const StateRange& range, const float* states, const State& state);
  void finish(const State& state, int64_t out_begin, int64_t out_tokens);
  void collapse(const State& state, int64_t out_begin, int64_t out_tokens);
  void write_out(int64_t batch, const View& view, int64_t head_begin, int64_t head_end, int64_t begin,
                 int64_t end);
  void write_row(const core::MutableArray& array, int64_t at, int64_t step, const float* row);

  const Plan& plan_;
  const Cut& cut_;
  const core::AttentionOutputs& outputs_;
  const Primitives& prim_;
  RowReader reader_;
  PackedRows keys_, values_;
  RowsInPlace keys_in_place_, values_in_place_;  // instead, where the cut is unpacked
  QueryTile tile_;
  GroupPanels panels_;
  View all_queries_;
  bool collapses_;
  int64_t out_head_begin_ = 0;
  int64_t block_panels_;
  int64_t score_row_, query_row_;  // of queries: cells
  Buffer<float> scores_, state_, query_rows_, out_;
  Buffer<Cell> queries_, patched_;
  const Cell* tile_queries_ = nullptr;  // the tile's queries, as the left operand
  Buffer<char> visible_values_;
  std::vector<uint32_t> keep_;
  // Of a dynamic slice's chunk: queries as operands, states, choices.
  Buffer<float> chosen_rows_, chosen_output_, chosen_largest_, chosen_sum_;
  Buffer<Cell> chosen_cells_;
  ChosenQueries chosen_;
};

}  // namespace iha::cpu
