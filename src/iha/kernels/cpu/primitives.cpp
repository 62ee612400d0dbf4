// Chooses the table of an instruction set.
#include "iha/kernels/cpu/primitives.h"

#include "iha/kernels/cpu/tables.h"

namespace iha::cpu {

const Primitives& primitives(Isa isa, DType dtype) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kPortable:
      return kPortablePrimitives;
    case Isa::kAvx2:
      return kAvx2Primitives;
    case Isa::kAvx512:
      return kAvx512Primitives;
    case Isa::kAvx512Bf16:
      return dtype == DType::kBFloat16 ? kAvx512Bf16Primitives : kAvx512Primitives;
    case Isa::kAmxBf16:
      return dtype == DType::kBFloat16 ? kAmxBf16Primitives : kAvx512Primitives;
    case Isa::kEmulatedAmx:
      return dtype == DType::kBFloat16 ? kEmulatedAmxPrimitives : kAvx512Primitives;
  }
#else
  static_cast<void>(isa);
  static_cast<void>(dtype);
#endif
  return kPortablePrimitives;
}

}  // namespace iha::cpu
