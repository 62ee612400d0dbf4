// What the machine's multiply-adds and its memory can do, measured: the yardstick of benchmarks. Not used by
// the engine.
#pragma once

#include "iha/core/dtype.h"
#include "iha/core/parallel.h"
#include "iha/kernels/cpu/isa.h"

namespace iha::cpu {

// FLOP/s of all workers together, running register tiles whose operands stay in L1: FMA, or pairs of bfloat16
// where the instruction set has dot products (VDPBF16PS; TDPBF16PS with AMX) and `dtype` is bfloat16. The
// best of five runs of a few milliseconds, in which nothing else ran on the cores.
double measured_peak(Isa isa, DType dtype, const ParallelFor& parallel);

// Bytes a second that all workers together read of memory too large for caches (256 MiB), each a part of it
// from begin to end. The best of five runs.
double measured_read_bandwidth(const ParallelFor& parallel);

}  // namespace iha::cpu
