// The primitives, written once over a vector class (simd_*.h) and a cell format. Included by one translation
// unit an instruction set, each compiled with its own flags; everything here has internal linkage so that no
// function compiled for one set can stand in for another's.
#pragma once

#include <math.h>
#include <cstring>
#include <limits>

#include "iha/kernels/cpu/primitives.h"
#include "iha/kernels/cpu/unpacked_impl.h"

namespace iha::cpu {
namespace {

// 2^x: x = whole + rest, |rest| <= 1/2, by a polynomial of least relative error (made by iterated
// reweighting). Largest relative error 7.5e-8 (degree 5, float32 weights) and 7.5e-5 (degree 3, weights
// rounded to bfloat16).
template <class S, int kDegree>
inline typename S::Float power_of_two(typename S::Float x) {
  const auto whole = S::round(x);
  const auto rest = S::sub(x, whole);
  typename S::Float value;
  if constexpr (kDegree == 5) {
    value = S::set(0.001327647178171691f);
    value = S::fma(value, rest, S::set(0.009675541332776882f));
    value = S::fma(value, rest, S::set(0.05550713274150345f));
    value = S::fma(value, rest, S::set(0.24022119723881907f));
    value = S::fma(value, rest, S::set(0.6931469670643612f));
    value = S::fma(value, rest, S::set(1.0000000716546726f));
  } else {
    value = S::set(0.05517166721771046f);
    value = S::fma(value, rest, S::set(0.24261112205233135f));
    value = S::fma(value, rest, S::set(0.6932609858003207f));
    value = S::fma(value, rest, S::set(0.999928073556742f));
  }
  return S::raise(x, value, whole);
}

// Cells of one float32.
template <class S>
struct FloatCells {
  static constexpr bool kPairs = false;
  static constexpr int kExpDegree = 5;
  using Float = typename S::Float;
  static Float multiply_add(Float a, Float b, Float sum) { return S::fma(a, b, sum); }
  // Two neighbouring vectors of a row of weights, beginning at `column`.
  static void write(Cell* row, int64_t column, Float low, Float high) {
    S::store(row + column, low);
    S::store(row + column + S::kWidth, high);
  }
  static void pack_along(const float* source, int64_t count, Cell* cells) {
    std::memcpy(cells, source, count * sizeof(Cell));
  }
  static void pack_across(const float* first, const float*, int64_t count, Cell* cells) {
    std::memcpy(cells, first, count * sizeof(Cell));
  }
};

// One register tile: kRows x (kVectors vectors) of c over the whole depth.
template <class S, class Cells, int kRows, int kVectors>
inline void multiply_tile(const Product& p, const Cell* a, const Cell* b, float* c) {
  typename S::Float sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = p.accumulate ? S::load(c + i * p.c_row + v * S::kWidth) : S::zero();
    }
  }
  const int64_t a_row = p.a_row, a_depth = p.a_depth, b_depth = p.b_depth;
#pragma GCC unroll 2
  for (int64_t k = p.depth; k > 0; --k) {
    typename S::Float right[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) right[v] = S::load(b + v * S::kWidth);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const auto left = S::broadcast(a + i * a_row);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[i][v] = Cells::multiply_add(left, right[v], sums[i][v]);
    }
    a += a_depth;
    b += b_depth;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) S::store(c + i * p.c_row + v * S::kWidth, sums[i][v]);
  }
}

template <class S, class Cells, int kVectors>
inline void multiply_rows(const Product& p, int64_t rows, const Cell* a, const Cell* b, float* c) {
  switch (rows) {
    case 1:
      return multiply_tile<S, Cells, 1, kVectors>(p, a, b, c);
    case 2:
      return multiply_tile<S, Cells, 2, kVectors>(p, a, b, c);
    case 3:
      return multiply_tile<S, Cells, 3, kVectors>(p, a, b, c);
    case 4:
      return multiply_tile<S, Cells, 4, kVectors>(p, a, b, c);
    default:
      break;
  }
  if constexpr (S::kGroupRows > 4) {
    switch (rows) {
      case 5:
        return multiply_tile<S, Cells, 5, kVectors>(p, a, b, c);
      case 6:
        return multiply_tile<S, Cells, 6, kVectors>(p, a, b, c);
      default:
        break;
    }
  }
  if constexpr (S::kGroupRows > 6) {
    switch (rows) {
      case 7:
        return multiply_tile<S, Cells, 7, kVectors>(p, a, b, c);
      default:
        return multiply_tile<S, Cells, 8, kVectors>(p, a, b, c);
    }
  }
}

template <class S, class Cells>
void multiply(const Product& p) {
  constexpr int64_t kTile = 2 * S::kWidth;
  for (int64_t row = 0; row < p.rows; row += S::kGroupRows) {
    const int64_t rows = p.rows - row < S::kGroupRows ? p.rows - row : S::kGroupRows;
    const Cell* a = p.a + row * p.a_row;
    for (int64_t column = 0; column < p.columns; column += kTile) {
      const Cell* b = p.b + column / kPanel * p.b_panel + column % kPanel;
      float* c = p.c + row * p.c_row + column;
      if (column + kTile <= p.columns) {
        multiply_rows<S, Cells, 2>(p, rows, a, b, c);
      } else {
        multiply_rows<S, Cells, 1>(p, rows, a, b, c);
      }
    }
  }
}

template <class S>
void transpose(const Cell* rows, int64_t row, int64_t columns, Cell* panel) {
  int64_t column = 0;
  for (; column + S::kWidth <= columns; column += S::kWidth) {
    for (int64_t i = 0; i < kPanel; i += S::kWidth) {
      S::transpose_block(rows + i * row + column, row, panel + column * kPanel + i, kPanel);
    }
  }
  for (; column < columns; ++column) {
    for (int64_t i = 0; i < kPanel; ++i) panel[column * kPanel + i] = rows[i * row + column];
  }
}

template <class S>
void widen(const void* source, DType dtype, int64_t count, float* target) {
  int64_t i = 0;
  if (dtype == DType::kFloat32) {
    const auto* values = static_cast<const float*>(source);
    for (; i + S::kWidth <= count; i += S::kWidth) S::store(target + i, S::load(values + i));
    for (; i < count; ++i) target[i] = values[i];
    return;
  }
  const auto* words = static_cast<const uint16_t*>(source);
  if (dtype == DType::kBFloat16) {
    for (; i + S::kWidth <= count; i += S::kWidth) S::store(target + i, S::widen_bfloat16(words + i));
    for (; i < count; ++i) target[i] = bfloat16_to_float(words[i]);
  } else {
    for (; i + S::kWidth <= count; i += S::kWidth) S::store(target + i, S::widen_float16(words + i));
    for (; i < count; ++i) target[i] = float16_to_float(words[i]);
  }
}

template <class S>
void narrow(const float* source, DType dtype, int64_t count, void* target) {
  int64_t i = 0;
  if (dtype == DType::kFloat32) {
    auto* values = static_cast<float*>(target);
    for (; i + S::kWidth <= count; i += S::kWidth) S::store(values + i, S::load(source + i));
    for (; i < count; ++i) values[i] = source[i];
    return;
  }
  auto* words = static_cast<uint16_t*>(target);
  if (dtype == DType::kBFloat16) {
    for (; i + S::kWidth <= count; i += S::kWidth) S::narrow_bfloat16(S::load(source + i), words + i);
    for (; i < count; ++i) words[i] = float_to_bfloat16(source[i]);
  } else {
    for (; i + S::kWidth <= count; i += S::kWidth) S::narrow_float16(S::load(source + i), words + i);
    for (; i < count; ++i) words[i] = float_to_float16(source[i]);
  }
}

// Rows of one head lie far apart in token-major memory, where the processor's own prefetching starts late.
constexpr int64_t kPrefetchRows = 12;  // some 100 ns ahead at 8 ns a row

template <class S>
void widen_rows(const void* source, DType dtype, int64_t source_row, int64_t rows, int64_t count,
                float* target, int64_t target_row) {
  const int64_t element = dtype == DType::kFloat32 ? 4 : 2, step = source_row * element;
  const auto* bytes = static_cast<const char*>(source);
  for (int64_t i = 0; i < rows; ++i, bytes += step, target += target_row) {
    if (i + kPrefetchRows < rows) {
      const char* ahead = bytes + kPrefetchRows * step;
      for (int64_t byte = 0; byte < count * element; byte += 64) __builtin_prefetch(ahead + byte);
    }
    widen<S>(bytes, dtype, count, target);
    for (int64_t c = count; c < target_row; ++c) target[c] = 0.0f;
  }
}

template <class S>
void narrow_rows(const float* source, int64_t source_row, DType dtype, int64_t rows, int64_t count,
                 void* target, int64_t target_row) {
  const int64_t step = target_row * (dtype == DType::kFloat32 ? 4 : 2);
  auto* bytes = static_cast<char*>(target);
  for (int64_t i = 0; i < rows; ++i, source += source_row, bytes += step) {
    narrow<S>(source, dtype, count, bytes);
  }
}

template <class S>
void hide(float* panel, int64_t row, int64_t rows, const uint32_t* bits, float value) {
  const auto other = S::set(value);
  for (int64_t i = 0; i < rows; ++i) {
    float* scores = panel + i * row;
    for (int64_t column = 0; column < kPanel; column += S::kWidth) {
      S::store(scores + column, S::select(bits[i] >> column, S::load(scores + column), other));
    }
  }
}

template <class S>
void shift(float* panel, int64_t row, int64_t rows, const uint32_t* bits, const float* values) {
  for (int64_t i = 0; i < rows; ++i) {
    float* scores = panel + i * row;
    const auto value = S::set(values[i]);
    for (int64_t column = 0; column < kPanel; column += S::kWidth) {
      const auto score = S::load(scores + column);
      S::store(scores + column, S::select(bits[i] >> column, S::add(score, value), score));
    }
  }
}

template <class S>
void sum_panel(const float* panel, int64_t row, int64_t rows, const uint32_t* bits, float* sums) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* values = panel + i * row;
    auto sum = S::zero();
    for (int64_t column = 0; column < kPanel; column += S::kWidth) {
      const auto value = S::load(values + column);
      sum = S::add(sum, bits == nullptr ? value : S::select(bits[i] >> column, value, S::zero()));
    }
    sums[i] += S::sum(sum);
  }
}

// The largest score of a row; NaN is passed over (its weight becomes NaN by itself).
template <class S>
inline float row_largest(const float* scores, int64_t columns) {
  auto even = S::set(-std::numeric_limits<float>::infinity()), odd = even;
  for (int64_t column = 0; column < columns; column += 2 * S::kWidth) {
    even = S::larger(S::load(scores + column), even);
    odd = S::larger(S::load(scores + column + S::kWidth), odd);
  }
  return S::largest(S::larger(even, odd));
}

// The same with a bias a panel.
template <class S>
inline float biased_largest(const float* scores, int64_t columns, const float* bias, int64_t bias_panel) {
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t panel = 0; panel < columns / kPanel; ++panel) {
    const float own = row_largest<S>(scores + panel * kPanel, kPanel) + bias[panel * bias_panel];
    largest = own > largest ? own : largest;
  }
  return largest;
}

template <class S, class Cells>
void softmax(const SoftmaxStep& step) {
  // Weights may grow to 2^8 before a row's reference moves: far from overflow, and most blocks move nothing.
  constexpr float kSlack = 8.0f;
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < step.rows; ++i) {
    float* scores = step.scores + i * step.score_row;
    const float* bias = step.bias == nullptr ? nullptr : step.bias + i * step.bias_row;
    const float block = bias == nullptr ? row_largest<S>(scores, step.columns)
                                        : biased_largest<S>(scores, step.columns, bias, step.bias_panel);
    if (step.largest[i] == kNone) {
      step.largest[i] = block;
    } else if ((block - step.largest[i]) * step.log2_scale > kSlack) {
      const float shrink = ::exp2f((step.largest[i] - block) * step.log2_scale);
      step.largest[i] = block;
      step.sum[i] *= shrink;
      float* output = step.output + i * step.output_row;
      for (int64_t c = 0; c < step.output_columns; c += S::kWidth) {
        S::store(output + c, S::mul(S::load(output + c), S::set(shrink)));
      }
    }
    const auto factor = S::set(step.log2_scale);
    // A row that sees nothing yet has scores of -inf, all of whose weights must be 0.
    const float reference = step.largest[i] == kNone ? 0.0f : -step.largest[i] * step.log2_scale;
    auto shift = S::set(reference);
    auto even = S::zero(), odd = S::zero();
    auto* cells = reinterpret_cast<Cell*>(scores);
    const uint32_t* keep = step.keep == nullptr ? nullptr : step.keep + i * step.keep_row;
    for (int64_t column = 0; column < step.columns; column += 2 * S::kWidth) {
      if (bias != nullptr && column % kPanel == 0) {
        shift = S::set(bias[column / kPanel * step.bias_panel] * step.log2_scale + reference);
      }
      auto low = power_of_two<S, Cells::kExpDegree>(S::fma(S::load(scores + column), factor, shift));
      auto high =
          power_of_two<S, Cells::kExpDegree>(S::fma(S::load(scores + column + S::kWidth), factor, shift));
      even = S::add(even, low);
      odd = S::add(odd, high);
      if (keep != nullptr) {
        const uint32_t bits = keep[column / kPanel] >> (column % kPanel);
        low = S::select(bits, low, S::zero());
        high = S::select(bits >> S::kWidth, high, S::zero());
      }
      Cells::write(cells, column, low, high);
    }
    step.sum[i] += S::sum(S::add(even, odd));
  }
}

template <class S, class Cells>
void weights(const WeightStep& step) {
  const auto factor = S::set(step.log2_scale);
  for (int64_t i = 0; i < step.rows; ++i) {
    float* scores = step.scores + i * step.score_row;
    const float* bias = step.bias == nullptr ? nullptr : step.bias + i * step.bias_row;
    auto shift = S::set(-step.log2_sum[i]);
    for (int64_t column = 0; column < step.columns; column += S::kWidth) {
      if (bias != nullptr && column % kPanel == 0) {
        shift = S::set(bias[column / kPanel * step.bias_panel] * step.log2_scale - step.log2_sum[i]);
      }
      S::store(scores + column,
               power_of_two<S, Cells::kExpDegree>(S::fma(S::load(scores + column), factor, shift)));
    }
  }
}

template <class S>
void score_gradient(const ScoreGradientStep& step) {
  const auto keep_scale = S::set(step.keep_scale);
  for (int64_t i = 0; i < step.rows; ++i) {
    float* weights = step.weights + i * step.row;
    float* gradient = step.gradient + i * step.row;
    const auto term = S::set(step.row_term[i]);
    const uint32_t* keep = step.keep == nullptr ? nullptr : step.keep + i * step.keep_row;
    for (int64_t column = 0; column < step.columns; column += S::kWidth) {
      const auto weight = S::load(weights + column);
      auto upstream = S::load(gradient + column);
      if (keep != nullptr) {
        const uint32_t bits = keep[column / kPanel] >> (column % kPanel);
        upstream = S::select(bits, S::mul(upstream, keep_scale), S::zero());
        S::store(weights + column, S::select(bits, S::mul(weight, keep_scale), S::zero()));
      }
      S::store(gradient + column, S::mul(weight, S::sub(upstream, term)));
    }
  }
}

// Philox4x32-10 as in core/philox.h, on 32 counters side by side so that the compiler can use vectors.
template <class S>
uint32_t keep_bits(uint64_t threshold, uint64_t seed, uint32_t batch_head, uint32_t row,
                   const int64_t* columns) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  // Where columns are neighbours from a multiple of 4, eight blocks serve all.
  const bool dense = columns[0] % 4 == 0 && columns[kPanel - 1] - columns[0] == kPanel - 1;
  const int blocks = dense ? 8 : 32;
  uint32_t x0[32], x1[32], x2[32], x3[32];
  for (int i = 0; i < blocks; ++i) {
    x0[i] = static_cast<uint32_t>(dense ? columns[0] / 4 + i : columns[i] / 4);
    x1[i] = row;
    x2[i] = batch_head;
    x3[i] = 0;
  }
  auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < blocks; ++i) {
      const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * x0[i];
      const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * x2[i];
      const uint32_t y0 = static_cast<uint32_t>(product1 >> 32) ^ x1[i] ^ key0;
      const uint32_t y2 = static_cast<uint32_t>(product0 >> 32) ^ x3[i] ^ key1;
      x1[i] = static_cast<uint32_t>(product1);
      x3[i] = static_cast<uint32_t>(product0);
      x0[i] = y0;
      x2[i] = y2;
    }
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  uint32_t bits = 0;
  for (int c = 0; c < 32; ++c) {
    const int block = dense ? c / 4 : c;
    const int64_t word = dense ? c % 4 : columns[c] % 4;
    const uint32_t drawn = word == 0 ? x0[block] : word == 1 ? x1[block] : word == 2 ? x2[block] : x3[block];
    bits |= static_cast<uint32_t>(drawn >= threshold) << c;
  }
  return bits;
}

template <class S>
void add_scaled(float* target, const float* source, float factor, int64_t count) {
  const auto weight = S::set(factor);
  int64_t i = 0;
  for (; i + S::kWidth <= count; i += S::kWidth) {
    S::store(target + i, S::fma(weight, S::load(source + i), S::load(target + i)));
  }
  for (; i < count; ++i) target[i] += factor * source[i];
}

template <class S>
void scale(float* values, float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] *= factor;
}

template <class S>
float dot(const float* a, const float* b, int64_t count) {
  auto sums = S::zero();
  int64_t i = 0;
  for (; i + S::kWidth <= count; i += S::kWidth) sums = S::fma(S::load(a + i), S::load(b + i), sums);
  float sum = S::sum(sums);
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

template <class S>
void dot_lanes(const float* a, const float* b, int64_t count, float* lanes) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int64_t lane = 0; lane < 16; lane += S::kWidth) {
      S::store(lanes + lane, S::fma(S::load(a + i + lane), S::load(b + i + lane), S::load(lanes + lane)));
    }
  }
  for (; i < count; ++i) lanes[i % 16] += a[i] * b[i];
}

template <class Cells>
bool finite(const float* values, int64_t count) {
  // Half a step past the largest bfloat16, which rounds up; infinity.
  constexpr int32_t kNotFinite = Cells::kPairs ? 0x7f7f8000 : 0x7f800000;
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    int32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    const int32_t size = bits & 0x7fffffff;
    largest = size > largest ? size : largest;
  }
  return largest < kNotFinite;
}

template <class S>
void rotate(float* row, const double* coarse, const double* fine, int64_t pairs, RopeStyle style, bool back) {
  const double *coarse_sine = coarse + pairs, *fine_sine = fine + pairs;
  const double direction = back ? -1.0 : 1.0;
  const int64_t low_step = style == RopeStyle::kHalf ? 1 : 2, high = style == RopeStyle::kHalf ? pairs : 1;
  for (int64_t c = 0; c < pairs; ++c) {
    const auto cosine = static_cast<float>(coarse[c] * fine[c] - coarse_sine[c] * fine_sine[c]);
    const auto sine = static_cast<float>(direction * (coarse_sine[c] * fine[c] + coarse[c] * fine_sine[c]));
    const float a = row[c * low_step], b = row[c * low_step + high];
    row[c * low_step] = a * cosine - b * sine;
    row[c * low_step + high] = a * sine + b * cosine;
  }
}

inline void no_tiles() {}

template <class S, class Cells>
constexpr Primitives make_primitives() {
  return {.pairs = Cells::kPairs,
          .group_rows = S::kGroupRows,
          .begin_task = no_tiles,
          .end_task = no_tiles,
          .multiply = multiply<S, Cells>,
          .multiply_float = multiply<S, FloatCells<S>>,
          .score_rows = score_rows<S, Cells>,
          .weigh_rows = weigh_rows<S, Cells>,
          .transpose = transpose<S>,
          .widen = widen<S>,
          .narrow = narrow<S>,
          .widen_rows = widen_rows<S>,
          .narrow_rows = narrow_rows<S>,
          .pack_along = Cells::pack_along,
          .pack_across = Cells::pack_across,
          .hide = hide<S>,
          .shift = shift<S>,
          .sum_panel = sum_panel<S>,
          .softmax = softmax<S, Cells>,
          .weights = weights<S, Cells>,
          .score_gradient = score_gradient<S>,
          .keep_bits = keep_bits<S>,
          .add_scaled = add_scaled<S>,
          .scale = scale<S>,
          .dot = dot<S>,
          .dot_lanes = dot_lanes<S>,
          .finite = finite<Cells>,
          .rotate = rotate<S>};
}

}  // namespace
}  // namespace iha::cpu
