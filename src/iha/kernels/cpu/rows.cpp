#include "iha/kernels/cpu/rows.h"

#include <algorithm>

namespace iha::cpu {
RowSource query_source(const Plan& plan) {
  return {&plan.inputs.query, plan.problem.query_heads, plan.problem.head_dim,
          &plan.alpha_q,      plan.rotation.any(),      plan.query_factor};
}
RowSource key_source(const Plan& plan) {
  return {&plan.inputs.key, plan.problem.key_heads, plan.problem.head_dim, &plan.alpha_k,
          plan.rotation.any()};
}
RowSource value_source(const Plan& plan) {
  return {&plan.inputs.value, plan.problem.key_heads, plan.problem.value_dim, &plan.alpha_v, false};
}

RowReader::RowReader(const Plan& plan) : plan_(plan) {
  angles_.ensure(2 * plan.rotation.pairs() + 1);
}

void RowReader::read_one(const RowSource& source, int64_t batch, int64_t head, int64_t token,
                         float* target) const {
  const core::Array& array = *source.array;
  const int64_t at = batch * array.strides[0] + head * array.strides[1] + token * array.strides[2];
  const int64_t step = array.strides[3];
  if (step == 1) {
    const char* data = static_cast<const char*>(array.data) + at * plan_.element_size;
    plan_.primitives.widen(data, array.dtype, source.width, target);
    return;
  }
  for (int64_t c = 0; c < source.width; ++c) {
    target[c] = static_cast<float>(load(array.data, array.dtype, at + c * step));
  }
}

HeadRows RowReader::heads(const RowSource& source, int64_t batch, int64_t token) {
  const core::Array& array = *source.array;
  if (array.dtype == DType::kFloat32 && array.strides[3] == 1 && source.width % kColumnMultiple == 0) {
    const int64_t at = batch * array.strides[0] + token * array.strides[2];
    return {static_cast<const float*>(array.data) + at, array.strides[1]};
  }
  const int64_t row = round_up(source.width, kColumnMultiple);
  float* copy = heads_.ensure(source.heads * row);
  for (int64_t m = 0; m < source.heads; ++m) {
    read_one(source, batch, m, token, copy + m * row);
    std::fill(copy + m * row + source.width, copy + (m + 1) * row, 0.0f);
  }
  return {copy, row};
}

void RowReader::turn(float* values, int64_t position, int64_t pseudo, bool back) {
  const Rotation& rotation = plan_.rotation;
  const int64_t at = rope_position(plan_.problem.rope.kind, position, pseudo, plan_.problem.pseudo_heads);
  const auto [coarse, fine] = rotation.angles(at, angles_.get());
  plan_.primitives.rotate(values, coarse, fine, rotation.pairs(), rotation.style(), back);
}

void RowReader::read(const RowSource& source, const RowSet& set, int64_t begin, int64_t end, float* target,
                     int64_t row) {
  if (begin >= end) return;
  if (source.alpha->empty()) {
    copy_rows(source, set, begin, end, target, row);
  } else {
    mix_rows(source, set, begin, end, target, row);
  }
  const int64_t per_token = plan_.rows_per_token;
  for (int64_t at = begin; source.turns && at < end; ++at) {
    const int64_t index = at / per_token;
    turn(target + (at - begin) * row, set.position + set.view->token(index),
         plan_.pseudo(set.stream, at - index * per_token), false);
  }
  if (source.factor != 1.0f) plan_.primitives.scale(target, source.factor, (end - begin) * row);
}

// Every row of a token is the head's own.
void RowReader::copy_rows(const RowSource& source, const RowSet& set, int64_t begin, int64_t end,
                          float* target, int64_t row) const {
  const core::Array& array = *source.array;
  const int64_t per_token = plan_.rows_per_token;
  if (per_token == 1 && array.strides[3] == 1) {
    const auto& s = array.strides;
    const View& view = *set.view;
    for (int64_t at = begin; at < end;) {  // of the prefix, then of the rest
      const bool prefix = at < view.prefix;
      const int64_t stop = prefix ? std::min(end, view.prefix) : end;
      const int64_t from = set.batch * s[0] + set.head * s[1] + view.token(at) * s[2];
      plan_.primitives.widen_rows(static_cast<const char*>(array.data) + from * plan_.element_size,
                                  array.dtype, s[2] * (prefix ? 1 : view.step), stop - at, source.width,
                                  target + (at - begin) * row, row);
      at = stop;
    }
    return;
  }
  for (int64_t at = begin; at < end;) {
    const int64_t index = at / per_token, count = std::min(end, (index + 1) * per_token) - at;
    float* rows = target + (at - begin) * row;
    read_one(source, set.batch, set.head, set.view->token(index), rows);
    std::fill(rows + source.width, rows + row, 0.0f);
    for (int64_t i = 1; i < count; ++i) std::copy(rows, rows + row, rows + i * row);
    at += count;
  }
}

// Of each token [pseudo-heads, heads] times [heads, channels].
void RowReader::mix_rows(const RowSource& source, const RowSet& set, int64_t begin, int64_t end,
                         float* target, int64_t row) {
  const int64_t per_token = plan_.rows_per_token, pseudo_heads = plan_.problem.pseudo_heads;
  for (int64_t at = begin; at < end;) {
    const int64_t index = at / per_token, count = std::min(end, (index + 1) * per_token) - at;
    const int64_t first_pseudo = plan_.pseudo(set.stream, at - index * per_token);
    const HeadRows inputs = heads(source, set.batch, set.view->token(index));
    const float* alpha = source.alpha->data() + set.head * pseudo_heads + first_pseudo;
    plan_.primitives.multiply_float({.rows = count,
                                     .columns = round_up(source.width, kColumnMultiple),
                                     .depth = source.heads,
                                     .a = reinterpret_cast<const Cell*>(alpha),
                                     .a_row = 1,
                                     .a_depth = source.heads * pseudo_heads,
                                     .b = reinterpret_cast<const Cell*>(inputs.data),
                                     .b_depth = inputs.row,
                                     .b_panel = kPanel,
                                     .c = target + (at - begin) * row,
                                     .c_row = row,
                                     .accumulate = false});
    at += count;
  }
}

PackedRows::PackedRows(const Plan& plan, RowReader& reader, bool panels, bool rows)
    : plan_(plan),
      reader_(reader),
      with_panels_(panels),
      with_rows_(rows),
      row_cells_(plan.primitives.pairs ? kPanel / 2 : kPanel) {}

void PackedRows::reset(const RowSource& source, const RowSet& set, int64_t limit, int64_t depth,
                       int64_t columns) {
  source_ = source;
  set_ = set;
  limit_ = limit;
  depth_ = depth;
  columns_ = columns;
  const int64_t panels = divide_up(limit, kPanel);
  state_.assign(panels, kAbsent);
  if (with_panels_) panels_.ensure(panels * panel_size());
  if (with_rows_) rows_.ensure(panels * rows_size());
  values_.ensure(kPanel * columns);
  cells_.ensure(kPanel * depth);
}

void PackedRows::pack(int64_t panel) {
  const Primitives& prim = plan_.primitives;
  const int64_t begin = panel * kPanel, end = std::min(limit_, begin + kPanel);
  // Float rows are the operand itself; pairs are made from a copy.
  float* values =
      with_rows_ && !prim.pairs ? reinterpret_cast<float*>(rows_.get() + panel * rows_size()) : values_.get();
  reader_.read(source_, set_, begin, end, values, columns_);
  std::fill(values + (end - begin) * columns_, values + kPanel * columns_, 0.0f);
  state_[panel] = prim.finite(values, (end - begin) * columns_) ? kFinite : kNotFinite;
  if (with_rows_ && prim.pairs) {
    Cell* rows = rows_.get() + panel * rows_size();
    for (int64_t i = 0; i < row_cells_; ++i) {
      prim.pack_across(values + 2 * i * columns_, values + (2 * i + 1) * columns_, columns_,
                       rows + i * columns_);
    }
  }
  if (with_panels_) {
    const auto* cells = reinterpret_cast<const Cell*>(values);
    int64_t row = columns_;
    if (prim.pairs) {
      for (int64_t i = 0; i < kPanel; ++i)
        prim.pack_along(values + i * columns_, depth_, cells_.get() + i * depth_);
      cells = cells_.get();
      row = depth_;
    }
    prim.transpose(cells, row, depth_, panels_.get() + panel * panel_size());
  }
}

void clear_hidden(bool pairs, uint32_t bits, int64_t columns, Cell* rows) {
  for (int64_t i = 0; i < kPanel; ++i) {
    if (bits >> i & 1u) continue;
    Cell* cells = rows + (pairs ? i / 2 : i) * columns;
    const Cell kept = !pairs ? 0u : i % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
    for (int64_t c = 0; c < columns; ++c) cells[c] &= kept;
  }
}

}  // namespace iha::cpu
