// The table for bfloat16 inputs on AVX-512 with BF16 dot products (VDPBF16PS): operands are pairs of bfloat16
// along the summed dimension, sums are float32.
#include "iha/kernels/cpu/bfloat16_cells.h"
#include "iha/kernels/cpu/primitives_impl.h"
#include "iha/kernels/cpu/tables.h"

namespace iha::cpu {

const Primitives kAvx512Bf16Primitives = make_primitives<Avx512, BFloat16Cells>();

}  // namespace iha::cpu
