// Which instruction sets this machine has and which one the engine uses. Not the kernels themselves
// (primitives.h).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace iha::cpu {

// kEmulatedAmx is kAmxBf16 with its tiles in plain code, for tests on machines that have AVX-512 BF16 but no
// AMX. It is never found among the supported ones.
enum class Isa : uint8_t { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmxBf16, kEmulatedAmx };

// "portable", "avx2", "avx512", "avx512_bf16", "amx_bf16": the spellings of IHA_ISA.
std::string_view name_of(Isa isa);
// What the processor executes, the system permits and the library was built with, ascending; the first is
// kPortable. The first call asks Linux for the use of AMX's tiles where the processor has them.
const std::vector<Isa>& supported_isas();
// The supported set of this name. Throws std::invalid_argument naming those that the machine has.
Isa isa_named(std::string_view name);
// The set named by the environment variable IHA_ISA, else the best one. Throws std::invalid_argument naming
// what the machine has where IHA_ISA names something else.
Isa active_isa();

}  // namespace iha::cpu
