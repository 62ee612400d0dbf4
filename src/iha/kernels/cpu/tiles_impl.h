// Products of pairs of bfloat16 in the processor's tiles (AMX), written once over a policy of tile
// operations: the instructions, or plain code that computes the same, with which machines without AMX test
// this. Included by one translation unit a policy, each compiled for AVX-512 BF16, whose table serves for
// everything else.
//
// A tile is 16 rows of 16 cells, and a Product's operands in memory are such tiles. Eight fit: sums of up to
// 32 rows x 32 columns in tiles 0 to 3 (upper left, upper right, lower left, lower right), the left operand's
// rows in 4 and 5, the right one's columns in 6 and 7. A step of 16 cells of depth is four loads, 8 cycles
// each, and four products, 16 cycles each, on independent sums.
//
// Every tile is used whole, so that one configuration serves a task. What is not there whole is copied with
// zeros around it; between 16 and 32 rows the lower tile ends with the last row and computes some rows of the
// upper one again, to the same bits.
//
// Each step sums its 32 products apart, even and odd ones, before c takes them. Bits therefore depend on
// where steps begin: at every 16th cell of depth, whatever the number of rows and columns, so that a row has
// the same bits in any tile. A product cut at a multiple of 16 cells, such as a panel of keys, gives the bits
// of the whole.
#pragma once

#include "iha/kernels/cpu/bfloat16_cells.h"
#include "iha/kernels/cpu/primitives_impl.h"
#include "iha/kernels/cpu/simd_avx512.h"

namespace iha::cpu {
namespace {

constexpr int64_t kTile = 16;  // rows of a tile, cells of its rows
constexpr int64_t kTileGroupRows = 2 * kTile;
constexpr int64_t kCopyDepth =
    64;  // cells of the left operand's rows that are copied at once: 8 KB for 32 rows

// 16 x 16 cells of which rows x cells exist, the others 0.
inline void copy_tile(const Cell* source, int64_t row, int64_t rows, int64_t cells, Cell* target,
                      int64_t target_row) {
  const auto mask = static_cast<__mmask16>(cells < kTile ? (1u << cells) - 1 : 0xffffu);
  for (int64_t i = 0; i < kTile; ++i) {
    const __m512i values =
        i < rows ? _mm512_maskz_loadu_epi32(mask, source + i * row) : _mm512_setzero_si512();
    _mm512_storeu_si512(target + i * target_row, values);
  }
}

// The left operand of a product of at most 32 rows and kCopyDepth cells, as whole tiles in rows of
// kCopyDepth.
inline void copy_left(const Product& p, Cell* copy) {
  for (int64_t i = 0; i < p.rows; i += kTile) {
    for (int64_t k = 0; k < p.depth; k += kTile) {
      const Cell* source = p.a + i * p.a_row + k * p.a_depth;
      Cell* target = copy + i * kCopyDepth + k;
      if (p.a_depth == 1) {
        copy_tile(source, p.a_row, p.rows - i, p.depth - k, target, kCopyDepth);
      } else if (p.rows - i >= kTile && p.depth - k >= kTile) {
        Avx512::transpose_block(source, p.a_depth, target, kCopyDepth);
      } else {
        alignas(64) Cell turned[kTile * kTile];
        copy_tile(source, p.a_depth, p.depth - k, p.rows - i, turned, kTile);
        Avx512::transpose_block(turned, kTile, target, kCopyDepth);
      }
    }
  }
}

// Up to 2 x 2 tiles of c, whole in memory.
struct TileBlock {
  const Cell *upper, *lower;  // rows of the left operand
  int64_t left_row;
  const Cell* right;
  int64_t right_row;
  const Cell* last;  // [16][32] cells of the right operand for the last step; null: where all others are
  int64_t steps;
  float *c, *c_lower;
  int64_t c_row;
  bool accumulate;
};

template <class Tiles, bool kLower, bool kSecond>
inline void multiply_block(const TileBlock& block) {
  constexpr int64_t kBytes = sizeof(Cell);
  const int64_t left_row = block.left_row * kBytes, c_row = block.c_row * kBytes;
  int64_t right_row = block.right_row * kBytes;
  if (block.accumulate) {
    Tiles::template load<0>(block.c, c_row);
    if constexpr (kSecond) Tiles::template load<1>(block.c + kTile, c_row);
    if constexpr (kLower) Tiles::template load<2>(block.c_lower, c_row);
    if constexpr (kLower && kSecond) Tiles::template load<3>(block.c_lower + kTile, c_row);
  } else {
    Tiles::template zero<0>();
    if constexpr (kSecond) Tiles::template zero<1>();
    if constexpr (kLower) Tiles::template zero<2>();
    if constexpr (kLower && kSecond) Tiles::template zero<3>();
  }
  const Cell *upper = block.upper, *lower = block.lower, *right = block.right, *last = block.last;
  const int64_t right_step = kTile * block.right_row;
  for (int64_t left = block.steps; left > 0; --left) {
    if (left == 1 && last != nullptr) {
      right = last;
      right_row = kPanel * kBytes;
    }
    Tiles::template load<6>(right, right_row);
    Tiles::template load<4>(upper, left_row);
    Tiles::template dot<0, 4, 6>();
    if constexpr (kSecond) {
      Tiles::template load<7>(right + kTile, right_row);
      Tiles::template dot<1, 4, 7>();
    }
    if constexpr (kLower) {
      Tiles::template load<5>(lower, left_row);
      Tiles::template dot<2, 5, 6>();
    }
    if constexpr (kLower && kSecond) Tiles::template dot<3, 5, 7>();
    upper += kTile;
    lower += kTile;
    right += right_step;
  }
  Tiles::template store<0>(block.c, c_row);
  if constexpr (kSecond) Tiles::template store<1>(block.c + kTile, c_row);
  if constexpr (kLower) Tiles::template store<2>(block.c_lower, c_row);
  if constexpr (kLower && kSecond) Tiles::template store<3>(block.c_lower + kTile, c_row);
}

template <class Tiles>
inline void multiply_block(const TileBlock& block, bool lower, bool second) {
  if (lower) {
    return second ? multiply_block<Tiles, true, true>(block) : multiply_block<Tiles, true, false>(block);
  }
  return second ? multiply_block<Tiles, false, true>(block) : multiply_block<Tiles, false, false>(block);
}

// At most 32 rows, whose left operand lies in whole tiles.
template <class Tiles>
inline void multiply_tile_rows(const Product& p) {
  alignas(64) Cell last[kTile * kPanel];
  alignas(64) float few[kTile * kPanel];  // stands in for c where that has less than a tile of rows
  const bool is_few = p.rows<kTile, lower = p.rows> kTile;
  const int64_t rest = p.depth % kTile, lower_row = lower ? p.rows - kTile : 0;
  for (int64_t column = 0; column < p.columns; column += kPanel) {
    const int64_t columns = p.columns - column < kPanel ? p.columns - column : kPanel;
    const Cell* right = p.b + column / kPanel * p.b_panel;
    float* c = p.c + column;
    for (int64_t i = 0; i < columns; i += kTile) {
      if (rest > 0) {
        copy_tile(right + (p.depth - rest) * p.b_depth + i, p.b_depth, rest, kTile, last + i, kPanel);
      }
      if (is_few && p.accumulate) {
        copy_tile(reinterpret_cast<const Cell*>(c + i), p.c_row, p.rows, kTile,
                  reinterpret_cast<Cell*>(few + i), kPanel);
      }
    }
    const TileBlock block{.upper = p.a,
                          .lower = p.a + lower_row * p.a_row,
                          .left_row = p.a_row,
                          .right = right,
                          .right_row = p.b_depth,
                          .last = rest > 0 ? last : nullptr,
                          .steps = (p.depth + kTile - 1) / kTile,
                          .c = is_few ? few : c,
                          .c_lower = c + lower_row * p.c_row,
                          .c_row = is_few ? kPanel : p.c_row,
                          .accumulate = p.accumulate};
    multiply_block<Tiles>(block, lower, columns > kTile);
    for (int64_t i = 0; is_few && i < p.rows; ++i) {
      for (int64_t at = 0; at < columns; at += kTile) {
        Avx512::store(c + i * p.c_row + at, Avx512::load(few + i * kPanel + at));
      }
    }
  }
}

template <class Tiles>
void multiply_by_tiles(const Product& all) {
  alignas(64) Cell copy[kTileGroupRows * kCopyDepth];
  for (int64_t row = 0; row < all.rows; row += kTileGroupRows) {
    Product p = all;
    p.rows = all.rows - row < kTileGroupRows ? all.rows - row : kTileGroupRows;
    p.c += row * p.c_row;
    const Cell* a = all.a + row * all.a_row;
    const bool copies = p.rows < kTile || all.a_depth != 1 || all.depth % kTile != 0;
    const int64_t step = copies ? kCopyDepth : all.depth;
    int64_t begin = 0;
    do {
      p.depth = all.depth - begin < step ? all.depth - begin : step;
      p.a = a + begin * all.a_depth;
      p.a_row = all.a_row;
      if (copies) {
        copy_left(p, copy);
        p.a = copy;
        p.a_row = kCopyDepth;
      }
      multiply_tile_rows<Tiles>(p);
      p.b += step * p.b_depth;
      p.accumulate = true;
      begin += step;
    } while (begin < all.depth);
  }
}

template <class Tiles>
constexpr Primitives make_tile_primitives() {
  Primitives table = make_primitives<Avx512, BFloat16Cells>();
  table.group_rows = kTileGroupRows;
  table.begin_task = Tiles::configure;
  table.end_task = Tiles::release;
  table.multiply = multiply_by_tiles<Tiles>;
  return table;
}

}  // namespace
}  // namespace iha::cpu
