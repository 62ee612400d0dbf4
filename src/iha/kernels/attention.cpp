// The border of the torch-free operator: checks everything, then picks the path.
#include "iha/kernels/attention.h"

#include "iha/kernels/attention_arrays.h"
#include "iha/kernels/attention_by_oracle.h"

namespace iha::core {

void attention(const Problem& problem, const AttentionInputs& inputs, const AttentionOutputs& outputs,
               const ParallelFor& parallel) {
  constexpr const char* kName = "iha::core::attention";
  check(problem, kName);
  const Shapes shapes(problem);
  check_forward(kName, problem, shapes, inputs, outputs);
  forward_by_oracle(problem, shapes, inputs, outputs, parallel);
}

void attention_backward(const Problem& problem, const AttentionInputs& inputs,
                        const AttentionUpstream& upstream, const AttentionGradients& gradients,
                        const ParallelFor& parallel) {
  constexpr const char* kName = "iha::core::attention_backward";
  check(problem, kName);
  const Shapes shapes(problem);
  check_backward(kName, problem, shapes, inputs, upstream, gradients);
  backward_by_oracle(problem, shapes, inputs, upstream, gradients, parallel);
}

}  // namespace iha::core
