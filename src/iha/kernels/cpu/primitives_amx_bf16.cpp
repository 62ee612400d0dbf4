// The table for bfloat16 inputs on processors with AMX (TDPBF16PS). Not run on one yet: tests run this very
// code with its instructions emulated (tests/kernels/trapped_tiles.h).
#include "iha/kernels/cpu/tables.h"
#include "iha/kernels/cpu/tiles_impl.h"

namespace iha::cpu {
namespace {

// What LDTILECFG reads: palette 1, eight tiles of 16 rows of 64 bytes.
struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(Configuration) == 64);
constexpr Configuration kConfiguration;

// The instructions as assembly: the intrinsics of g++ 12 take no template arguments, and its tile loads may
// move before stores that they should see. Tiles are registers that compilers do not use by themselves.
struct HardwareTiles {
  static void configure() { asm volatile("ldtilecfg %0" ::"m"(kConfiguration)); }
  static void release() { asm volatile("tilerelease"); }
  template <int kTo>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTo));
  }
  // Rows of 64 bytes, `row` bytes from one to the next.
  template <int kTo>
  static void load(const void* source, int64_t row) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTo), "r"(source), "r"(row) : "memory");
  }
  template <int kFrom>
  static void store(void* target, int64_t row) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kFrom), "r"(target), "r"(row) : "memory");
  }
  // sum += left * right.
  template <int kSum, int kLeft, int kRight>
  static void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kLeft), "i"(kRight));
  }
};

}  // namespace

const Primitives kAmxBf16Primitives = make_tile_primitives<HardwareTiles>();

}  // namespace iha::cpu
