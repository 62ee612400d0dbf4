// The instruction sets that tests of the engine run on: those of the machine, and AMX with its tiles emulated
// where everything else of its table runs.
#pragma once

#include <algorithm>
#include <vector>

#include "iha/core/dtype.h"
#include "iha/kernels/cpu/isa.h"

namespace iha::cpu {

inline std::vector<Isa> tested_isas(DType dtype) {
  std::vector<Isa> isas = supported_isas();
  const bool runs = std::find(isas.begin(), isas.end(), Isa::kAvx512Bf16) != isas.end();
  if (runs && dtype == DType::kBFloat16) isas.push_back(Isa::kEmulatedAmx);
  return isas;
}

}  // namespace iha::cpu
