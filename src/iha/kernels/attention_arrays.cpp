#include "iha/kernels/attention_arrays.h"

#include <limits>
#include <string_view>

#include "iha/core/error.h"

namespace iha::core {
namespace {

// -------------------------------------------------------------------------------------------------------

// What the arrays of one call may be. `main` is the dtype of query, key and value.
class ArrayChecks {
 public:
  ArrayChecks(const char* operator_name, DType main) : name_(operator_name), main_(main) {}

  template <class AnyArray>
  void present(const AnyArray& array, const Shape& shape, const char* what) const {
    check(array.data != nullptr || count(shape) == 0, name_, ": ", what, " is absent, expected an array");
  }
  template <class AnyArray>
  void absent(const AnyArray& array, const char* what, const char* reason) const {
    check(array.data == nullptr, name_, ": ", what, " is present, expected none ", reason);
  }
  template <class AnyArray>
  void same_dtype(const AnyArray& array, const char* what) const {
    expect(array, array.dtype == main_, what, name_of(main_));
  }
  // Small arrays and what the backward pass keeps may be wider than the 16-bit inputs they belong to.
  template <class AnyArray>
  void same_or_float32(const AnyArray& array, const char* what) const {
    expect(array, array.dtype == main_ || array.dtype == DType::kFloat32, what, name_of(main_),
           main_ == DType::kFloat32 ? "" : " or float32");
  }
  template <class AnyArray>
  void accumulated(const AnyArray& array, const char* what) const {
    const DType wide = main_ == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    expect(array, array.dtype == wide, what, name_of(wide));
  }
  // Two elements in one place would be written by two threads.
  void writable(const MutableArray& array, const Shape& shape, const char* what) const {
    if (array.data == nullptr) return;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      check(shape[axis] <= 1 || array.strides[axis] != 0, name_, ": ", what, " has stride 0 on axis ", axis,
            ", expected memory of its own for every element");
    }
  }

 private:
  template <class AnyArray>
  void expect(const AnyArray& array, bool holds, const char* what, std::string_view expected,
              const char* or_else = "") const {
    check(array.data == nullptr || holds, name_, ": ", what, " is ", name_of(array.dtype), ", expected ",
          expected, or_else);
  }

  const char* name_;
  DType main_;
};

void check_inputs(const ArrayChecks& checks, const Problem& problem, const Shapes& shapes,
                  const AttentionInputs& inputs) {
  checks.present(inputs.query, shapes.query, "query");
  checks.present(inputs.key, shapes.key, "key");
  checks.present(inputs.value, shapes.value, "value");
  checks.same_dtype(inputs.key, "key");
  checks.same_dtype(inputs.value, "value");
  checks.same_or_float32(inputs.alpha_q, "alpha_q");
  checks.same_or_float32(inputs.alpha_k, "alpha_k");
  checks.same_or_float32(inputs.alpha_v, "alpha_v");
  checks.same_or_float32(inputs.collapse, "collapse");
  checks.same_or_float32(inputs.sinks, "sinks");
  if (problem.collapse == CollapseKind::kMean) {
    checks.absent(inputs.collapse, "collapse", "for a mean");
  } else {
    checks.present(inputs.collapse, shapes.collapse, "collapse");
  }
  checks.same_or_float32(inputs.mode_weights, "mode_weights");
  checks.same_or_float32(inputs.block_weights, "block_weights");
  if (problem.modes() > 0) {
    checks.present(inputs.mode_weights, shapes.mode_weights, "mode_weights");
  } else {
    checks.absent(inputs.mode_weights, "mode_weights", "without learned heads");
  }
  if (problem.block() > 0) {
    checks.present(inputs.block_weights, shapes.block_weights, "block_weights");
  } else {
    checks.absent(inputs.block_weights, "block_weights", "without dynamic heads");
  }
}

// The first refused of `count` weights from place `at` on, else one that is not.
double refused(const Array& array, int64_t at, int64_t stride, int64_t count) {
  if (array.dtype == DType::kFloat32 && stride == 1) {  // without a branch, so that it takes vectors
    const float* weights = static_cast<const float*>(array.data) + at;
    bool good = true;
    for (int64_t i = 0; i < count; ++i) {
      good &= (weights[i] >= 0.0f) & (weights[i] <= std::numeric_limits<float>::max());
    }
    if (good) return 1;
  }
  for (int64_t i = 0; i < count; ++i) {
    const double weight = load(array.data, array.dtype, at + i * stride);
    if (!is_weight(weight)) return weight;
  }
  return 1;
}

// Those that heads read.
void check_weights(const char* name, const Problem& problem, const AttentionInputs& inputs,
                   const ParallelFor& parallel) {
  const Array &modes = inputs.mode_weights, &blocks = inputs.block_weights;
  for (int64_t h = 0; h < problem.query_heads; ++h) {
    const auto count = static_cast<int64_t>(problem.patterns[h].candidates.size());
    if (count > 0)
      check_weight(refused(modes, h * modes.strides[0], modes.strides[1], count), name, "mode_weights");
  }
  const int64_t count = problem.key_blocks();
  if (count == 0 || problem.queries == 0) return;
  std::vector<double> found(problem.batch * problem.query_heads, 1);
  parallel.run(static_cast<int64_t>(found.size()), [&](int64_t task, int) {
    const int64_t b = task / problem.query_heads, h = task % problem.query_heads;
    if (!problem.patterns[h].dynamic()) return;
    for (int64_t i = 0; i < problem.queries && is_weight(found[task]); ++i) {
      const int64_t at = b * blocks.strides[0] + h * blocks.strides[1] + i * blocks.strides[2];
      found[task] = refused(blocks, at, blocks.strides[3], count);
    }
  });
  for (const double weight : found) check_weight(weight, name, "block_weights");
}

void check_outputs(const ArrayChecks& checks, const Shapes& shapes, const AttentionOutputs& outputs) {
  checks.same_dtype(outputs.out, "out");
  checks.same_or_float32(outputs.parts, "parts");
  checks.accumulated(outputs.lse, "lse");
  checks.writable(outputs.out, shapes.out, "out");
  checks.writable(outputs.parts, shapes.parts, "parts");
  checks.writable(outputs.lse, shapes.lse, "lse");
}

void check_upstream(const ArrayChecks& checks, const Shapes& shapes, const AttentionUpstream& upstream) {
  checks.present(upstream.parts, shapes.parts, "parts");
  checks.present(upstream.lse, shapes.lse, "lse");
  checks.same_or_float32(upstream.parts, "parts");
  checks.same_dtype(upstream.grad_out, "grad_out");
  checks.same_dtype(upstream.grad_parts, "grad_parts");
  checks.accumulated(upstream.lse, "lse");
  checks.accumulated(upstream.grad_lse, "grad_lse");
}

// A gradient has the dtype of its input, and there is none of an input that is absent.
void check_gradient(const char* name, const ArrayChecks& checks, const Array& input,
                    const MutableArray& gradient, const Shape& shape, const char* what) {
  if (gradient.data == nullptr || count(shape) == 0) return;
  check(input.data != nullptr, name, ": the gradient of ", what,
        " is asked for, expected none of an absent input");
  check(gradient.dtype == input.dtype, name, ": the gradient of ", what, " is ", name_of(gradient.dtype),
        ", expected ", name_of(input.dtype));
  checks.writable(gradient, shape, what);
}

void check_gradients(const char* name, const ArrayChecks& checks, const Shapes& shapes,
                     const AttentionInputs& inputs, const AttentionGradients& gradients) {
  check_gradient(name, checks, inputs.query, gradients.query, shapes.query, "query");
  check_gradient(name, checks, inputs.key, gradients.key, shapes.key, "key");
  check_gradient(name, checks, inputs.value, gradients.value, shapes.value, "value");
  check_gradient(name, checks, inputs.alpha_q, gradients.alpha_q, shapes.alpha_q, "alpha_q");
  check_gradient(name, checks, inputs.alpha_k, gradients.alpha_k, shapes.alpha_kv, "alpha_k");
  check_gradient(name, checks, inputs.alpha_v, gradients.alpha_v, shapes.alpha_kv, "alpha_v");
  check_gradient(name, checks, inputs.collapse, gradients.collapse, shapes.collapse, "collapse");
  check_gradient(name, checks, inputs.sinks, gradients.sinks, shapes.sinks, "sinks");
  check_gradient(name, checks, inputs.mode_weights, gradients.mode_weights, shapes.mode_weights,
                 "mode_weights");
  check_gradient(name, checks, inputs.block_weights, gradients.block_weights, shapes.block_weights,
                 "block_weights");
}

}  // namespace

Shapes::Shapes(const Problem& problem) {
  const int64_t batch = problem.batch, heads = problem.query_heads, key_heads = problem.key_heads;
  const int64_t queries = problem.queries, pseudo_heads = problem.pseudo_heads;
  query = {batch, heads, queries, problem.head_dim};
  key = {batch, key_heads, problem.keys, problem.head_dim};
  value = {batch, key_heads, problem.keys, problem.value_dim};
  alpha_q = {heads, heads, pseudo_heads};
  alpha_kv = {key_heads, key_heads, pseudo_heads};
  collapse = problem.collapse == CollapseKind::kPerHead ? Shape{heads, pseudo_heads} : alpha_q;
  sinks = {heads};
  mode_weights = {heads, problem.modes()};
  block_weights = {batch, heads, queries, problem.key_blocks()};
  out = {batch, heads, queries, problem.value_dim};
  parts = {batch, heads, queries, pseudo_heads, problem.value_dim};
  lse = {batch, heads, queries, pseudo_heads};
}

int64_t count(std::span<const int64_t> shape) {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

void check_forward(const char* operator_name, const Problem& problem, const Shapes& shapes,
                   const AttentionInputs& inputs, const AttentionOutputs& outputs,
                   const ParallelFor& parallel) {
  const ArrayChecks checks(operator_name, inputs.query.dtype);
  check_inputs(checks, problem, shapes, inputs);
  check_weights(operator_name, problem, inputs, parallel);
  check_outputs(checks, shapes, outputs);
}

void check_backward(const char* operator_name, const Problem& problem, const Shapes& shapes,
                    const AttentionInputs& inputs, const AttentionUpstream& upstream,
                    const AttentionGradients& gradients, const ParallelFor& parallel) {
  const ArrayChecks checks(operator_name, inputs.query.dtype);
  check_inputs(checks, problem, shapes, inputs);
  check_weights(operator_name, problem, inputs, parallel);
  check_upstream(checks, shapes, upstream);
  check_gradients(operator_name, checks, shapes, inputs, gradients);
}

}  // namespace iha::core
