// Part 1 of the backward pass: one read of parts and of the gradients of outputs.
#include <algorithm>
#include <cmath>

#include "iha/kernels/cpu/backward_parts.h"

namespace iha::cpu {

void OutputGradients::read(const RowSet& set, int64_t begin, int64_t end, float* target, int64_t row) {
  const Plan& plan = call_.plan;
  const Problem& problem = plan.problem;
  const bool global = problem.collapse == CollapseKind::kGlobal;
  if (call_.upstream.grad_out.data != nullptr) {
    const RowSource source{&call_.upstream.grad_out, problem.query_heads, problem.value_dim,
                           global ? &plan.collapse : &none_, false};
    reader_.read(source, set, begin, end, target, row);
  } else {
    std::fill(target, target + (end - begin) * row, 0.0f);
  }
  if (!global && !plan.collapse.empty()) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t pseudo = plan.pseudo(set.stream, at % plan.rows_per_token);
      const float weight = plan.collapse[set.head * problem.pseudo_heads + pseudo];
      plan.primitives.scale(target + (at - begin) * row, weight, problem.value_dim);
    }
  }
  const core::Array& parts = call_.upstream.grad_parts;
  if (parts.data == nullptr) return;
  for (int64_t at = begin; at < end; ++at) {
    const int64_t token = set.view->token(at / plan.rows_per_token);
    const int64_t pseudo = plan.pseudo(set.stream, at % plan.rows_per_token);
    const int64_t offset = set.batch * parts.strides[0] + set.head * parts.strides[1] +
                           token * parts.strides[2] + pseudo * parts.strides[3];
    float* values = target + (at - begin) * row;
    for (int64_t c = 0; c < problem.value_dim; ++c) {
      values[c] += static_cast<float>(load(parts.data, parts.dtype, offset + c * parts.strides[4]));
    }
  }
}

RowTerms::RowTerms(const BackwardCall& call)
    : call_(call),
      reader_(call.plan),
      output_gradients_(call, reader_),
      gradients_(largest_tile(call.plan) * call.plan.value_columns),
      part_(call.plan.value_columns),
      upstream_(call.plan.value_columns) {}

// A row of dv channels: where it lies, if it is float32, else in `copy`.
const float* RowTerms::read_row(const core::Array& array, int64_t at, int64_t step,
                                std::vector<float>& copy) const {
  const int64_t width = call_.plan.problem.value_dim;
  if (step == 1) {
    if (array.dtype == DType::kFloat32) return static_cast<const float*>(array.data) + at;
    const auto* data = static_cast<const char*>(array.data) + at * static_cast<int64_t>(size_of(array.dtype));
    call_.plan.primitives.widen(data, array.dtype, width, copy.data());
  } else {
    for (int64_t c = 0; c < width; ++c)
      copy[c] = static_cast<float>(load(array.data, array.dtype, at + c * step));
  }
  return copy.data();
}

// Whether a row of the tile sees any key.
bool RowTerms::sees_any(const Scope& scope, int64_t row) {
  const Slice& slice = *tile_.slice;
  if (!slice.pattern.dynamic()) {
    return scope.sees_any(tile_.spans[row], tile_.position[row], tile_.pseudo[row]);
  }
  const Plan& plan = call_.plan;
  for (int64_t block = 0; block < plan.problem.key_blocks(); ++block) {
    const auto tokens = chosen_.tokens(block);
    if (!std::binary_search(tokens.begin(), tokens.end(), tile_.index(row))) continue;
    const Scope own = plan.scope(tile_.batch, slice, keys_of_block(plan.problem, block));
    const int64_t pseudo = plan.rows_per_token > 1 ? tile_.pseudo[row] : 0;
    if (own.sees_any(own.span(tile_.position[row], pseudo), tile_.position[row], pseudo)) return true;
  }
  return false;
}

void RowTerms::run(int64_t batch, const Slice& slice, int64_t begin, int64_t end, float* collapse,
                   float* sinks) {
  const Plan& plan = call_.plan;
  const Primitives& prim = plan.primitives;
  const Problem& problem = plan.problem;
  const int64_t width = problem.value_dim, pseudo_heads = problem.pseudo_heads;
  const core::Array &parts = call_.upstream.parts, &lse = call_.upstream.lse;
  const core::Array &grad_out = call_.upstream.grad_out, &grad_lse = call_.upstream.grad_lse;
  const bool wants_collapse = collapse != nullptr && grad_out.data != nullptr;
  // A global collapse meets every row with the gradients of all heads, another with its own head's.
  const bool global = problem.collapse == CollapseKind::kGlobal;
  const int64_t meets = global ? problem.query_heads : 1;
  const RowSource upstream{&grad_out, problem.query_heads, width, &none_, false};
  if (wants_collapse) lanes_.assign(slice.heads() * meets * pseudo_heads * 16, 0.0f);
  const Scope scope = plan.scope(batch, slice);
  if (sinks != nullptr && slice.pattern.dynamic()) {
    chosen_.find(plan, batch, slice.head_begin, begin, end, 0, problem.key_blocks());
  }
  for (int64_t stream = 0; stream < plan.streams; ++stream) {
    tile_.fill(plan, scope, slice, batch, stream, begin, end);
    const int64_t rows_of_head = tile_.tokens() * plan.rows_per_token;
    for (int64_t head = slice.head_begin; head < slice.head_end; ++head) {
      const int64_t in_slice = head - slice.head_begin;
      const RowSet set{batch, head, stream, &slice.queries};
      output_gradients_.read(set, begin * plan.rows_per_token, end * plan.rows_per_token, gradients_.data(),
                             plan.value_columns);
      HeadRows gradients{};
      for (int64_t i = 0; i < rows_of_head; ++i) {
        const int64_t row = in_slice * rows_of_head + i;
        const int64_t token = slice.queries.token(tile_.index(row)), pseudo = tile_.pseudo[row];
        const auto at = [&](const core::Array& array) {
          return batch * array.strides[0] + head * array.strides[1] + token * array.strides[2] +
                 pseudo * array.strides[3];
        };
        const float* part = read_row(parts, at(parts), parts.strides[4], part_);
        float term = prim.dot(gradients_.data() + i * plan.value_columns, part, width);
        if (grad_lse.data != nullptr)
          term -= static_cast<float>(load(grad_lse.data, grad_lse.dtype, at(grad_lse)));
        call_.row_terms[call_.row_index(batch, head, token, pseudo)] = term;
        if (sinks != nullptr && sees_any(scope, row)) {
          const float own_lse = static_cast<float>(load(lse.data, lse.dtype, at(lse)));
          sinks[in_slice] -= std::exp(plan.sinks[head] - own_lse) * term;
        }
        if (!wants_collapse) continue;
        const auto& s = grad_out.strides;
        if (i % plan.rows_per_token == 0) {  // the same for a token's pseudo-heads
          gradients =
              global ? reader_.heads(upstream, batch, token)
                     : HeadRows{
                           read_row(grad_out, batch * s[0] + head * s[1] + token * s[2], s[3], upstream_), 0};
        }
        for (int64_t to = 0; to < meets; ++to) {
          prim.dot_lanes(gradients.data + to * gradients.row, part, width,
                         &lanes_[((in_slice * meets + to) * pseudo_heads + pseudo) * 16]);
        }
      }
    }
  }
  if (!wants_collapse) return;
  for (size_t cell = 0; cell < lanes_.size() / 16; ++cell) {
    for (size_t lane = 0; lane < 16; ++lane) collapse[cell] += lanes_[cell * 16 + lane];
  }
}

}  // namespace iha::cpu
