// The operator from torch operations, on any device: what runs where there is no engine, and the second
// opinion where there is one. Heads of one pattern go together, queries in blocks against the keys that the
// pattern reaches (blocks.h); scores and sums are float64 for float64 inputs, else float32. Arguments are
// already checked.
#pragma once

#include "iha/kernels/problem.h"
#include "iha/ops/arguments.h"

namespace iha::ops {

Results composed_forward(const Arguments& arguments, const Problem& problem, Want want);

// Gradients of the wanted inputs, each in its input's dtype; those of query, key and value lie over
// token-major memory.
Inputs composed_backward(const Arguments& arguments, const Problem& problem, const Upstream& upstream,
                         const Wanted& wanted);

// Softmax weights of the query rows `rows` (int64 [R]): [B, Hq, R, P, Nk, P] in the dtype of query.
at::Tensor composed_weights(const Arguments& arguments, const Problem& problem, const at::Tensor& rows);

}  // namespace iha::ops
