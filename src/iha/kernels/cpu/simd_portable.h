// Any processor: the compiler's own four-lane vectors, as the small vector class that primitives_impl.h is
// written over.
#pragma once

#include <cstdint>
#include <cstring>

#include "iha/core/dtype.h"

namespace iha::cpu {
namespace {

struct Portable {
  typedef float Float __attribute__((vector_size(16)));
  typedef int32_t Int __attribute__((vector_size(16)));
  static constexpr int kWidth = 4;
  static constexpr int kGroupRows =
      4;  // 4 x 2 accumulators fit the sixteen registers of SSE2 and of NEON's half

  static Float zero() { return Float{}; }
  static Float set(float value) { return Float{value, value, value, value}; }
  static Float load(const void* source) {
    Float value;
    std::memcpy(&value, source, sizeof value);
    return value;
  }
  static Float broadcast(const void* cell) {
    float value;
    std::memcpy(&value, cell, sizeof value);
    return set(value);
  }
  static void store(void* target, Float value) { std::memcpy(target, &value, sizeof value); }
  static Float add(Float a, Float b) { return a + b; }
  static Float sub(Float a, Float b) { return a - b; }
  static Float mul(Float a, Float b) { return a * b; }
  static Float fma(Float a, Float b, Float c) { return a * b + c; }
  static Float larger(Float a, Float b) { return a > b ? a : b; }  // b where a is NaN
  static Float select(uint32_t bits, Float yes, Float no) {
    const Int lane{1, 2, 4, 8};
    const auto word = static_cast<int32_t>(bits);
    return (Int{word, word, word, word} & lane) != 0 ? yes : no;
  }
  static float sum(Float a) { return (a[0] + a[2]) + (a[1] + a[3]); }
  static float largest(Float a) {
    const float even = a[0] > a[2] ? a[0] : a[2], odd = a[1] > a[3] ? a[1] : a[3];
    return even > odd ? even : odd;
  }

  // Lane i: the sum of parts[i], all in one order.
  static Float sums(const Float* parts) {
    return Float{sum(parts[0]), sum(parts[1]), sum(parts[2]), sum(parts[3])};
  }

  // Adding 1.5 * 2^23 leaves no bits below one; values outside +-2^21 never reach `raise` unclamped.
  static Float round(Float x) {
    const Float magic = set(12582912.0f), low = set(-150.0f);
    const Float bounded = x < low ? low : x;
    return (bounded + magic) - magic;
  }
  // fraction * 2^whole, exactly 0 for x below -126 (-inf too: hidden keys weigh nothing); NaN stays.
  static Float raise(Float x, Float fraction, Float whole) {
    const Int exponent = __builtin_convertvector(whole, Int) + 127;
    const Int bits = exponent << 23;
    Float power;
    std::memcpy(&power, &bits, sizeof power);
    return x < set(-126.0f) ? zero() : fraction * power;
  }

  static Float widen_bfloat16(const uint16_t* source) {
    const Int words = Int{source[0], source[1], source[2], source[3]} << 16;
    Float value;
    std::memcpy(&value, &words, sizeof value);
    return value;
  }
  static Float widen_float16(const uint16_t* source) {
    return Float{float16_to_float(source[0]), float16_to_float(source[1]), float16_to_float(source[2]),
                 float16_to_float(source[3])};
  }
  static void narrow_bfloat16(Float value, uint16_t* target) {
    for (int lane = 0; lane < kWidth; ++lane) target[lane] = float_to_bfloat16(value[lane]);
  }
  static void narrow_float16(Float value, uint16_t* target) {
    for (int lane = 0; lane < kWidth; ++lane) target[lane] = float_to_float16(value[lane]);
  }

  static void transpose_block(const uint32_t* source, int64_t row, uint32_t* target, int64_t target_row) {
    for (int i = 0; i < kWidth; ++i) {
      for (int j = 0; j < kWidth; ++j) target[j * target_row + i] = source[i * row + j];
    }
  }
};

}  // namespace
}  // namespace iha::cpu
