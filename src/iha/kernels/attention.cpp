// The border of the torch-free operator: checks everything, then picks the path: float64 and weighted heads
// go to the oracle, the rest to the engine.
#include "iha/kernels/attention.h"

#include "iha/kernels/attention_arrays.h"
#include "iha/kernels/attention_by_oracle.h"
#include "iha/kernels/cpu/engine.h"

namespace iha::core {

void attention(const Problem& problem, const AttentionInputs& inputs, const AttentionOutputs& outputs,
               const ParallelFor& parallel) {
  constexpr const char* kName = "iha::core::attention";
  check(problem, kName);
  const Shapes shapes(problem);
  check_forward(kName, problem, shapes, inputs, outputs, parallel);
  if (inputs.query.dtype == DType::kFloat64) {
    forward_by_oracle(problem, shapes, inputs, outputs, parallel);
  } else {
    cpu::forward(problem, inputs, outputs, parallel, cpu::active_isa());
  }
}

void attention_backward(const Problem& problem, const AttentionInputs& inputs,
                        const AttentionUpstream& upstream, const AttentionGradients& gradients,
                        const ParallelFor& parallel) {
  constexpr const char* kName = "iha::core::attention_backward";
  check(problem, kName);
  const Shapes shapes(problem);
  check_backward(kName, problem, shapes, inputs, upstream, gradients, parallel);
  if (inputs.query.dtype == DType::kFloat64) {
    backward_by_oracle(problem, shapes, inputs, upstream, gradients, parallel);
  } else {
    cpu::backward(problem, inputs, upstream, gradients, parallel, cpu::active_isa());
  }
}

}  // namespace iha::core
