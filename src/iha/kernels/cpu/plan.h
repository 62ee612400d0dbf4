// One call, resolved: the constants that forward and backward share. Made once, read by all workers.
#pragma once

#include <cstdint>
#include <vector>

#include "iha/kernels/attention.h"
#include "iha/kernels/cpu/primitives.h"
#include "iha/kernels/cpu/spans.h"

namespace iha::cpu {

// Neighbouring query heads of one key head and one pattern, on one class of tokens: they share packed keys
// and fill register tiles together.
struct Slice {
  int64_t key_head, head_begin, head_end;
  Pattern pattern;
  View queries, keys;
  int64_t heads() const { return head_end - head_begin; }
};

// Rotation angles as sums of two: cosines and sines of the 64 positions within a block, and of the blocks of
// the keys' positions, in float64. Blocks elsewhere (queries before or past the keys) are computed where
// needed.
class Rotation {
 public:
  Rotation(const Problem& problem);
  bool any() const { return pairs_ > 0; }
  int64_t pairs() const { return pairs_; }
  RopeStyle style() const { return style_; }
  // Cosines and sines [2][pairs] for `position`: (block, within). `scratch` [2 * pairs] serves blocks not in
  // the table.
  std::pair<const double*, const double*> angles(int64_t position, double* scratch) const;

 private:
  void fill(double position, double* target) const;

  std::vector<double> frequencies_, fine_, coarse_;
  int64_t pairs_ = 0, blocks_ = 0;
  RopeStyle style_;
};

struct Plan {
  Plan(const Problem& problem, const core::AttentionInputs& inputs, Isa isa);

  const Problem& problem;
  const core::AttentionInputs& inputs;
  const Primitives& primitives;
  int64_t element_size;  // bytes of an element of query, key, value and outputs
  // Interleaved: one stream of P rows a token. Parallel: P streams of one row a token, blind to each other.
  int64_t streams, rows_per_token;
  int64_t key_depth, value_depth;      // cells of a row of d and of dv channels
  int64_t key_columns, value_columns;  // d and dv rounded up to kColumnMultiple
  float query_factor;                  // queries are multiplied by it when packed, so that log2_scale > 0
  float log2_scale;                    // scores of packed rows to exponents of 2
  float keep_scale;                    // 1 / (1 - dropout_p)
  uint64_t drop_threshold;             // 0: no dropout
  Rotation rotation;
  std::vector<int64_t> ranks;  // document_ranks, where first tokens need them
  std::vector<float> alpha_q, alpha_k, alpha_v, collapse, sinks;  // widened; empty: absent

  const std::vector<Slice>& slices(int64_t batch) const { return slices_[slices_.size() == 1 ? 0 : batch]; }
  std::span<const int64_t> ranks_of(int64_t batch) const;
  // Pseudo-head of row `row` (within its token) of stream `stream`.
  int64_t pseudo(int64_t stream, int64_t row) const { return rows_per_token > 1 ? row : stream; }

 private:
  std::vector<std::vector<Slice>> slices_;  // [batch], or one for all
};

}  // namespace iha::cpu
