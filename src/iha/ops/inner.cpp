#include "iha/ops/inner.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace iha::ops {
namespace {

c10::OperatorHandle find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

at::Tensor as_tensor(const c10::IValue& value) {
  return value.isNone() ? at::Tensor() : value.toTensor();
}

}  // namespace

Results call_forward(const Arguments& arguments, Want want) {
  static const c10::OperatorHandle op = find("iha::_forward");
  torch::jit::Stack stack;
  push_arguments(stack, arguments);
  torch::jit::push(stack, want.out, want.parts);
  op.callBoxed(stack);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

Inputs call_backward(const Arguments& arguments, const Upstream& upstream, const Wanted& wanted) {
  static const c10::OperatorHandle op = find("iha::_backward");
  torch::jit::Stack stack;
  for (const at::Tensor* tensor :
       {&upstream.grad_out, &upstream.grad_parts, &upstream.grad_lse, &upstream.parts, &upstream.lse}) {
    stack.push_back(optional_tensor(*tensor));
  }
  push_arguments(stack, arguments);
  c10::List<bool> list;
  for (const bool want : wanted) list.push_back(want);
  stack.emplace_back(std::move(list));
  op.callBoxed(stack);
  Inputs gradients;
  for (size_t input = 0; input < kInputCount; ++input) gradients[input] = as_tensor(stack[input]);
  return gradients;
}

at::Tensor call_weights(const Arguments& arguments, const at::Tensor& rows) {
  static const c10::OperatorHandle op = find("iha::_weights");
  torch::jit::Stack stack{rows};
  push_arguments(stack, arguments);
  op.callBoxed(stack);
  return stack[0].toTensor();
}

}  // namespace iha::ops
