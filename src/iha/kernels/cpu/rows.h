// Rows of pseudo-queries, -keys and -values: read from strided inputs of any dtype, mixed over heads, turned,
// widened to float32; and packed as the kernels' operands.
#pragma once

#include <cstdint>
#include <vector>

#include "iha/kernels/cpu/buffer.h"
#include "iha/kernels/cpu/plan.h"

namespace iha::cpu {

// One input [B, heads, tokens, width] and what makes pseudo-rows of it.
struct RowSource {
  const core::Array* array;
  int64_t heads, width;
  const std::vector<float>* alpha;  // [heads source, heads, P], or empty: the head itself
  bool turns;                       // RoPE applies
  float factor = 1.0f;
};
RowSource query_source(const Plan& plan);
RowSource key_source(const Plan& plan);
RowSource value_source(const Plan& plan);

// Which rows: those of one head of one sequence, in a view, of one stream.
struct RowSet {
  int64_t batch, head, stream;
  const View* view;
  int64_t position = 0;  // absolute position of token 0
};

// [heads][width rounded up to kColumnMultiple], heads `row` floats apart.
struct HeadRows {
  const float* data;
  int64_t row;
};

// Reads rows; keeps the memory that this takes. One a worker.
class RowReader {
 public:
  explicit RowReader(const Plan& plan);
  // Rows [begin, end) (index * rows_per_token + pseudo) to `target` [end - begin][row], columns past the
  // width zeroed.
  void read(const RowSource& source, const RowSet& set, int64_t begin, int64_t end, float* target,
            int64_t row);
  // All heads of one token before mixing, columns past the width zero: where they lie, if they are float32
  // rows of whole vectors, else in memory that the next call takes again.
  HeadRows heads(const RowSource& source, int64_t batch, int64_t token);
  // Turns one row of `set` to the position of its token and pseudo-head, or back.
  void turn(float* values, int64_t position, int64_t pseudo, bool back);

 private:
  void copy_rows(const RowSource& source, const RowSet& set, int64_t begin, int64_t end, float* target,
                 int64_t row) const;
  void mix_rows(const RowSource& source, const RowSet& set, int64_t begin, int64_t end, float* target,
                int64_t row);
  void read_one(const RowSource& source, int64_t batch, int64_t head, int64_t token, float* target) const;

  const Plan& plan_;
  Buffer<float> heads_;
  Buffer<double> angles_;
};

// Rows of one head as they lie in memory, channels side by side.
class RowsInPlace {
 public:
  RowsInPlace() = default;
  // Those of the slice's keys, which have no prefix, in [B, heads, tokens, width].
  RowsInPlace(const Plan& plan, const core::Array& array, int64_t batch, const Slice& slice)
      : row_(array.strides[2] * slice.keys.step), bytes_(plan.element_size) {
    const auto& s = array.strides;
    const int64_t at = batch * s[0] + slice.key_head * s[1] + slice.keys.first * s[2];
    data_ = static_cast<const char*>(array.data) + at * bytes_;
  }
  const char* at(int64_t index) const { return data_ + index * row_ * bytes_; }
  int64_t row() const { return row_; }  // elements from one row to the next

 private:
  const char* data_ = nullptr;
  int64_t row_ = 0, bytes_ = 0;
};

// The rows of one RowSet in panels of 32, packed when first asked for: as panels [columns of cells][32] for
// products over channels, as rows [32 (or 16 pairs)][columns] for products over rows, or both. Rows past the
// end are zero.
class PackedRows {
 public:
  PackedRows(const Plan& plan, RowReader& reader, bool panels, bool rows);
  // Forgets what was packed. `limit`: rows that exist.
  void reset(const RowSource& source, const RowSet& set, int64_t limit, int64_t depth, int64_t columns);
  void ensure(int64_t panel) {
    if (state_[panel] == kAbsent) pack(panel);
  }
  const Cell* panel(int64_t panel) const { return panels_.get() + panel * panel_size(); }
  int64_t panel_size() const { return depth_ * kPanel; }
  const Cell* rows(int64_t panel) const { return rows_.get() + panel * rows_size(); }
  int64_t rows_size() const { return row_cells_ * columns_; }
  int64_t columns() const { return columns_; }
  // Cells along the rows of a panel: 32, or 16 pairs.
  int64_t row_cells() const { return row_cells_; }
  bool finite(int64_t panel) const { return state_[panel] == kFinite; }

 private:
  enum State : uint8_t { kAbsent, kFinite, kNotFinite };
  void pack(int64_t panel);

  const Plan& plan_;
  RowReader& reader_;
  bool with_panels_, with_rows_;
  RowSource source_{};
  RowSet set_{};
  int64_t limit_ = 0, depth_ = 0, columns_ = 0, row_cells_ = kPanel;
  std::vector<State> state_;
  Buffer<Cell> panels_, rows_, cells_;
  Buffer<float> values_;
};

// Zeroes the rows of one packed panel of rows (PackedRows::rows, or a copy) whose bit is clear.
void clear_hidden(bool pairs, uint32_t bits, int64_t columns, Cell* rows);

}  // namespace iha::cpu
