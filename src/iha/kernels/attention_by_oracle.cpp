#include "iha/kernels/attention_by_oracle.h"

#include <span>
#include <utility>
#include <vector>

#include "iha/kernels/reference/reference.h"

namespace iha::core {
namespace {

// -----------------------------------------------------------------------------

// Calls visit(n, offset) for the n-th element in row-major order and its place in the array, from place
// `offset` on.
template <class Visit>
int64_t walk(std::span<const int64_t> shape, std::span<const int64_t> strides, int64_t offset, int64_t n,
             const Visit& visit) {
  if (shape.empty()) {
    visit(n, offset);
    return n + 1;
  }
  for (int64_t index = 0; index < shape[0]; ++index) {
    n = walk(shape.subspan(1), strides.subspan(1), offset + index * strides[0], n, visit);
  }
  return n;
}

std::vector<double> widen(const Array& array, std::span<const int64_t> shape,
                          std::span<const int64_t> strides, int64_t offset) {
  std::vector<double> values;
  if (array.data == nullptr) return values;
  values.resize(count(shape));
  walk(shape, strides, offset, 0,
       [&](int64_t n, int64_t at) { values[n] = load(array.data, array.dtype, at); });
  return values;
}
std::vector<double> widen(const Array& array, std::span<const int64_t> shape) {
  return widen(array, shape, array.strides, 0);
}
std::vector<double> widen_sequence(const Array& array, std::span<const int64_t> shape, int64_t b) {
  return widen(array, shape.subspan(1), std::span(array.strides).subspan(1), b * array.strides[0]);
}

void round(const std::vector<double>& values, const MutableArray& array, std::span<const int64_t> shape,
           std::span<const int64_t> strides, int64_t offset) {
  if (array.data == nullptr) return;
  walk(shape, strides, offset, 0,
       [&](int64_t n, int64_t at) { store(array.data, array.dtype, at, values[n]); });
}
void round(const std::vector<double>& values, const MutableArray& array, std::span<const int64_t> shape) {
  round(values, array, shape, array.strides, 0);
}
void round_sequence(const std::vector<double>& values, const MutableArray& array,
                    std::span<const int64_t> shape, int64_t b) {
  round(values, array, shape.subspan(1), std::span(array.strides).subspan(1), b * array.strides[0]);
}

// -----------------------------------------------------------------------------------------

// The inputs that all sequences share, widened once, and those of a sequence.
struct Shared {
  std::vector<double> alpha_q, alpha_k, alpha_v, collapse, sinks, mode_weights;

  Shared(const AttentionInputs& inputs, const Shapes& shapes)
      : alpha_q(widen(inputs.alpha_q, shapes.alpha_q)),
        alpha_k(widen(inputs.alpha_k, shapes.alpha_kv)),
        alpha_v(widen(inputs.alpha_v, shapes.alpha_kv)),
        collapse(widen(inputs.collapse, shapes.collapse)),
        sinks(widen(inputs.sinks, shapes.sinks)),
        mode_weights(widen(inputs.mode_weights, shapes.mode_weights)) {}
};
struct Sequence {
  std::vector<double> query, key, value, block_weights;

  Sequence(const AttentionInputs& inputs, const Shapes& shapes, int64_t b)
      : query(widen_sequence(inputs.query, shapes.query, b)),
        key(widen_sequence(inputs.key, shapes.key, b)),
        value(widen_sequence(inputs.value, shapes.value, b)),
        block_weights(widen_sequence(inputs.block_weights, shapes.block_weights, b)) {}
};

const double* data_or_null(const std::vector<double>& values) {
  return values.empty() ? nullptr : values.data();
}

reference::Inputs pointers(const Sequence& sequence, const Shared& shared) {
  return {sequence.query.data(),
          sequence.key.data(),
          sequence.value.data(),
          data_or_null(shared.alpha_q),
          data_or_null(shared.alpha_k),
          data_or_null(shared.alpha_v),
          data_or_null(shared.collapse),
          data_or_null(shared.sinks),
          data_or_null(shared.mode_weights),
          data_or_null(sequence.block_weights)};
}

}  // namespace

void forward_by_oracle(const Problem& problem, const Shapes& shapes, const AttentionInputs& inputs,
                       const AttentionOutputs& outputs, const ParallelFor& parallel) {
  const Visibility visible(problem);
  const Shared shared(inputs, shapes);
  parallel.run(problem.batch, [&](int64_t b, int) {
    const Sequence sequence(inputs, shapes, b);
    const reference::Outputs results =
        reference::forward_sequence(problem, visible, pointers(sequence, shared), b);
    round_sequence(results.out, outputs.out, shapes.out, b);
    round_sequence(results.parts, outputs.parts, shapes.parts, b);
    round_sequence(results.lse, outputs.lse, shapes.lse, b);
  });
}

void backward_by_oracle(const Problem& problem, const Shapes& shapes, const AttentionInputs& inputs,
                        const AttentionUpstream& upstream, const AttentionGradients& gradients,
                        const ParallelFor& parallel) {
  const Visibility visible(problem);
  const Shared shared(inputs, shapes);
  std::vector<reference::Gradients> shares(problem.batch);
  parallel.run(problem.batch, [&](int64_t b, int) {
    const Sequence sequence(inputs, shapes, b);
    const std::vector<double> grad_out = widen_sequence(upstream.grad_out, shapes.out, b);
    const std::vector<double> grad_parts = widen_sequence(upstream.grad_parts, shapes.parts, b);
    const std::vector<double> grad_lse = widen_sequence(upstream.grad_lse, shapes.lse, b);
    const reference::Upstream own{data_or_null(grad_out), data_or_null(grad_parts), data_or_null(grad_lse)};
    reference::Gradients& share = shares[b];
    share = reference::backward_sequence(problem, visible, pointers(sequence, shared), own, b);
    round_sequence(std::exchange(share.query, {}), gradients.query, shapes.query, b);
    round_sequence(std::exchange(share.key, {}), gradients.key, shapes.key, b);
    round_sequence(std::exchange(share.value, {}), gradients.value, shapes.value, b);
    round_sequence(std::exchange(share.block_weights, {}), gradients.block_weights, shapes.block_weights, b);
  });
  // In the order of sequences, whoever computed them.
  reference::Gradients total = reference::zero_shared(
      problem, {nullptr, nullptr, nullptr, data_or_null(shared.alpha_q), data_or_null(shared.alpha_k),
                data_or_null(shared.alpha_v), data_or_null(shared.collapse), data_or_null(shared.sinks),
                data_or_null(shared.mode_weights), nullptr});
  for (const reference::Gradients& share : shares) reference::add_shared(total, share);
  round(total.alpha_q, gradients.alpha_q, shapes.alpha_q);
  round(total.alpha_k, gradients.alpha_k, shapes.alpha_kv);
  round(total.alpha_v, gradients.alpha_v, shapes.alpha_kv);
  round(total.collapse, gradients.collapse, shapes.collapse);
  round(total.sinks, gradients.sinks, shapes.sinks);
  round(total.mode_weights, gradients.mode_weights, shapes.mode_weights);
}

}  // namespace iha::core
