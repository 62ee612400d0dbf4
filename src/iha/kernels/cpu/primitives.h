// The engine's inner loops as a table of functions, one table an instruction set. The algorithms
// (forward.cpp, backward.cpp) are written once over this table and know neither vector widths nor operand
// formats.
//
// Operands of products are arrays of 32-bit *cells*: one float32, or (where `pairs`) two neighbouring
// bfloat16 values along the summed dimension, the earlier one in the low half. Counting in cells, both kinds
// have the same shapes.
#pragma once

#include <cstdint>

#include "iha/core/dtype.h"
#include "iha/core/rope.h"
#include "iha/kernels/cpu/isa.h"

namespace iha::cpu {

using Cell = uint32_t;

// Keys are packed in panels of 32 columns, the width of the widest register tile (two AVX-512 vectors).
constexpr int64_t kPanel = 32;
// Rows of output-side matrices are padded to a multiple of 16 columns: every tile width divides it or 32.
constexpr int64_t kColumnMultiple = 16;
// The most rows that a register tile has in any instruction set: two AMX tiles.
constexpr int kMaxGroupRows = 32;

// c[rows, columns] (+)= a[rows, depth] b[depth, columns], depth in cells. Element (i, k) of a is a[i * a_row
// + k * a_depth], so a transposed operand is a pair of strides, one of which is 1; row k of b's 32-column
// panel t is at b + t * b_panel + k * b_depth. columns is a multiple of 16. Sums run over k in order, from c
// or from 0 (with AMX over whole steps of 16 cells), the same for every row.
struct Product {
  int64_t rows, columns, depth;
  const Cell* a;
  int64_t a_row, a_depth;
  const Cell* b;
  int64_t b_depth, b_panel;
  float* c;
  int64_t c_row;
  bool accumulate;
};

// One block of keys of the online softmax, for the rows of one register tile. Scores s, to which a bias a row
// and panel may be added, become weights 2^(log2_scale * (s - largest)), written as cells over the scores'
// own memory.
struct SoftmaxStep {
  int64_t rows, columns;  // columns: multiple of 32
  float* scores;
  int64_t score_row;
  float log2_scale;  // > 0
  float* largest;    // [rows], the score that weights refer to; -inf before the first block
  float* sum;        // [rows] of the weights
  float* output;     // [rows, output_columns]: scaled when `largest` moves
  int64_t output_row, output_columns;
  const uint32_t*
      keep;  // dropout: a word a row and panel of columns; null without. Sums count dropped weights too.
  int64_t keep_row;
  const float* bias = nullptr;  // of row i and panel t: bias[i * bias_row + t * bias_panel]; null: 0
  int64_t bias_row = 0, bias_panel = 0;
};

// Backward, the same rows: weights from scores (and biases) and the forward pass's logsumexp, in place.
struct WeightStep {
  int64_t rows, columns;
  float* scores;
  int64_t score_row;
  float log2_scale;
  const float* log2_sum;        // [rows]: log2 of the sum of exponentials
  const float* bias = nullptr;  // as in SoftmaxStep
  int64_t bias_row = 0, bias_panel = 0;
};

// Backward: gradients of scores, weights * (gradient - row_term), in place of `gradient`. With dropout bits,
// `gradient` and afterwards `weights` are multiplied by keep_scale where kept and zeroed elsewhere.
struct ScoreGradientStep {
  int64_t rows, columns;
  float* weights;
  float* gradient;
  int64_t row;  // stride of both
  const float* row_term;
  const uint32_t* keep;
  int64_t keep_row;
  float keep_scale;
};

// Memory to ask for while rows are read in place: with row i, as many bytes as it has of piece first + i. A
// piece is one of `pieces` side by side in a row; rows are `row` elements apart.
struct Ahead {
  const void* rows = nullptr;  // null: nothing
  int64_t row = 0, pieces = 1, first = 0;
};

// Few queries: scores[rows, count] = queries keys^T, of keys where they lie in memory. Columns up to the next
// multiple of 16 are written too, with whatever.
struct RowScores {
  int64_t rows, count, width;  // width: channels
  const Cell* queries;         // cells of `width` channels, then zeros up to a multiple of 16 cells
  int64_t query_row;
  const void* keys;  // of dtype, channels side by side
  DType dtype;       // bfloat16 where `pairs`
  int64_t key_row;   // elements
  float* scores;
  int64_t score_row;
  Ahead ahead = {};
};

// Few queries: output[rows, width] += weights[rows, 32 * panels] values, of values where they lie in memory.
struct RowSums {
  int64_t rows, panels, width;
  const Cell* weights;  // as SoftmaxStep leaves them
  int64_t weight_row;
  const void* values;
  DType dtype;
  int64_t value_row;
  float* output;
  int64_t output_row;
  Ahead ahead = {};
};

struct Primitives {
  bool pairs;      // cells are pairs of bfloat16
  int group_rows;  // rows of a register tile
  // Around all products of a task, on its thread: makes the processor's tiles ready and gives them back,
  // where `multiply` needs any. By TaskGuard.
  void (*begin_task)();
  void (*end_task)();
  void (*multiply)(const Product& product);
  void (*multiply_float)(const Product& product);  // cells are float32, whatever `pairs` says
  void (*score_rows)(const RowScores& scores);
  void (*weigh_rows)(const RowSums& sums);
  // cells[row of 32][columns] -> panel[columns][32].
  void (*transpose)(const Cell* rows, int64_t row, int64_t columns, Cell* panel);
  void (*widen)(const void* source, DType dtype, int64_t count, float* target);
  void (*narrow)(const float* source, DType dtype, int64_t count, void* target);
  // The same for rows of `count` elements, `source_row` and `target_row` elements apart. Widened rows are
  // filled with zeros up to target_row.
  void (*widen_rows)(const void* source, DType dtype, int64_t source_row, int64_t rows, int64_t count,
                     float* target, int64_t target_row);
  void (*narrow_rows)(const float* source, int64_t source_row, DType dtype, int64_t rows, int64_t count,
                      void* target, int64_t target_row);
  // Cells along a row's own columns (count: of cells; source has 2 * count floats where `pairs`), and cells
  // along rows, two rows at a time (`second` is not read without `pairs`).
  void (*pack_along)(const float* source, int64_t count, Cell* cells);
  void (*pack_across)(const float* first, const float* second, int64_t count, Cell* cells);
  // panel[rows][32] = value where row's bit is clear.
  void (*hide)(float* panel, int64_t row, int64_t rows, const uint32_t* bits, float value);
  // panel[rows][32] += values[row] where row's bit is set.
  void (*shift)(float* panel, int64_t row, int64_t rows, const uint32_t* bits, const float* values);
  // sums[row] += the elements of panel[row][32] whose bit is set; all of them where bits is null.
  void (*sum_panel)(const float* panel, int64_t row, int64_t rows, const uint32_t* bits, float* sums);
  void (*softmax)(const SoftmaxStep& step);
  void (*weights)(const WeightStep& step);
  void (*score_gradient)(const ScoreGradientStep& step);
  // Dropout's keep bits of 32 columns: bit c is word `columns[c] mod 4` of block (columns[c] / 4, row,
  // batch_head, 0).
  uint32_t (*keep_bits)(uint64_t threshold, uint64_t seed, uint32_t batch_head, uint32_t row,
                        const int64_t* columns);
  void (*add_scaled)(float* target, const float* source, float factor,
                     int64_t count);  // target += factor * source
  void (*scale)(float* values, float factor, int64_t count);
  float (*dot)(const float* a, const float* b, int64_t count);
  // lanes[16] += a * b, element c to lane c mod 16; for sums over many rows that are added up once, at the
  // end.
  void (*dot_lanes)(const float* a, const float* b, int64_t count, float* lanes);
  // Whether all are, with pairs also when rounded to bfloat16, which a mixture of heads may exceed.
  bool (*finite)(const float* values, int64_t count);
  // Turns the first 2 * pairs channels by the sum of two angles, given as cosines then sines [2][pairs] in
  // float64.
  void (*rotate)(float* row, const double* coarse, const double* fine, int64_t pairs, RopeStyle style,
                 bool back);
};

// Lives as long as a task of the engine.
class TaskGuard {
 public:
  explicit TaskGuard(const Primitives& primitives) : primitives_(primitives) { primitives_.begin_task(); }
  ~TaskGuard() { primitives_.end_task(); }
  TaskGuard(const TaskGuard&) = delete;
  TaskGuard& operator=(const TaskGuard&) = delete;

 private:
  const Primitives& primitives_;
};

// The table for inputs of `dtype` (not float64): pairs for bfloat16 where the instruction set has dot
// products.
const Primitives& primitives(Isa isa, DType dtype);

}  // namespace iha::cpu
