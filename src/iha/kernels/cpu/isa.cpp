#include "iha/kernels/cpu/isa.h"

#include <cstdlib>
#include <string>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "iha/core/error.h"

namespace iha::cpu {
namespace {

// AMX with bfloat16: processor and system keep tiles (also XCR0 says so), tiles are as large as the kernels
// configure them, and Linux lets this process use them. The permission is asked for here, holds for all
// threads of the process, those that run already included, and is inherited.
#if defined(__x86_64__)
bool has_tiles() {
#if defined(__linux__)
  if (!__builtin_cpu_supports("amx-tile") || !__builtin_cpu_supports("amx-bf16")) return false;
  unsigned eax, ebx, ecx, edx;
  if (__get_cpuid_count(0x1d, 1, &eax, &ebx, &ecx, &edx) == 0) return false;
  const unsigned row_bytes = ebx & 0xffff, tiles = ebx >> 16, rows = ecx & 0xffff;
  if (row_bytes < 64 || tiles < 8 || rows < 16) return false;
  // ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA; headers older than Linux 5.16 do not name them.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

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
  if (!__builtin_cpu_supports("avx512bf16")) return found;
  found.push_back(Isa::kAvx512Bf16);
  if (has_tiles()) found.push_back(Isa::kAmxBf16);
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
    case Isa::kAmxBf16:
      return "amx_bf16";
    case Isa::kEmulatedAmx:
      return "emulated_amx";
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
