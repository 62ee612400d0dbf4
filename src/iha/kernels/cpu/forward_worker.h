// One worker of the forward pass, which forward.cpp describes: its steps and the memory that they take.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
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
  // Ranges of keys of slices' only tiles; their states go to `states`.
  void run_splits(const Turns& task, float* states);
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
  // A tile, its queries, and the keys and values where they lie, if the cut is unpacked.
  struct InFlight {
    QueryTile tile;
    Buffer<float> query_rows;
    Buffer<Cell> queries;
    const Cell* operand = nullptr;  // the queries as the left operand
    RowsInPlace keys, values;
  };
  // Few queries: a slice that takes turns with others.
  struct InTurn {
    Slice slice;
    std::optional<Scope> scope;
    State state;
    InFlight rows;
  };
  Ahead ahead(const RowsInPlace& rows, const core::Array& array, int64_t first) const;
  void begin_slice(const Slice& slice, const Scope& scope, int64_t batch, int64_t stream);
  void allocate_queries();
  void load_queries();
  const Cell* queries(int64_t row) const { return now_->operand + row * query_row_; }
  // Panels [first, last) of the keys, those that the tile sees.
  void attend(const Scope& scope, const State& state, int64_t first = 0,
              int64_t last = std::numeric_limits<int64_t>::max());
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
  InFlight rows_;
  InFlight* now_ = &rows_;  // those that are worked on
  std::vector<InTurn> in_turn_;
  // The turn that a slice has, of panels [begin, end): whose pieces of the next turn's tokens it asks for.
  struct Turn {
    int64_t begin = 0, end = 0, heads = 0, head = 0;  // heads 0: it is alone
    bool asks = false;
  };
  Turn turn_;
  GroupPanels panels_;
  View all_queries_;
  bool collapses_;
  int64_t out_head_begin_ = 0;
  int64_t block_panels_;
  int64_t score_row_, query_row_;  // of queries: cells
  Buffer<float> scores_, state_, out_;
  Buffer<Cell> patched_;
  Buffer<char> visible_values_;
  std::vector<uint32_t> keep_;
  // Of a dynamic slice's chunk: queries as operands, states, choices.
  Buffer<float> chosen_rows_, chosen_output_, chosen_largest_, chosen_sum_;
  Buffer<Cell> chosen_cells_;
  ChosenQueries chosen_;
};

}  // namespace iha::cpu
