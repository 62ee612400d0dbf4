// Gradients: `iha::_forward` is differentiated by the registered operator `iha::_backward`, which itself
// refuses to be differentiated.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "iha/ops/arguments.h"
#include "iha/ops/inner.h"

namespace iha::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool any_needs_gradient(at::TensorList tensors) {
  return at::GradMode::is_enabled() && std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& x) {
           return x.defined() && x.requires_grad();
         });
}

// autograd::Function takes no undefined tensors.
variable_list defined_of(at::TensorList tensors) {
  variable_list defined;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(defined),
               [](const at::Tensor& x) { return x.defined(); });
  return defined;
}

// What is no tensor among the arguments, as values that tracing can look into.
c10::IValue settings_of(Arguments arguments) {
  arguments.inputs = {};
  for (at::Tensor* tensor : arguments.constants()) *tensor = at::Tensor();
  torch::jit::Stack stack;
  push_arguments(stack, std::move(arguments));
  return c10::ivalue::Tuple::create(std::move(stack));
}

Arguments arguments_of(const c10::IValue& settings) {
  const torch::jit::Stack stack = settings.toTupleRef().elements().vec();
  StackReader reader(stack, stack.size());
  return read_arguments(reader);
}

// Takes the inputs twice: the defined ones as variables, and all of them among the arguments.
class ForwardFunction : public torch::autograd::Function<ForwardFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, at::TensorList, Arguments arguments, Want want) {
    const at::AutoDispatchBelowADInplaceOrView below;
    Results results = call_forward(arguments, want);
    c10::List<bool> wanted;
    for (const at::Tensor& input : arguments.inputs) {
      wanted.push_back(input.defined() && input.requires_grad());
    }
    ctx->saved_data["wanted"] = wanted;
    ctx->saved_data["settings"] = settings_of(arguments);

    variable_list saved(arguments.inputs.begin(), arguments.inputs.end());
    for (const at::Tensor* tensor : arguments.constants()) saved.push_back(*tensor);
    saved.push_back(want.parts ? results.parts : results.out);
    saved.push_back(results.lse);
    ctx->save_for_backward(std::move(saved));
    ctx->set_materialize_grads(false);
    variable_list without_gradient;
    if (!want.out) without_gradient.push_back(results.out);
    if (!want.parts) without_gradient.push_back(results.parts);
    ctx->mark_non_differentiable(without_gradient);
    return {results.out, results.parts, results.lse};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    Arguments arguments = arguments_of(ctx->saved_data["settings"]);
    const variable_list saved = ctx->get_saved_variables();
    auto next = saved.begin();
    for (at::Tensor& input : arguments.inputs) input = *next++;
    for (at::Tensor* tensor : arguments.constants()) *tensor = *next++;
    const Upstream upstream{grads[0], grads[1], grads[2], next[0], next[1]};
    Wanted wanted{};
    const c10::List<bool> flags = ctx->saved_data["wanted"].toBoolList();
    std::copy(flags.begin(), flags.end(), wanted.begin());
    const Inputs gradients = call_backward(arguments, upstream, wanted);
    variable_list result;
    for (size_t input = 0; input < kInputCount; ++input) {
      if (arguments.inputs[input].defined()) result.push_back(gradients[input]);
    }
    result.resize(result.size() + 2);  // none for arguments and want
    return result;
  }
};

void forward_autograd(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  StackReader reader(*stack, count);
  const Arguments arguments = read_arguments(reader);
  Want want;
  want.out = reader.next().toBool();
  want.parts = reader.next().toBool();
  torch::jit::drop(*stack, count);
  for (const at::Tensor& input : arguments.inputs) {
    TORCH_CHECK_NOT_IMPLEMENTED(!input.defined() || !input._fw_grad(0).defined(),
                                "iha::attention: an input has a forward-mode gradient (a tangent), expected "
                                "reverse mode only (forward-mode differentiation is not supported)");
  }
  variable_list results;
  if (any_needs_gradient(arguments.inputs)) {
    TORCH_CHECK_VALUE(want.parts || !arguments.needs_parts(),
                      "iha::_forward: want_parts is false, expected true where gradients are needed");
    results = ForwardFunction::apply(at::TensorList(defined_of(arguments.inputs)), arguments, want);
  } else {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Results own = call_forward(arguments, want);
    results = {own.out, own.parts, own.lse};
  }
  for (at::Tensor& result : results) stack->emplace_back(std::move(result));
}

// Stands behind the results of `_backward` where somebody may want to differentiate them.
class BackwardFunction : public torch::autograd::Function<BackwardFunction> {
 public:
  static variable_list forward(AutogradContext*, at::TensorList, const Arguments& arguments,
                               const Upstream& upstream, const Wanted& wanted) {
    const at::AutoDispatchBelowADInplaceOrView below;
    variable_list results;
    for (const at::Tensor& gradient : call_backward(arguments, upstream, wanted)) {
      if (gradient.defined()) results.push_back(gradient);
    }
    return results;
  }
  static variable_list backward(AutogradContext*, const variable_list&) {
    TORCH_CHECK_NOT_IMPLEMENTED(false,
                                "iha::attention: asked for the gradient of a gradient, expected first "
                                "derivatives only (double backward is not supported)");
  }
};

void backward_autograd(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  StackReader reader(*stack, count);
  const Upstream upstream = read_upstream(reader);
  Arguments arguments = read_arguments(reader);
  const Wanted wanted = read_wanted(reader);
  torch::jit::drop(*stack, count);
  variable_list tensors(arguments.inputs.begin(), arguments.inputs.end());
  tensors.insert(tensors.end(),
                 {upstream.grad_out, upstream.grad_parts, upstream.grad_lse, upstream.parts, upstream.lse});
  tensors = defined_of(tensors);
  if (!any_needs_gradient(tensors)) {
    const at::AutoDispatchBelowADInplaceOrView below;
    for (at::Tensor& gradient : call_backward(arguments, upstream, wanted))
      stack->emplace_back(std::move(gradient));
    return;
  }
  const variable_list results = BackwardFunction::apply(at::TensorList(tensors), arguments, upstream, wanted);
  size_t at = 0;
  for (const bool want : wanted) stack->emplace_back(want ? results.at(at++) : at::Tensor());
}

}  // namespace

TORCH_LIBRARY_IMPL(iha, Autograd, m) {
  m.impl("_forward", torch::CppFunction::makeFromBoxedFunction<&forward_autograd>());
  m.impl("_backward", torch::CppFunction::makeFromBoxedFunction<&backward_autograd>());
}

}  // namespace iha::ops
