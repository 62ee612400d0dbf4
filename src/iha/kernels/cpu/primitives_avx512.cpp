// The table for AVX-512 (F, BW, DQ, VL); bfloat16 widens to float32.
#include "iha/kernels/cpu/primitives_impl.h"
#include "iha/kernels/cpu/simd_avx512.h"
#include "iha/kernels/cpu/tables.h"

namespace iha::cpu {

const Primitives kAvx512Primitives = make_primitives<Avx512, FloatCells<Avx512>>();

}  // namespace iha::cpu
