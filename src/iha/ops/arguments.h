// The arguments of one call as the inner operators take them, how they travel on torch's stack, and how they
// become a checked iha::Problem. Kernels are boxed, so that the long argument list stands once, in
// schema.cpp.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <array>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "iha/kernels/problem.h"

namespace iha::ops {

// The differentiable inputs, in the order of the schema.
enum Input {
  kQuery,
  kKey,
  kValue,
  kAlphaQ,
  kAlphaK,
  kAlphaV,
  kCollapse,
  kSinks,
  kModeWeights,
  kBlockWeights,
  kInputCount
};
using Inputs = std::array<at::Tensor, kInputCount>;  // undefined: absent

struct Arguments {
  Inputs inputs;
  at::Tensor rope_freqs, query_offset, key_lengths, documents;  // undefined: absent
  at::Tensor dropout_seed;                                      // int64, one element, on the CPU
  std::string patterns = "global", layout = "interleaved", order = "flat", rope = "none";
  double rope_theta = 10000.0;
  std::string rope_style = "half";
  std::optional<double> scale;
  double dropout_p = 0.0;

  const at::Tensor& query() const { return inputs[kQuery]; }
  const at::Tensor& key() const { return inputs[kKey]; }
  const at::Tensor& value() const { return inputs[kValue]; }
  // P: the last size of the mixing weights; 1 without any.
  c10::SymInt pseudo_heads() const;
  // P = 1 and no collapse: the parts are the output.
  bool plain() const;
  // Whether parts rounded to 16 bits would cost the gradients of sinks and of weights of modes and blocks,
  // small differences of large sums, more than their inputs have.
  bool needs_wide_parts() const;
  // Whether the backward pass wants parts of its own: else a plain call's output serves as well, as in
  // torch's own attention.
  bool needs_parts() const;
  // The tensors that have no gradient.
  std::array<at::Tensor*, 5> constants() {
    return {&rope_freqs, &query_offset, &key_lengths, &documents, &dropout_seed};
  }
};

// Reads the arguments of an operator from the stack in the order of its schema.
class StackReader {
 public:
  StackReader(const torch::jit::Stack& stack, size_t arguments)
      : stack_(stack), at_(stack.size() - arguments) {}
  at::Tensor tensor() {
    const c10::IValue& value = next();
    return value.isNone() ? at::Tensor() : value.toTensor();
  }
  std::string string() { return next().toStringRef(); }
  const c10::IValue& next() { return stack_[at_++]; }

 private:
  const torch::jit::Stack& stack_;
  size_t at_;
};

// The part of the inner operators' schema that is Arguments.
Arguments read_arguments(StackReader& reader);
void push_arguments(torch::jit::Stack& stack, Arguments arguments);
inline c10::IValue optional_tensor(const at::Tensor& tensor) {
  return tensor.defined() ? c10::IValue(tensor) : c10::IValue();
}

// What inner operators return. `out` is empty without want.out, `parts` without want.parts.
struct Results {
  at::Tensor out;    // [B, Hq, Nq, dv] over token-major memory, dtype of query
  at::Tensor parts;  // [B, Hq, Nq, P, dv], contiguous, of parts_type
  at::Tensor lse;    // [B, Hq, Nq, P], contiguous, float32 (float64 for float64)
};
struct Want {
  bool out = true, parts = true;
};
// What the backward pass gets: upstream gradients (undefined: zero) and the forward pass's own results.
struct Upstream {
  at::Tensor grad_out, grad_parts, grad_lse;
  at::Tensor parts;  // or out, where arguments.plain()
  at::Tensor lse;
};
Upstream read_upstream(StackReader& reader);
using Wanted = std::array<bool, kInputCount>;
Wanted read_wanted(StackReader& reader);

// float64 for float64, else float32: the dtype of lse and of everything that accumulates.
at::ScalarType accumulate_type(at::ScalarType dtype);
// The dtype of parts: that of the inputs; accumulate_type where they are kept beside out for gradients that
// need wide ones.
at::ScalarType parts_type(const Arguments& arguments, Want want);

// Checks ranks, shapes, dtypes, devices and spellings; works on meta tensors and symbolic shapes. Throws
// c10::ValueError.
void check_arguments(const Arguments& arguments, std::string_view name);
// The shapes of what the backward pass gets. Throws c10::ValueError.
void check_upstream(const Upstream& upstream, const Arguments& arguments, std::string_view name);
// The call without its tensors, after check_arguments, and checked itself, values of offsets, lengths,
// documents and weights included. Throws c10::ValueError.
Problem make_problem(const Arguments& arguments, std::string_view name);
// Parses one head's or all heads' patterns for `heads` query heads. Throws c10::ValueError.
std::vector<Pattern> parse_heads(const std::string& patterns, int64_t heads, std::string_view name);

// Runs `body`; std::invalid_argument of torch-free code becomes c10::ValueError.
void raise_value_error(const std::exception& error);
template <class Body>
auto with_value_errors(Body body) {
  try {
    return body();
  } catch (const std::invalid_argument& error) {
    raise_value_error(error);
    throw;
  }
}

}  // namespace iha::ops
