#include "tests/kernels/trapped_tiles.h"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__x86_64__) && defined(__linux__)
#include <ucontext.h>
#endif

namespace iha::cpu {
namespace {

std::atomic<long> executed{0};

#if defined(__x86_64__) && defined(__linux__)

// As LDTILECFG reads it.
struct Configuration {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

struct Tile {
  uint32_t cell[16][16];  // zero past the configured rows and cells
};

thread_local Configuration configuration;  // palette 0: none
thread_local Tile tiles[8];
struct sigaction fallback;

float flush(float value) {
  return std::abs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
}
float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return flush(value);
}

// One VEX-coded instruction of map 0F38, decoded as far as AMX needs it.
struct Instruction {
  int prefix, opcode, source;  // source: VEX.vvvv
  int mode, reg, rm;           // of ModRM, with the bits that VEX adds
  uint64_t address, stride;    // of a memory operand: without its index, and the index
  int64_t length;
};

uint64_t register_of(const greg_t* registers, int number) {
  constexpr int kOrder[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                            REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<uint64_t>(registers[kOrder[number]]);
}

bool decode(const greg_t* registers, Instruction& in) {
  const auto* code = reinterpret_cast<const uint8_t*>(registers[REG_RIP]);
  if (code[0] != 0xc4 || (code[1] & 0x1f) != 2) return false;
  if ((code[2] & 0x84) != 0) return false;                                        // W or L
  const auto extra = [&](int bit) { return (code[1] >> bit & 1) != 0 ? 0 : 8; };  // R 7, X 6, B 5, inverted
  in.prefix = code[2] & 3;
  in.source = ~(code[2] >> 3) & 15;
  in.opcode = code[3];
  const uint8_t form = code[4];
  in.mode = form >> 6;
  in.reg = (form >> 3 & 7) + extra(7);
  in.rm = (form & 7) + (in.mode == 3 ? extra(5) : 0);
  in.address = in.stride = 0;
  int64_t at = 5;
  if (in.mode != 3) {
    int base = (form & 7) + extra(5);
    if (in.rm == 4) {
      const uint8_t sib = code[at++];
      const int index = (sib >> 3 & 7) + extra(6);
      if (index != 4) in.stride = register_of(registers, index) << (sib >> 6);
      base = (sib & 7) + extra(5);
    }
    const bool no_base = in.mode == 0 && (base & 7) == 5, wide = in.mode == 2 || no_base;
    int32_t displacement = 0;
    if (wide) {
      std::memcpy(&displacement, code + at, 4);
      at += 4;
    } else if (in.mode == 1) {
      displacement = static_cast<int8_t>(code[at++]);
    }
    if (!no_base) {
      in.address = register_of(registers, base);
    } else if (in.rm == 5) {
      in.address = static_cast<uint64_t>(registers[REG_RIP] + at);
    }
    in.address += static_cast<uint64_t>(static_cast<int64_t>(displacement));
  }
  in.length = at;
  return true;
}

bool usable(int tile) {
  return configuration.palette == 1 && tile < 8 && configuration.rows[tile] > 0;
}

bool load_configuration(const void* source) {
  Configuration next;
  std::memcpy(&next, source, sizeof next);
  if (next.palette != 1 || next.start_row != 0) return false;
  for (const uint8_t byte : next.reserved) {
    if (byte != 0) return false;
  }
  for (int i = 0; i < 16; ++i) {
    const bool none = next.rows[i] == 0 && next.row_bytes[i] == 0;
    const bool fits = i < 8 && next.rows[i] <= 16 && next.row_bytes[i] <= 64 && next.row_bytes[i] % 4 == 0;
    if (!none && !fits) return false;
  }
  configuration = next;
  std::memset(tiles, 0, sizeof tiles);
  return true;
}

bool load(const Instruction& in) {
  if (!usable(in.reg) || in.rm != 4) return false;
  std::memset(&tiles[in.reg], 0, sizeof(Tile));
  for (uint64_t row = 0; row < configuration.rows[in.reg]; ++row) {
    const auto* source = reinterpret_cast<const char*>(in.address + row * in.stride);
    std::memcpy(tiles[in.reg].cell[row], source, configuration.row_bytes[in.reg]);
  }
  return true;
}

bool store(const Instruction& in) {
  if (!usable(in.reg) || in.rm != 4) return false;
  for (uint64_t row = 0; row < configuration.rows[in.reg]; ++row) {
    auto* target = reinterpret_cast<char*>(in.address + row * in.stride);
    std::memcpy(target, tiles[in.reg].cell[row], configuration.row_bytes[in.reg]);
  }
  return true;
}

bool multiply(int to, int left, int right) {
  if (!usable(to) || !usable(left) || !usable(right) || to == left || to == right || left == right)
    return false;
  const int rows = configuration.rows[to], columns = configuration.row_bytes[to] / 4;
  const int depth = configuration.row_bytes[left] / 4;
  if (rows != configuration.rows[left] || columns != configuration.row_bytes[right] / 4 ||
      depth != configuration.rows[right]) {
    return false;
  }
  for (int m = 0; m < rows; ++m) {
    for (int n = 0; n < columns; ++n) {
      float lows = 0, highs = 0;
      for (int k = 0; k < depth; ++k) {
        const uint32_t a = tiles[left].cell[m][k], b = tiles[right].cell[k][n];
        lows = flush(std::fma(as_float(a << 16), as_float(b << 16), lows));
        highs = flush(std::fma(as_float(a & 0xffff0000u), as_float(b & 0xffff0000u), highs));
      }
      uint32_t& sum = tiles[to].cell[m][n];
      const float total = flush(as_float(sum) + flush(lows + highs));
      std::memcpy(&sum, &total, sizeof total);
    }
  }
  return true;
}

bool execute(const Instruction& in) {
  enum Prefix { kNone = 0, kF3 = 2, kF2 = 3 };
  const bool memory = in.mode != 3;
  if (in.opcode == 0x5c && in.prefix == kF3 && !memory) return multiply(in.reg, in.rm, in.source);
  if (in.source != 0) return false;
  if (in.opcode == 0x4b && memory && in.prefix == kF2) return load(in);
  if (in.opcode == 0x4b && memory && in.prefix == kF3) return store(in);
  if (in.opcode != 0x49) return false;
  if (in.prefix == kNone && memory && in.reg == 0) {
    return load_configuration(reinterpret_cast<const void*>(in.address + in.stride));
  }
  if (in.prefix == kNone && !memory && in.reg == 0 && in.rm == 0) {
    configuration = {};
    return true;
  }
  if (in.prefix == kF2 && !memory && in.rm == 0 && usable(in.reg)) {
    std::memset(&tiles[in.reg], 0, sizeof(Tile));
    return true;
  }
  return false;
}

void on_illegal_instruction(int, siginfo_t*, void* context) {
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  Instruction in;
  if (decode(registers, in) && execute(in)) {
    registers[REG_RIP] += in.length;
    executed.fetch_add(1, std::memory_order_relaxed);
  } else {
    sigaction(SIGILL, &fallback, nullptr);  // the instruction runs again, into it
  }
}

#endif

}  // namespace

#if defined(__x86_64__) && defined(__linux__)
TrappedTiles::TrappedTiles() {
  struct sigaction action {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, &before_);
  fallback = before_;
}
TrappedTiles::~TrappedTiles() {
  sigaction(SIGILL, &before_, nullptr);
}
#else
TrappedTiles::TrappedTiles() : before_{} {}
TrappedTiles::~TrappedTiles() = default;
#endif

long TrappedTiles::instructions() {
  return executed;
}

}  // namespace iha::cpu
