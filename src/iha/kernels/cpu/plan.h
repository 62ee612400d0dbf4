// One call, resolved: the constants that forward and backward share. Made once, read by all workers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "iha/kernels/attention.h"
#include "iha/kernels/cpu/primitives.h"
#include "iha/kernels/cpu/regions.h"
#include "iha/kernels/cpu/spans.h"

namespace iha::cpu {

// Neighbouring query heads of one key head and one pattern, on one class of tokens: they share packed keys
// and fill register tiles together. Heads with weights are slices of their own.
struct Slice {
  int64_t key_head, head_begin, head_end;
  Pattern pattern;
  View queries, keys;
  // Of a learned head: regions of several weights. Where one candidate is all that its weights leave, the
  // slice is that candidate's, and the same weight on all pairs moves lse alone.
  const Regions* regions = nullptr;
  float log2_weight = 0.0f;
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
  // `mode_gradients`: the gradients of mode weights are wanted, also of those that are 0.
  Plan(const Problem& problem, const core::AttentionInputs& inputs, Isa isa, bool mode_gradients = false);

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
  std::vector<int64_t> ranks;                           // document_ranks, where first tokens need them
  std::vector<float> alpha_q, alpha_k, alpha_v, sinks;  // widened; empty: absent
  // A mean of several pseudo-heads as weights a head; empty: there is nothing to collapse.
  std::vector<float> collapse;
  std::vector<float> mode_weights;  // those that count, 0 for the others

  const std::vector<Slice>& slices(int64_t batch) const { return slices_[slices_.size() == 1 ? 0 : batch]; }
  std::span<const int64_t> ranks_of(int64_t batch) const;
  // Pseudo-head of row `row` (within its token) of stream `stream`.
  int64_t pseudo(int64_t stream, int64_t row) const { return rows_per_token > 1 ? row : stream; }

  // What decides visibility for a slice, or a part of its keys.
  Scope scope(int64_t batch, const Slice& slice, const View& keys) const;
  Scope scope(int64_t batch, const Slice& slice) const { return scope(batch, slice, slice.keys); }

 private:
  std::vector<Slice> slices_at(int64_t query_offset) const;
  void add_learned(int64_t head, int64_t query_offset, std::vector<Slice>& slices) const;

  bool mode_gradients_;
  std::vector<std::unique_ptr<Regions>> regions_;  // of each learned head
  std::vector<std::vector<Slice>> slices_;         // [batch], or one for all
};

}  // namespace iha::cpu
