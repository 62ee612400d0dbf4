// AMX's instructions on a processor that lacks them: each raises SIGILL, whose handler decodes it and does
// what Intel's manual says. So the engine's compiled AMX code runs as it is, addresses, tile numbers,
// configuration and all, some thousand times slower. For tests on x86-64 Linux.
#pragma once

#include <csignal>
#include <memory>

#include "iha/kernels/cpu/isa.h"

namespace iha::cpu {

// Installed while it lives, for all threads. Instructions other than LDTILECFG, TILERELEASE, TILEZERO,
// TILELOADD, TILESTORED and TDPBF16PS, and those that the processor would refuse, go on to the handler that
// was there.
class TrappedTiles {
 public:
  TrappedTiles();
  ~TrappedTiles();
  TrappedTiles(const TrappedTiles&) = delete;
  TrappedTiles& operator=(const TrappedTiles&) = delete;
  // Of all threads since the process began.
  static long instructions();

 private:
  struct sigaction before_;
};

// Null where the processor has them.
inline std::unique_ptr<TrappedTiles> trap_where_needed() {
  return supported_isas().back() == Isa::kAmxBf16 ? nullptr : std::make_unique<TrappedTiles>();
}

}  // namespace iha::cpu
