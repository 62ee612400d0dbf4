// The operator by the torch-free CPU engine (kernels/cpu), on torch's own threads. float64 is not its
// business.
#pragma once

#include "iha/kernels/problem.h"
#include "iha/ops/arguments.h"

namespace iha::ops {

// Whether CPU tensors of this dtype go to the engine: all but float64, unless the environment variable
// IHA_CPU is `composed` (read once).
bool engine_serves(at::ScalarType dtype);

// As composed_forward and composed_backward.
Results engine_forward(const Arguments& arguments, const Problem& problem, Want want);
Inputs engine_backward(const Arguments& arguments, const Problem& problem, const Upstream& upstream,
                       const Wanted& wanted);

}  // namespace iha::ops
