// The arrays of a call of iha::core::attention: their shapes, and what they must be. Private to kernels/.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "iha/kernels/attention.h"
#include "iha/kernels/problem.h"

namespace iha::core {

using Shape = std::vector<int64_t>;

struct Shapes {
  Shape query, key, value, alpha_q, alpha_kv, collapse, sinks, mode_weights, block_weights, out, parts, lse;

  explicit Shapes(const Problem& problem);
};

// Elements of an array of this shape.
int64_t count(std::span<const int64_t> shape);

// Throw std::invalid_argument, naming `operator_name`, for missing arrays, dtypes that do not fit those of
// the inputs, weights that check_weight refuses, and memory that several elements to write share. The problem
// is checked already.
void check_forward(const char* operator_name, const Problem& problem, const Shapes& shapes,
                   const AttentionInputs& inputs, const AttentionOutputs& outputs,
                   const ParallelFor& parallel);
void check_backward(const char* operator_name, const Problem& problem, const Shapes& shapes,
                    const AttentionInputs& inputs, const AttentionUpstream& upstream,
                    const AttentionGradients& gradients, const ParallelFor& parallel);

}  // namespace iha::core
