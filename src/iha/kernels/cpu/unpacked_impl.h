// Products of a few query rows with keys and values where they lie in memory: every byte is read once and
// nothing is packed, which is what counts when the memory's bandwidth is the limit. Written once over a
// vector class and a format of rows, as primitives_impl.h, and included by it alone.
#pragma once

#include <cstring>

#include "iha/kernels/cpu/primitives.h"

namespace iha::cpu {
namespace {

// Formats of rows: `kElements` neighbouring channels make one vector of cells (`load`), the operand of sums
// over channels. For sums over keys `spread` makes operands of `kKeys` rows: `kVectors` vectors, whose sums
// lie in the output as `load_sums` and `store_sums` say.
template <class S, class Type>
struct WideRows {
  using Element = Type;
  using Float = typename S::Float;
  static constexpr int kElements = S::kWidth, kKeys = 1, kVectors = 1;

  static Float multiply_add(Float a, Float b, Float sum) { return S::fma(a, b, sum); }
  static void load_sums(const float* output, Float* sums) { sums[0] = S::load(output); }
  static void store_sums(float* output, const Float* sums) { S::store(output, sums[0]); }
};
template <class S>
struct FloatRows : WideRows<S, float> {
  static typename S::Float load(const float* row) { return S::load(row); }
  static void spread(const float* row, int64_t, typename S::Float* cells) { cells[0] = load(row); }
};
template <class S>
struct BFloat16Rows : WideRows<S, uint16_t> {
  static typename S::Float load(const uint16_t* row) { return S::widen_bfloat16(row); }
  static void spread(const uint16_t* row, int64_t, typename S::Float* cells) { cells[0] = load(row); }
};
template <class S>
struct Float16Rows : WideRows<S, uint16_t> {
  static typename S::Float load(const uint16_t* row) { return S::widen_float16(row); }
  static void spread(const uint16_t* row, int64_t, typename S::Float* cells) { cells[0] = load(row); }
};

// The pieces of an Ahead, one after the other. Into L2: into L1 it gains nothing (measured with 128
// channels).
template <class Element>
class Pieces {
 public:
  Pieces(const Ahead& ahead, int64_t width)
      : row_(static_cast<const Element*>(ahead.rows)),
        step_(ahead.row),
        width_(width),
        row_width_(ahead.pieces * width),
        column_(ahead.first % ahead.pieces * width) {
    row_ += ahead.first / ahead.pieces * ahead.row;
  }
  // Channels [begin, end) of the next piece.
  void prefetch_next(int64_t begin, int64_t end) {
    constexpr int64_t kLine = 64 / sizeof(Element);
    for (int64_t c = begin; c < end; c += kLine) {
      __builtin_prefetch(row_ + column_ + c, /*write=*/0, /*locality, L2:*/ 2);
    }
    column_ += width_;
    if (column_ == row_width_) {
      column_ = 0;
      row_ += step_;
    }
  }

 private:
  const Element* row_;
  int64_t step_, width_, row_width_, column_;
};

// Register tiles: kRows x (S::kWidth / kRows keys) sums of vectors, turned into one vector of scores at the
// end. The largest kRows is that of a group of rows: 8 where vectors have 16 lanes, else 4.
template <class S, class Rows, int kRows, bool kAhead>
inline void score_tile(const RowScores& s, int64_t row, int64_t key, const typename Rows::Element* tail,
                       Pieces<typename Rows::Element>& pieces) {
  using Float = typename S::Float;
  constexpr int kTile = S::kWidth / kRows;
  const typename Rows::Element *source[kTile], *tails[kTile];
#pragma GCC unroll 16
  for (int k = 0; k < kTile; ++k) {
    const int64_t at = key + k < s.count ? key + k : s.count - 1;  // past the end: the last one again
    source[k] = static_cast<const typename Rows::Element*>(s.keys) + at * s.key_row;
    tails[k] = tail + at * Rows::kElements;
  }
  Float sums[kRows * kTile];
#pragma GCC unroll 16
  for (int i = 0; i < kRows * kTile; ++i) sums[i] = S::zero();
  const Cell* queries = s.queries + row * s.query_row;
  const auto add = [&](const typename Rows::Element* const* from, int64_t at, const Cell* cells) {
    Float right[kTile];
#pragma GCC unroll 16
    for (int k = 0; k < kTile; ++k) right[k] = Rows::load(from[k] + at);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Float left = S::load(cells + i * s.query_row);
#pragma GCC unroll 16
      for (int k = 0; k < kTile; ++k) {
        sums[i * kTile + k] = Rows::multiply_add(left, right[k], sums[i * kTile + k]);
      }
    }
  };
  if constexpr (kAhead) {
    for (int k = 0; k < kTile; ++k) pieces.prefetch_next(0, s.width);
  }
  int64_t c = 0;
  for (; c + Rows::kElements <= s.width; c += Rows::kElements, queries += S::kWidth) {
    add(source, c, queries);
  }
  if (c < s.width) add(tails, 0, queries);
  float scores[S::kWidth];
  S::store(scores, S::sums(sums));
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    std::memcpy(s.scores + (row + i) * s.score_row + key, scores + i * kTile, kTile * sizeof(float));
  }
}

template <class S, class Rows, int kRows>
inline void score_group(const RowScores& s, int64_t row, const typename Rows::Element* tail,
                        Pieces<typename Rows::Element>& pieces) {
  for (int64_t key = 0; key < s.count; key += S::kWidth / kRows) {
    if (row == 0 && s.ahead.rows != nullptr) {
      score_tile<S, Rows, kRows, true>(s, row, key, tail, pieces);
    } else {
      score_tile<S, Rows, kRows, false>(s, row, key, tail, pieces);
    }
  }
}

// Channels past the last whole vector of `count` rows, in rows of a vector, the rest 0.
template <class Rows>
inline void copy_tail(const typename Rows::Element* rows, int64_t row, int64_t count, int64_t width,
                      typename Rows::Element* tail) {
  const int64_t rest = width % Rows::kElements;
  std::memset(tail, 0, count * Rows::kElements * sizeof(*tail));
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(tail + i * Rows::kElements, rows + i * row + width - rest, rest * sizeof(*tail));
  }
}

template <class S, class Rows>
void score_rows_of(const RowScores& all) {
  using Element = typename Rows::Element;
  Element tail[kPanel * Rows::kElements];
  Pieces<Element> pieces(all.ahead, all.width);
  // By panels, so that every group of rows but the first finds them in L1.
  for (int64_t begin = 0; begin < all.count; begin += kPanel) {
    const Element* keys = static_cast<const Element*>(all.keys) + begin * all.key_row;
    RowScores s = all;
    s.count = all.count - begin < kPanel ? all.count - begin : kPanel;
    s.keys = keys;
    s.scores += begin;
    if (s.width % Rows::kElements != 0) copy_tail<Rows>(keys, s.key_row, s.count, s.width, tail);
    for (int64_t row = 0; row < s.rows;) {
      const int64_t left = s.rows - row;
      if constexpr (S::kGroupRows >= 8) {
        if (left >= 8) {
          score_group<S, Rows, 8>(s, row, tail, pieces);
          row += 8;
          continue;
        }
      }
      if (left >= 4) {
        score_group<S, Rows, 4>(s, row, tail, pieces);
        row += 4;
      } else if (left >= 2) {
        score_group<S, Rows, 2>(s, row, tail, pieces);
        row += 2;
      } else {
        score_group<S, Rows, 1>(s, row, tail, pieces);
        row += 1;
      }
    }
  }
}

// kRows x (kUnits * Rows::kVectors) sums over one panel of keys, in the order of the keys.
template <class S, class Rows, int kRows, int kUnits, bool kAhead>
inline void weigh_tile(const typename Rows::Element* values, int64_t value_row, const Cell* weights,
                       int64_t weight_row, float* output, int64_t output_row,
                       Pieces<typename Rows::Element> pieces, int64_t c) {
  using Float = typename S::Float;
  constexpr int kVectors = kUnits * Rows::kVectors;
  Float sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int u = 0; u < kUnits; ++u) {
      Rows::load_sums(output + i * output_row + u * Rows::kElements, &sums[i][u * Rows::kVectors]);
    }
  }
  for (int64_t key = 0; key < kPanel; key += Rows::kKeys) {
    if constexpr (kAhead) {
#pragma GCC unroll 2
      for (int k = 0; k < Rows::kKeys; ++k) pieces.prefetch_next(c, c + kUnits * Rows::kElements);
    }
    Float right[kVectors];
#pragma GCC unroll 8
    for (int u = 0; u < kUnits; ++u) {
      Rows::spread(values + u * Rows::kElements, value_row, right + u * Rows::kVectors);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Float left = S::broadcast(weights + i * weight_row);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[i][v] = Rows::multiply_add(left, right[v], sums[i][v]);
    }
    values += Rows::kKeys * value_row;
    ++weights;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int u = 0; u < kUnits; ++u) {
      Rows::store_sums(output + i * output_row + u * Rows::kElements, &sums[i][u * Rows::kVectors]);
    }
  }
}

// The columns from `c` on in tiles of kUnits, then of half as many; returns the first of the tail.
template <class S, class Rows, int kRows, int kUnits>
inline int64_t weigh_columns(const RowSums& s, const typename Rows::Element* values, const Cell* weights,
                             float* output, int64_t c, bool ahead,
                             const Pieces<typename Rows::Element>& pieces) {
  for (; c + kUnits * Rows::kElements <= s.width; c += kUnits * Rows::kElements) {
    if (ahead) {
      weigh_tile<S, Rows, kRows, kUnits, true>(values + c, s.value_row, weights, s.weight_row, output + c,
                                               s.output_row, pieces, c);
    } else {
      weigh_tile<S, Rows, kRows, kUnits, false>(values + c, s.value_row, weights, s.weight_row, output + c,
                                                s.output_row, pieces, c);
    }
  }
  if constexpr (kUnits > 1) {
    return weigh_columns<S, Rows, kRows, kUnits / 2>(s, values, weights, output, c, ahead, pieces);
  } else {
    return c;
  }
}

template <class S, class Rows, int kRows>
inline void weigh_group(const RowSums& s, const typename Rows::Element* values, int64_t row, int64_t panel,
                        const typename Rows::Element* tail, const Pieces<typename Rows::Element>& pieces) {
  // As many sums as keep registers for the operands: 16 of 32, 8 of 16; 8 of them cover the latency.
  constexpr int kSums = S::kWidth / kRows < 8 ? S::kWidth / kRows : 8;
  constexpr int kUnits = kSums / Rows::kVectors;
  const Cell* weights = s.weights + row * s.weight_row + panel * (kPanel / Rows::kKeys);
  float* output = s.output + row * s.output_row;
  const bool ahead = row == 0 && s.ahead.rows != nullptr;
  const int64_t c = weigh_columns<S, Rows, kRows, kUnits>(s, values, weights, output, 0, ahead, pieces);
  if (c == s.width) return;
  const int64_t bytes = (s.width - c) * static_cast<int64_t>(sizeof(float));
  float sums[kRows * Rows::kElements] = {};
  for (int i = 0; i < kRows; ++i)
    std::memcpy(sums + i * Rows::kElements, output + i * s.output_row + c, bytes);
  weigh_tile<S, Rows, kRows, 1, false>(tail, Rows::kElements, weights, s.weight_row, sums, Rows::kElements,
                                       pieces, 0);
  for (int i = 0; i < kRows; ++i)
    std::memcpy(output + i * s.output_row + c, sums + i * Rows::kElements, bytes);
}

template <class S, class Rows>
void weigh_rows_of(const RowSums& s) {
  using Element = typename Rows::Element;
  Element tail[kPanel * Rows::kElements];
  for (int64_t panel = 0; panel < s.panels; ++panel) {
    const Element* values = static_cast<const Element*>(s.values) + panel * kPanel * s.value_row;
    Ahead ahead = s.ahead;
    ahead.first += panel * kPanel;
    const Pieces<Element> pieces(ahead, s.width);
    if (s.width % Rows::kElements != 0) copy_tail<Rows>(values, s.value_row, kPanel, s.width, tail);
    for (int64_t row = 0; row < s.rows;) {
      const int64_t left = s.rows - row;
      if constexpr (S::kGroupRows >= 8) {
        if (left >= 8) {
          weigh_group<S, Rows, 8>(s, values, row, panel, tail, pieces);
          row += 8;
          continue;
        }
      }
      if (left >= 4) {
        weigh_group<S, Rows, 4>(s, values, row, panel, tail, pieces);
        row += 4;
      } else if (left >= 2) {
        weigh_group<S, Rows, 2>(s, values, row, panel, tail, pieces);
        row += 2;
      } else {
        weigh_group<S, Rows, 1>(s, values, row, panel, tail, pieces);
        row += 1;
      }
    }
  }
}

template <class S, class Cells>
void score_rows(const RowScores& s) {
  if constexpr (Cells::kPairs) {
    score_rows_of<S, typename Cells::Rows>(s);
  } else {
    if (s.dtype == DType::kFloat32) return score_rows_of<S, FloatRows<S>>(s);
    if (s.dtype == DType::kBFloat16) return score_rows_of<S, BFloat16Rows<S>>(s);
    return score_rows_of<S, Float16Rows<S>>(s);
  }
}

template <class S, class Cells>
void weigh_rows(const RowSums& s) {
  if constexpr (Cells::kPairs) {
    weigh_rows_of<S, typename Cells::Rows>(s);
  } else {
    if (s.dtype == DType::kFloat32) return weigh_rows_of<S, FloatRows<S>>(s);
    if (s.dtype == DType::kBFloat16) return weigh_rows_of<S, BFloat16Rows<S>>(s);
    return weigh_rows_of<S, Float16Rows<S>>(s);
  }
}

}  // namespace
}  // namespace iha::cpu
