// The three parts of the backward pass, each run by one worker on work that others do not touch; backward.cpp
// says in which order and on what. All sums are in float32.
#pragma once

#include <cstdint>
#include <vector>

#include "iha/kernels/cpu/chosen.h"
#include "iha/kernels/cpu/plan.h"
#include "iha/kernels/cpu/query_tile.h"
#include "iha/kernels/cpu/rows.h"

namespace iha::cpu {

struct BackwardCall {
  const Plan& plan;
  const core::AttentionUpstream& upstream;
  const core::AttentionGradients& gradients;
  // [B, Hq, Nq, P]: what a row's weights share in their gradient, grad_o . o - grad_lse.
  float* row_terms;

  bool wants_modes() const { return gradients.mode_weights.data != nullptr; }
  bool wants_blocks() const { return gradients.block_weights.data != nullptr; }
  int64_t row_index(int64_t batch, int64_t head, int64_t token, int64_t pseudo) const {
    const Problem& p = plan.problem;
    return ((batch * p.query_heads + head) * p.queries + token) * p.pseudo_heads + pseudo;
  }
};

// Gradients of outputs before the collapse, grad_o: of rows as in RowReader::read.
class OutputGradients {
 public:
  OutputGradients(const BackwardCall& call, RowReader& reader) : call_(call), reader_(reader) {}
  void read(const RowSet& set, int64_t begin, int64_t end, float* target, int64_t row);

 private:
  const BackwardCall& call_;
  RowReader& reader_;
  std::vector<float> none_, upstream_;
};

// Part 1. Row terms, and sums for the gradients of collapse and sinks over the rows of one tile of tokens.
class RowTerms {
 public:
  explicit RowTerms(const BackwardCall& call);
  // Sums go to collapse[out heads of the slice's rows...]: `collapse` [heads, P] or [heads, Hq, P] and
  // `sinks` [heads], heads those of the slice; null where not wanted.
  void run(int64_t batch, const Slice& slice, int64_t begin, int64_t end, float* collapse, float* sinks);

 private:
  bool sees_any(const Scope& scope, int64_t row);
  const float* read_row(const core::Array& array, int64_t at, int64_t step, std::vector<float>& copy) const;

  const BackwardCall& call_;
  RowReader reader_;
  OutputGradients output_gradients_;
  QueryTile tile_;
  ChosenQueries chosen_;
  std::vector<float> none_, gradients_, part_, upstream_, lanes_;
};

// Query tokens against key tokens.
struct Rectangle {
  int64_t query_begin, query_end, key_begin, key_end;
  int64_t queries() const { return query_end - query_begin; }
};

// Where part 2 leaves gradients of rows before they are turned back and unmixed: row token * P + pseudo.
struct HeadGradients {
  float* query;   // [group, queries * P, key_columns] of a rectangle: its keys' share
  float* key;     // [Nk * P, key_columns]
  float* value;   // [Nk * P, value_columns]
  double* modes;  // [Hq, M], this range of keys' share; added to
};

// Part 2. Weights again from scores and lse, and all products of one key head with a range of key tokens.
class KeyRange {
 public:
  explicit KeyRange(const BackwardCall& call);
  // All rows of `query` are written; those of `key` and `value` are added to, from 0 where the queries begin
  // at 0. Dynamic heads need all queries at once.
  void run(int64_t batch, int64_t key_head, const Rectangle& rectangle, const HeadGradients& target);

 private:
  void run_slice(const Scope& scope, const Slice& part, int64_t batch, int64_t stream,
                 const HeadGradients& target);
  // A dynamic slice and key tokens [begin, end), which are whole blocks.
  void run_chosen(const Slice& slice, int64_t batch, int64_t begin, int64_t end, const HeadGradients& target);
  void run_block_of_keys(const Slice& slice, int64_t batch, int64_t stream, int64_t block,
                         const HeadGradients& target);
  void write_block_weights(const Slice& slice, int64_t batch, int64_t first, int64_t last);
  void begin_keys(const Scope& scope, const Slice& part, int64_t batch, int64_t stream);
  void run_tile(const Scope& scope, const HeadGradients& target);
  void read_tile();
  void gather_tile();
  void load_tile();
  void run_block(const Scope& scope, int64_t begin, int64_t end);
  void score_group(const Scope& scope, int64_t row, int64_t rows, int64_t begin, int64_t end);
  void multiply_queries(int64_t row, int64_t rows, int64_t begin);
  void multiply_keys(int64_t begin, int64_t panels);
  void multiply_hidden_keys(int64_t begin, int64_t at);
  void multiply_hidden_queries(int64_t row, int64_t rows, int64_t begin, int slot);
  void sum_weights(int64_t row, int64_t rows, int slot, const float* gradients);
  void add_modes(const Slice& slice, const HeadGradients& target);
  void add_keys(const View& keys, int64_t rows, int64_t stream, const HeadGradients& target);
  void write_queries(const HeadGradients& target);

  const BackwardCall& call_;
  const Plan& plan_;
  const Primitives& prim_;
  RowReader reader_;
  OutputGradients output_gradients_;
  PackedRows keys_, values_;
  QueryTile tile_;
  GroupPanels panels_;
  bool tile_finite_ = true;
  int64_t score_row_, cell_row_;
  // Of the tile: rows and, for pairs, both packings.
  Buffer<float> query_rows_, gradient_rows_, query_gradients_;
  Buffer<Cell> query_along_, query_across_, gradient_along_, gradient_across_;
  std::vector<float> log2_sum_, row_term_;
  // Of a block: weights and score gradients [rows][keys], as cells along keys and (pairs) along queries.
  Buffer<float> weights_, score_gradients_;
  Buffer<Cell> score_cells_, weights_across_, score_across_, patched_;
  // Rows [first, last) of the tile that meet a panel of the block; whether some of them see it partly or not
  // at all.
  struct Meeting {
    int64_t first, last;
    bool partial;
  };
  std::array<Meeting, kBlockPanels> meetings_;
  std::vector<uint32_t> seen_;  // [panel of the block][row]: bits of the keys that the row sees
  std::vector<uint32_t> keep_;
  // Of the slice: [rows of keys][columns].
  Buffer<float> key_gradients_, value_gradients_;
  // Of weights, the gradients of ln w summed: over each set of a learned slice's modes, over each row of a
  // dynamic slice's tile, and of each of its choices.
  std::vector<double> set_sums_;
  std::vector<float> row_sums_, choice_sums_;
  // Of a dynamic slice: all rows of queries and of gradients of outputs [streams][rows], and the choices.
  ChosenQueries chosen_;
  Buffer<float> chosen_queries_, chosen_gradients_;
  Rectangle rectangle_{};
};

// Part 3. From gradients of rows to those of tokens: turned back, unmixed over heads, and the gradients of
// alpha.
struct Unmix {
  const RowSource* source;
  const float* rows;  // gradients of rows of one head, from token rows_begin on
  int64_t head, columns;
  int64_t head_begin;  // of `sums`
  float* sums;         // [heads, tokens, columns], added to
  float* alpha_lanes;  // [heads, P, 16], added to; null where not wanted
  int64_t rows_begin = 0;
};
class TokenGradients {
 public:
  explicit TokenGradients(const Plan& plan);
  // Tokens [begin, end) of all `tokens`; `position` is that of token 0.
  void run(const Unmix& unmix, int64_t batch, int64_t begin, int64_t end, int64_t tokens, int64_t position);

 private:
  const Plan& plan_;
  RowReader reader_;
  std::vector<float> none_;
  Buffer<float> rows_;
};

}  // namespace iha::cpu
