// The operator without torch: plain pointers, shapes and strides. Formulas and rules: docs/operator.md.
#pragma once

#include <array>
#include <cstdint>

#include "iha/core/dtype.h"
#include "iha/core/parallel.h"
#include "iha/kernels/problem.h"

namespace iha::core {

// A strided array that somebody else owns. data = null: absent. Strides count elements; trailing ones beyond
// the array's rank are not read.
struct Array {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::array<int64_t, 5> strides{};
};
struct MutableArray {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::array<int64_t, 5> strides{};
};

// Shapes as in reference::Inputs. query, key and value share one dtype; the others have it or float32.
// Learned heads need mode_weights, dynamic heads block_weights; other heads do not read their rows.
struct AttentionInputs {
  Array query, key, value, alpha_q, alpha_k, alpha_v, collapse, sinks, mode_weights, block_weights;
};
// out [B, Hq, Nq, dv] in the inputs' dtype, parts [B, Hq, Nq, P, dv] in the inputs' dtype or float32, lse [B,
// Hq, Nq, P] in float32 (float64 for float64 inputs). Any may be absent. Strides are free; [B, N, H, d]
// memory makes the merge of heads free.
struct AttentionOutputs {
  MutableArray out, parts, lse;
};
// What the forward pass left (parts and lse), and the upstream gradients (absent: zero).
struct AttentionUpstream {
  Array parts, lse;
  Array grad_out, grad_parts, grad_lse;
};
struct AttentionGradients {
  MutableArray query, key, value, alpha_q, alpha_k, alpha_v, collapse, sinks, mode_weights, block_weights;
};

// Throws std::invalid_argument as check(Problem) does, and where dtypes or weights do not fit. The result
// does not depend on the number of workers, bit for bit.
void attention(const Problem& problem, const AttentionInputs& inputs, const AttentionOutputs& outputs,
               const ParallelFor& parallel);
// Writes the gradients of all present arrays of `gradients`; `upstream.parts` and `upstream.lse` must be the
// forward pass's own.
void attention_backward(const Problem& problem, const AttentionInputs& inputs,
                        const AttentionUpstream& upstream, const AttentionGradients& gradients,
                        const ParallelFor& parallel);

}  // namespace iha::core
