// Kernels of the inner operators on real devices: values are read and checked, then the engine of the device
// runs. This is the one place that decides which engine that is.
#include <torch/library.h>

#include "iha/ops/arguments.h"
#include "iha/ops/composed.h"
#include "iha/ops/engine.h"

namespace iha::ops {
namespace {

using Forward = Results (*)(const Arguments&, const Problem&, Want);
using Backward = Inputs (*)(const Arguments&, const Problem&, const Upstream&, const Wanted&);

void require_value(const Arguments& arguments, const char* name) {
  TORCH_CHECK_VALUE(arguments.value().defined(), name, ": value is absent, expected a tensor");
}

template <Forward forward>
void forward_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  StackReader reader(*stack, count);
  const Arguments arguments = read_arguments(reader);
  Want want;
  want.out = reader.next().toBool();
  want.parts = reader.next().toBool();
  require_value(arguments, "iha::_forward");
  const Problem problem = make_problem(arguments, want.out ? "iha::attention" : "iha::attention_with_lse");
  Results results = forward(arguments, problem, want);
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, std::move(results.out), std::move(results.parts), std::move(results.lse));
}

template <Backward backward>
void backward_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  StackReader reader(*stack, count);
  const Upstream upstream = read_upstream(reader);
  const Arguments arguments = read_arguments(reader);
  const Wanted wanted = read_wanted(reader);
  require_value(arguments, "iha::_backward");
  const Problem problem = make_problem(arguments, "iha::_backward");
  check_upstream(upstream, arguments, "iha::_backward");
  Inputs gradients = backward(arguments, problem, upstream, wanted);
  torch::jit::drop(*stack, count);
  for (at::Tensor& gradient : gradients) stack->emplace_back(std::move(gradient));
}

void weights_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  StackReader reader(*stack, count);
  const at::Tensor rows = reader.tensor();
  const Arguments arguments = read_arguments(reader);
  const Problem problem = make_problem(arguments, "iha::attention_weights");
  if (rows.numel() > 0) {
    TORCH_CHECK_VALUE(rows.scalar_type() == at::kLong && rows.dim() == 1, "iha::attention_weights: rows is ",
                      rows.scalar_type(), " ", rows.sizes(), ", expected Long (int64) [rows]");
    const int64_t least = rows.min().item<int64_t>(), most = rows.max().item<int64_t>();
    TORCH_CHECK_VALUE(least >= 0 && most < problem.queries, "iha::attention_weights: rows reach from ", least,
                      " to ", most, ", expected 0 to ", problem.queries - 1, " (query rows)");
  }
  at::Tensor weights = composed_weights(arguments, problem, rows);
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, std::move(weights));
}

template <void (*kernel)(const c10::OperatorHandle&, torch::jit::Stack*)>
torch::CppFunction boxed() {
  return torch::CppFunction::makeFromBoxedFunction<kernel>();
}

// Tensors on the CPU.
Results forward_cpu(const Arguments& arguments, const Problem& problem, Want want) {
  return engine_serves(arguments.query().scalar_type()) ? engine_forward(arguments, problem, want)
                                                        : composed_forward(arguments, problem, want);
}
Inputs backward_cpu(const Arguments& arguments, const Problem& problem, const Upstream& upstream,
                    const Wanted& wanted) {
  return engine_serves(arguments.query().scalar_type())
             ? engine_backward(arguments, problem, upstream, wanted)
             : composed_backward(arguments, problem, upstream, wanted);
}

}  // namespace

TORCH_LIBRARY_IMPL(iha, CompositeExplicitAutograd, m) {
  m.impl("_forward", boxed<&forward_kernel<&composed_forward>>());
  m.impl("_backward", boxed<&backward_kernel<&composed_backward>>());
  m.impl("_weights", boxed<&weights_kernel>());
}

TORCH_LIBRARY_IMPL(iha, CPU, m) {
  m.impl("_forward", boxed<&forward_kernel<&forward_cpu>>());
  m.impl("_backward", boxed<&backward_kernel<&backward_cpu>>());
}

}  // namespace iha::ops
