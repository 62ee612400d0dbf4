// The table for any processor.
#include "iha/kernels/cpu/primitives_impl.h"
#include "iha/kernels/cpu/simd_portable.h"
#include "iha/kernels/cpu/tables.h"

namespace iha::cpu {

const Primitives kPortablePrimitives = make_primitives<Portable, FloatCells<Portable>>();

}  // namespace iha::cpu
