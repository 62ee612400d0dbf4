// The table of AMX with tiles in plain code: what TDPBF16PS computes by Intel's manual, bit for bit but for
// the payload of NaN. For tests alone, on machines with AVX-512 BF16; a tenth as fast as the table without
// tiles.
#include "iha/kernels/cpu/tables.h"
#include "iha/kernels/cpu/tiles_impl.h"

namespace iha::cpu {
namespace {

// Denormals count as zero of their sign, as operands and as results.
inline float flushed(uint32_t bits) {
  if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
inline float flushed(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return flushed(bits);
}

struct EmulatedTiles {
  struct Registers {
    bool configured;
    alignas(64) Cell tile[8][kTile][kTile];
  };
  static thread_local Registers registers;

  // Clears the tiles; without it every other operation is an invalid one, as on the processor.
  static void configure() { registers = {.configured = true, .tile = {}}; }
  static void release() { registers.configured = false; }

  template <int kNumber>
  static Cell (&tile())[kTile][kTile] {
    if (!registers.configured) __builtin_trap();
    return registers.tile[kNumber];
  }
  template <int kTo>
  static void zero() {
    __builtin_memset(tile<kTo>(), 0, sizeof registers.tile[kTo]);
  }
  template <int kTo>
  static void load(const void* source, int64_t row) {
    auto& to = tile<kTo>();
    for (int64_t i = 0; i < kTile; ++i) {
      __builtin_memcpy(to[i], static_cast<const char*>(source) + i * row, sizeof to[i]);
    }
  }
  template <int kFrom>
  static void store(void* target, int64_t row) {
    auto& from = tile<kFrom>();
    for (int64_t i = 0; i < kTile; ++i) {
      __builtin_memcpy(static_cast<char*>(target) + i * row, from[i], sizeof from[i]);
    }
  }
  // Even and odd products are summed apart, in order, by FMA; their sum is added to the tile's.
  template <int kSum, int kLeft, int kRight>
  static void dot() {
    auto &sum = tile<kSum>(), &left = tile<kLeft>(), &right = tile<kRight>();
    for (int64_t m = 0; m < kTile; ++m) {
      float even[kTile] = {}, odd[kTile] = {};
      for (int64_t k = 0; k < kTile; ++k) {
        const float low = flushed(left[m][k] << 16), high = flushed(left[m][k] & 0xffff0000u);
        for (int64_t n = 0; n < kTile; ++n) {
          even[n] = flushed(__builtin_fmaf(low, flushed(right[k][n] << 16), even[n]));
          odd[n] = flushed(__builtin_fmaf(high, flushed(right[k][n] & 0xffff0000u), odd[n]));
        }
      }
      for (int64_t n = 0; n < kTile; ++n) {
        const float total = flushed(flushed(sum[m][n]) + flushed(even[n] + odd[n]));
        __builtin_memcpy(&sum[m][n], &total, sizeof total);
      }
    }
  }
};
thread_local EmulatedTiles::Registers EmulatedTiles::registers;

}  // namespace

const Primitives kEmulatedAmxPrimitives = make_tile_primitives<EmulatedTiles>();

}  // namespace iha::cpu
