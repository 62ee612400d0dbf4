// Part 2 of the backward pass, what weights on pairs ask of it: dynamic heads block of keys by block over the
// queries that chose it (as forward_chosen.cpp), and the gradients of weights. Score gradients are those of
// ln w too, so a weight's gradient is their sum over its region, divided by w.
#include <algorithm>
#include <cstring>

#include "iha/kernels/cpu/backward_parts.h"

namespace iha::cpu {

void KeyRange::run_chosen(const Slice& slice, int64_t batch, int64_t begin, int64_t end,
                          const HeadGradients& target) {
  const Problem& problem = plan_.problem;
  const int64_t first = begin / problem.block(), last = divide_up(end, problem.block());
  const int64_t rows = problem.queries * plan_.rows_per_token;
  chosen_.find(plan_, batch, slice.head_begin, 0, problem.queries, first, last);
  if (chosen_.count() == 0) return;
  chosen_queries_.ensure(plan_.streams * rows * plan_.key_columns);
  chosen_gradients_.ensure(plan_.streams * rows * plan_.value_columns);
  choice_sums_.assign(chosen_.count(), 0.0f);
  for (int64_t stream = 0; stream < plan_.streams; ++stream) {
    const RowSet set{batch, slice.head_begin, stream, &slice.queries, problem.query_offset[batch]};
    reader_.read(query_source(plan_), set, 0, rows, chosen_queries_.get() + stream * rows * plan_.key_columns,
                 plan_.key_columns);
    output_gradients_.read(set, 0, rows, chosen_gradients_.get() + stream * rows * plan_.value_columns,
                           plan_.value_columns);
    for (int64_t block = first; block < last; ++block) run_block_of_keys(slice, batch, stream, block, target);
  }
  if (call_.wants_blocks()) write_block_weights(slice, batch, first, last);
}

void KeyRange::run_block_of_keys(const Slice& slice, int64_t batch, int64_t stream, int64_t block,
                                 const HeadGradients& target) {
  const std::span<const int64_t> tokens = chosen_.tokens(block);
  if (tokens.empty()) return;
  Slice part = slice;
  part.keys = keys_of_block(plan_.problem, block);
  const Scope scope = plan_.scope(batch, part);
  begin_keys(scope, part, batch, stream);
  const int64_t step = tile_tokens(plan_, slice), count = static_cast<int64_t>(tokens.size());
  for (int64_t begin = 0; begin < count; begin += step) {
    const int64_t size = std::min(step, count - begin);
    tile_.gather(plan_, scope, part, batch, stream, tokens.subspan(begin, size),
                 chosen_.weights(block).subspan(begin, size));
    row_sums_.assign(tile_.rows(), 0.0f);
    run_tile(scope, target);
    float* sums = choice_sums_.data() + chosen_.number(block) + begin;
    for (int64_t row = 0; row < tile_.rows(); ++row) sums[row / plan_.rows_per_token] += row_sums_[row];
  }
  add_keys(part.keys, scope.rows(), stream, target);
}

// read_tile for a gathered tile: its rows out of all.
void KeyRange::gather_tile() {
  const int64_t per_token = plan_.rows_per_token;
  const int64_t before = tile_.stream * plan_.problem.queries * per_token;
  const auto copy = [&](const Buffer<float>& all, const Buffer<float>& rows, int64_t columns) {
    for (int64_t row = 0; row < tile_.rows(); row += per_token) {
      std::memcpy(rows.get() + row * columns, all.get() + (before + tile_.index(row) * per_token) * columns,
                  per_token * columns * sizeof(float));
    }
  };
  copy(chosen_queries_, query_rows_, plan_.key_columns);
  copy(chosen_gradients_, gradient_rows_, plan_.value_columns);
}

void KeyRange::write_block_weights(const Slice& slice, int64_t batch, int64_t first, int64_t last) {
  const core::MutableArray& array = call_.gradients.block_weights;
  const auto& s = array.strides;
  const int64_t head = batch * s[0] + slice.head_begin * s[1];
  for (int64_t block = first; block < last; ++block) {
    const std::span<const int64_t> tokens = chosen_.tokens(block);
    const std::span<const float> weights = chosen_.weights(block);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const float sum = choice_sums_[chosen_.number(block) + static_cast<int64_t>(i)];
      store(array.data, array.dtype, head + tokens[i] * s[2] + block * s[3],
            static_cast<double>(sum) / weights[i]);
    }
  }
}

// Adds one panel's score gradients to the sums of their regions.
void KeyRange::sum_weights(int64_t row, int64_t rows, int slot, const float* gradients) {
  if (!tile_.bias.empty()) {
    prim_.sum_panel(gradients, score_row_, rows, nullptr, row_sums_.data() + row);
    return;
  }
  float sums[kMaxGroupRows];
  const auto add = [&](const uint32_t* bits, const auto& set_of) {
    std::fill_n(sums, rows, 0.0f);
    prim_.sum_panel(gradients, score_row_, rows, bits, sums);
    for (int64_t i = 0; i < rows; ++i) set_sums_[set_of(i)] += sums[i];
  };
  if (panels_.layers[slot].empty()) add(nullptr, [&](int64_t) { return panels_.set[slot]; });
  for (const RegionLayer& layer : panels_.layers[slot]) {
    add(layer.bits.data(), [&](int64_t i) { return layer.set[i]; });
  }
}

void KeyRange::add_modes(const Slice& slice, const HeadGradients& target) {
  const Regions& regions = *slice.regions;
  double* modes = target.modes + slice.head_begin * plan_.problem.modes();
  for (size_t set = 0; set < regions.weight.size(); ++set) {
    if (regions.weight[set] == 0.0f) continue;
    for (size_t m = 0; m < regions.modes.size(); ++m) {
      if (set >> m & 1u) modes[regions.candidates[m]] += set_sums_[set] / regions.weight[set];
    }
  }
}

}  // namespace iha::cpu
