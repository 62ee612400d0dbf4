// The tables that the translation units of the instruction sets define.
#pragma once

#include "iha/kernels/cpu/primitives.h"

namespace iha::cpu {

extern const Primitives kPortablePrimitives, kAvx2Primitives, kAvx512Primitives, kAvx512Bf16Primitives,
    kAmxBf16Primitives, kEmulatedAmxPrimitives;

}  // namespace iha::cpu
