// Part 3 of the backward pass: from gradients of the rows of one head to those of tokens.
#include <algorithm>

#include "iha/kernels/cpu/backward_parts.h"

namespace iha::cpu {

TokenGradients::TokenGradients(const Plan& plan) : plan_(plan), reader_(plan) {}

void TokenGradients::run(const Unmix& unmix, int64_t batch, int64_t begin, int64_t end, int64_t tokens,
                         int64_t position) {
  const Primitives& prim = plan_.primitives;
  const RowSource& source = *unmix.source;
  const int64_t pseudo_heads = plan_.problem.pseudo_heads, columns = unmix.columns, heads = source.heads;
  const bool mixes = !source.alpha->empty();
  float* rows = rows_.ensure(pseudo_heads * columns);
  for (int64_t token = begin; token < end; ++token) {
    const int64_t size = pseudo_heads * columns;
    std::copy_n(unmix.rows + (token - unmix.rows_begin) * size, size, rows);
    for (int64_t p = 0; p < pseudo_heads && source.turns; ++p) {
      reader_.turn(rows + p * columns, position + token, p, /*back=*/true);
    }
    float* sums = unmix.sums + token * columns;
    if (!mixes) {
      for (int64_t p = 0; p < pseudo_heads; ++p) {
        prim.add_scaled(sums + (unmix.head - unmix.head_begin) * tokens * columns, rows + p * columns, 1.0f,
                        columns);
      }
      continue;
    }
    // [heads, pseudo-heads] times [pseudo-heads, channels].
    prim.multiply_float({.rows = heads,
                         .columns = columns,
                         .depth = pseudo_heads,
                         .a = reinterpret_cast<const Cell*>(source.alpha->data() + unmix.head * pseudo_heads),
                         .a_row = heads * pseudo_heads,
                         .a_depth = 1,
                         .b = reinterpret_cast<const Cell*>(rows),
                         .b_depth = columns,
                         .b_panel = kPanel,
                         .c = sums,
                         .c_row = tokens * columns,
                         .accumulate = true});
    if (unmix.alpha_lanes == nullptr) continue;
    const HeadRows inputs = reader_.heads(source, batch, token);
    for (int64_t p = 0; p < pseudo_heads; ++p) {
      // A row without gradient takes no part, whatever its token holds: NaN in a key that nobody sees.
      const float* row = rows + p * columns;
      if (std::all_of(row, row + columns, [](float value) { return value == 0.0f; })) continue;
      for (int64_t m = 0; m < heads; ++m) {
        prim.dot_lanes(inputs.data + m * inputs.row, row, columns,
                       unmix.alpha_lanes + (m * pseudo_heads + p) * 16);
      }
    }
  }
}

}  // namespace iha::cpu
