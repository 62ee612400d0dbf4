#include "iha/kernels/cpu/isa.h"

#include <cstdlib>
#include <string>

#include "iha/core/error.h"

namespace iha::cpu {
namespace {

std::vector<Isa> detect() {
  std::vector<Isa> found{Isa::kPortable};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c")) {
    return found;
  }
  found.push_back(Isa::kAvx2);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return found;
  }
  found.push_back(Isa::kAvx512);
  if (__builtin_cpu_supports("avx512bf16")) found.push_back(Isa::kAvx512Bf16);
#endif
  return found;
}

std::string supported_names() {
  std::string names;
  for (const Isa isa : supported_isas()) {
    if (!names.empty()) names += ", ";
    names += name_of(isa);
  }
  return names;
}

Isa choose() {
  const char* forced = std::getenv("IHA_ISA");
  return forced == nullptr || *forced == '\0' ? supported_isas().back() : isa_named(forced);
}

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
  }
  return "unknown";
}

const std::vector<Isa>& supported_isas() {
  static const std::vector<Isa> isas = detect();
  return isas;
}

Isa isa_named(std::string_view name) {
  for (const Isa isa : supported_isas()) {
    if (name_of(isa) == name) return isa;
  }
  fail("IHA_ISA: found '", name, "', expected one of what this machine has: ", supported_names());
}

Isa active_isa() {
  static const Isa isa = choose();
  return isa;
}

}  // namespace iha::cpu
