// iha::core::attention by the oracle: any dtype and strides; each sequence of the batch is widened to
// float64, computed and rounded once. The path of float64 inputs. Private to kernels/.
#pragma once

#include "iha/core/parallel.h"
#include "iha/kernels/attention.h"
#include "iha/kernels/attention_arrays.h"

namespace iha::core {

// Everything is checked already.
void forward_by_oracle(const Problem& problem, const Shapes& shapes, const AttentionInputs& inputs,
                       const AttentionOutputs& outputs, const ParallelFor& parallel);
// Computes the forward pass anew, in float64, rather than from the rounded parts and lse of `upstream`.
void backward_by_oracle(const Problem& problem, const Shapes& shapes, const AttentionInputs& inputs,
                        const AttentionUpstream& upstream, const AttentionGradients& gradients,
                        const ParallelFor& parallel);

}  // namespace iha::core
