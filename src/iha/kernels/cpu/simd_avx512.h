// AVX-512 (F, BW, DQ, VL) as the small vector class that primitives_impl.h is written over.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace iha::cpu {
namespace {

struct Avx512 {
  using Float = __m512;
  static constexpr int kWidth = 16;
  // 8 x 2 accumulators, 2 operands and a broadcast: 19 of 32 registers, and 16 chains cover two FMA ports of
  // latency 4.
  static constexpr int kGroupRows = 8;

  static Float zero() { return _mm512_setzero_ps(); }
  static Float set(float value) { return _mm512_set1_ps(value); }
  static Float load(const void* source) { return _mm512_loadu_ps(source); }
  static Float broadcast(const void* cell) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(*static_cast<const int*>(cell)));
  }
  static void store(void* target, Float value) { _mm512_storeu_ps(target, value); }
  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float larger(Float a, Float b) { return _mm512_max_ps(a, b); }  // b where a is NaN
  static Float select(uint32_t bits, Float yes, Float no) {
    return _mm512_mask_blend_ps(static_cast<__mmask16>(bits), no, yes);
  }
  static float sum(Float a) { return _mm512_reduce_add_ps(a); }
  static float largest(Float a) { return _mm512_reduce_max_ps(a); }

  // Lane i: the sum of parts[i], all in one order: within quarters, then over them.
  static Float sums(const Float* parts) {
    __m512 quarters[4];
    for (int i = 0; i < 4; ++i) {
      const __m512 a = parts[4 * i], b = parts[4 * i + 1], c = parts[4 * i + 2], d = parts[4 * i + 3];
      const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
      const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
      quarters[i] = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    }
    const auto halve = [](__m512 a, __m512 b) {
      return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    };
    return halve(halve(quarters[0], quarters[1]), halve(quarters[2], quarters[3]));
  }

  // Nearest integer; what remains is in [-1/2, 1/2].
  static Float round(Float x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // fraction * 2^whole, exactly 0 for x below -126 (-inf too: hidden keys weigh nothing); NaN stays.
  static Float raise(Float x, Float fraction, Float whole) {
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, set(-126.0f), _CMP_NLT_UQ), fraction, whole);
  }

  static Float widen_bfloat16(const uint16_t* source) {
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
  }
  static Float widen_float16(const uint16_t* source) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)));
  }
  // Rounded to nearest even in the low halves; NaN becomes quiet.
  static __m512i round_bfloat16(Float value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16);
  }
  static void narrow_bfloat16(Float value, uint16_t* target) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), _mm512_cvtepi32_epi16(round_bfloat16(value)));
  }
  static void narrow_float16(Float value, uint16_t* target) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target),
                        _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  // A block of 16 x 16 cells, turned: pairs of rows, then of pairs, then quarters twice.
  static void transpose_block(const uint32_t* source, int64_t row, uint32_t* target, int64_t target_row) {
    __m512 a[16], b[16];
    for (int i = 0; i < 16; ++i) a[i] = load(source + i * row);
    for (int i = 0; i < 16; i += 2) {
      b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
      b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
      a[i] = _mm512_shuffle_ps(b[i], b[i + 2], 0x44);
      a[i + 1] = _mm512_shuffle_ps(b[i], b[i + 2], 0xee);
      a[i + 2] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0x44);
      a[i + 3] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
      b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd);
      b[i + 8] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
      b[i + 12] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; ++i) {
      store(target + i * target_row, _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88));
      store(target + (i + 8) * target_row, _mm512_shuffle_f32x4(b[i], b[i + 8], 0xdd));
    }
  }
};

}  // namespace
}  // namespace iha::cpu
