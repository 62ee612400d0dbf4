// Cells of two bfloat16 for primitives_impl.h, by the conversions and dot products of AVX-512 BF16. Included
// by the translation units whose tables have `pairs`, each compiled for that set at least.
#pragma once

#include "iha/core/dtype.h"
#include "iha/kernels/cpu/primitives.h"
#include "iha/kernels/cpu/simd_avx512.h"

namespace iha::cpu {
namespace {

// Rows of bfloat16 as they lie in memory: pairs along channels are their own bytes; pairs along keys are
// woven of two rows, which leaves channels in another order.
struct PairRows {
  using Element = uint16_t;
  using Float = Avx512::Float;
  static constexpr int kElements = 32, kKeys = 2, kVectors = 2;

  static Float multiply_add(Float a, Float b, Float sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static Float load(const uint16_t* row) { return Avx512::load(row); }
  static void spread(const uint16_t* row, int64_t next, Float* cells) {
    const __m512i first = _mm512_loadu_si512(row), second = _mm512_loadu_si512(row + next);
    cells[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(first, second));
    cells[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(first, second));
  }
  // Of each eight channels the first four are in sums[0], the others in sums[1].
  static void load_sums(const float* output, Float* sums) {
    const Float low = Avx512::load(output), high = Avx512::load(output + 16);
    sums[0] = _mm512_shuffle_f32x4(low, high, 0x88);
    sums[1] = _mm512_shuffle_f32x4(low, high, 0xdd);
  }
  static void store_sums(float* output, const Float* sums) {
    const Float low = _mm512_shuffle_f32x4(sums[0], sums[1], 0x44);
    const Float high = _mm512_shuffle_f32x4(sums[0], sums[1], 0xee);
    Avx512::store(output, _mm512_shuffle_f32x4(low, low, 0xd8));
    Avx512::store(output + 16, _mm512_shuffle_f32x4(high, high, 0xd8));
  }
};

struct BFloat16Cells {
  using Rows = PairRows;
  static constexpr bool kPairs = true;
  static constexpr int kExpDegree = 3;  // 7.5e-5, where rounding a weight to bfloat16 costs up to 2e-3
  using Float = Avx512::Float;

  static Float multiply_add(Float a, Float b, Float sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static void write(Cell* row, int64_t column, Float low, Float high) {
    _mm512_storeu_si512(row + column / 2, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
  }
  static void pack_along(const float* source, int64_t count, Cell* cells) {
    int64_t i = 0;
    for (; i + 16 <= count; i += 16)
      write(cells, 2 * i, Avx512::load(source + 2 * i), Avx512::load(source + 2 * i + 16));
    for (; i < count; ++i) {
      cells[i] = float_to_bfloat16(source[2 * i]) |
                 static_cast<uint32_t>(float_to_bfloat16(source[2 * i + 1])) << 16;
    }
  }
  static void pack_across(const float* first, const float* second, int64_t count, Cell* cells) {
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
      const auto low = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(Avx512::load(first + i)));
      const auto high = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(Avx512::load(second + i)));
      const __m512i words =
          _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
      _mm512_storeu_si512(cells + i, words);
    }
    for (; i < count; ++i) {
      cells[i] = float_to_bfloat16(first[i]) | static_cast<uint32_t>(float_to_bfloat16(second[i])) << 16;
    }
  }
};

}  // namespace
}  // namespace iha::cpu
