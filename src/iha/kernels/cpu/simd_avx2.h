// AVX2 with FMA and F16C as the small vector class that primitives_impl.h is written over.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace iha::cpu {
namespace {

struct Avx2 {
  using Float = __m256;
  static constexpr int kWidth = 8;
  static constexpr int kGroupRows = 6;  // 6 x 2 accumulators, 2 operands, a broadcast: 15 of 16 registers

  static Float zero() { return _mm256_setzero_ps(); }
  static Float set(float value) { return _mm256_set1_ps(value); }
  static Float load(const void* source) { return _mm256_loadu_ps(static_cast<const float*>(source)); }
  static Float broadcast(const void* cell) { return _mm256_broadcast_ss(static_cast<const float*>(cell)); }
  static void store(void* target, Float value) { _mm256_storeu_ps(static_cast<float*>(target), value); }
  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float larger(Float a, Float b) { return _mm256_max_ps(a, b); }  // b where a is NaN
  static Float select(uint32_t bits, Float yes, Float no) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set_bits = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane);
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(_mm256_cmpeq_epi32(set_bits, lane)));
  }
  static float sum(Float a) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
  }
  static float largest(Float a) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
  }

  // Lane i: the sum of parts[i], all in one order: within halves, then over them.
  static Float sums(const Float* parts) {
    __m256 halves[2];
    for (int i = 0; i < 2; ++i) {
      const __m256 a = parts[4 * i], b = parts[4 * i + 1], c = parts[4 * i + 2], d = parts[4 * i + 3];
      const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
      const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
      halves[i] = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    }
    return _mm256_add_ps(_mm256_permute2f128_ps(halves[0], halves[1], 0x20),
                         _mm256_permute2f128_ps(halves[0], halves[1], 0x31));
  }

  static Float round(Float x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // fraction * 2^whole, exactly 0 for x below -126 (-inf too: hidden keys weigh nothing); NaN stays.
  static Float raise(Float x, Float fraction, Float whole) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127));
    const __m256 value = mul(fraction, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
    return _mm256_and_ps(value, _mm256_cmp_ps(x, set(-126.0f), _CMP_NLT_UQ));
  }

  static Float widen_bfloat16(const uint16_t* source) {
    const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  }
  static Float widen_float16(const uint16_t* source) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
  }
  static void narrow_bfloat16(Float value, uint16_t* target) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i words = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target), _mm256_castsi256_si128(packed));
  }
  static void narrow_float16(Float value, uint16_t* target) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target),
                     _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  // A block of 8 x 8 cells, turned: pairs of rows, then of pairs, then halves.
  static void transpose_block(const uint32_t* source, int64_t row, uint32_t* target, int64_t target_row) {
    __m256 a[8], b[8];
    for (int i = 0; i < 8; ++i) a[i] = load(source + i * row);
    for (int i = 0; i < 8; i += 2) {
      b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
      b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
      a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
      a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
      a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
      a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      store(target + i * target_row, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
      store(target + (i + 4) * target_row, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    }
  }
};

}  // namespace
}  // namespace iha::cpu
