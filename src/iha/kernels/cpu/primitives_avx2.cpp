// The table for AVX2 with FMA and F16C.
#include "iha/kernels/cpu/primitives_impl.h"
#include "iha/kernels/cpu/simd_avx2.h"
#include "iha/kernels/cpu/tables.h"

namespace iha::cpu {

const Primitives kAvx2Primitives = make_primitives<Avx2, FloatCells<Avx2>>();

}  // namespace iha::cpu
