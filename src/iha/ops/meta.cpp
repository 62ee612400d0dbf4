// Shapes, dtypes and strides of the inner operators' results, for meta and fake tensors, with symbolic sizes.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "iha/ops/arguments.h"

namespace iha::ops {
namespace {

// [B, H, N, w] over memory [B, N, H, w].
at::Tensor token_major_like(const at::Tensor& like, const c10::SymInt& width) {
  return at::empty_symint({like.sym_size(0), like.sym_size(2), like.sym_size(1), width}, like.options())
      .transpose(1, 2);
}

void forward_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  StackReader reader(*stack, count);
  const Arguments arguments = read_arguments(reader);
  const bool want_out = reader.next().toBool(), want_parts = reader.next().toBool();
  const at::Tensor& query = arguments.query();
  const c10::SymInt width = arguments.value().sym_size(3), pseudo_heads = arguments.pseudo_heads();
  std::vector<c10::SymInt> shape{query.sym_size(0), query.sym_size(1), query.sym_size(2), pseudo_heads,
                                 width};
  at::Tensor out = want_out ? token_major_like(query, width) : at::empty({0}, query.options());
  const auto type = parts_type(arguments, {want_out, want_parts});
  at::Tensor parts = want_parts ? at::empty_symint(shape, query.options().dtype(type))
                                : at::empty({0}, query.options().dtype(type));
  shape.pop_back();
  at::Tensor lse = at::empty_symint(shape, query.options().dtype(accumulate_type(query.scalar_type())));
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, std::move(out), std::move(parts), std::move(lse));
}

void backward_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  StackReader reader(*stack, count);
  read_upstream(reader);
  const Arguments arguments = read_arguments(reader);
  const Wanted wanted = read_wanted(reader);
  torch::jit::drop(*stack, count);
  for (int input = 0; input < kInputCount; ++input) {
    const at::Tensor& like = arguments.inputs[input];
    at::Tensor gradient;
    if (wanted[input] && input <= kValue) gradient = token_major_like(like, like.sym_size(3));
    if (wanted[input] && input > kValue) gradient = at::empty_symint(like.sym_sizes(), like.options());
    stack->emplace_back(std::move(gradient));
  }
}

void weights_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  StackReader reader(*stack, count);
  const at::Tensor rows = reader.tensor();
  const Arguments arguments = read_arguments(reader);
  const at::Tensor& query = arguments.query();
  const c10::SymInt pseudo_heads = arguments.pseudo_heads();
  at::Tensor weights = at::empty_symint({query.sym_size(0), query.sym_size(1), rows.sym_size(0), pseudo_heads,
                                         arguments.key().sym_size(2), pseudo_heads},
                                        query.options());
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, std::move(weights));
}

}  // namespace

TORCH_LIBRARY_IMPL(iha, Meta, m) {
  m.impl("_forward", torch::CppFunction::makeFromBoxedFunction<&forward_meta>());
  m.impl("_backward", torch::CppFunction::makeFromBoxedFunction<&backward_meta>());
  m.impl("_weights", torch::CppFunction::makeFromBoxedFunction<&weights_meta>());
}

}  // namespace iha::ops
