// The CPU engine on one instruction set: what iha::core::attention runs for everything but float64. Tests
// call it for each set that the machine has.
#pragma once

#include "iha/kernels/attention.h"
#include "iha/kernels/cpu/isa.h"

namespace iha::cpu {

// As core::attention and core::attention_backward, for a checked problem; float32, bfloat16 and float16
// inputs.
void forward(const Problem& problem, const core::AttentionInputs& inputs,
             const core::AttentionOutputs& outputs, const ParallelFor& parallel, Isa isa);
void backward(const Problem& problem, const core::AttentionInputs& inputs,
              const core::AttentionUpstream& upstream, const core::AttentionGradients& gradients,
              const ParallelFor& parallel, Isa isa);

}  // namespace iha::cpu
