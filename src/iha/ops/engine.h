// The operator by the torch-free CPU engine (kernels/cpu), on torch's own threads. float64 is not its
// business.
#pragma once

#include "iha/core/parallel.h"
#include "iha/kernels/problem.h"
#include "iha/ops/arguments.h"

namespace iha::ops {

// What computes CPU tensors. The engine at first, unless the environment variable IHA_CPU is `composed` (read
// once); changed at run time for benchmarks and second opinions, for the whole process.
enum class CpuPath : uint8_t { kEngine, kComposed };
CpuPath cpu_path();
void set_cpu_path(CpuPath path);

// Torch's own threads for torch-free code.
ParallelFor torch_threads();

// Whether CPU tensors of this dtype go to the engine: all but float64, unless the path is kComposed.
bool engine_serves(at::ScalarType dtype);

// As composed_forward and composed_backward.
Results engine_forward(const Arguments& arguments, const Problem& problem, Want want);
Inputs engine_backward(const Arguments& arguments, const Problem& problem, const Upstream& upstream,
                       const Wanted& wanted);

}  // namespace iha::ops
