// A pattern scaled down to a picture: the share of visible pairs in each cell. Not here: drawing (report/).
#pragma once

#include <cstdint>
#include <vector>

#include "iha/patterns/pattern.h"

namespace iha {

// Self-attention of one sequence cut into `side` x `side` cells of `block` x `block` tokens (the last ones
// may be smaller).
struct Coverage {
  int64_t block = 1;
  int64_t side = 0;
  std::vector<double> share;  // [side * side], row = queries: 0 nothing visible .. 1 everything
};

// At most `cells` cells a side. Tiles that are absent or full are not looked into; partial ones take
// O(block). Throws std::invalid_argument if tokens < 0 or cells < 1.
Coverage coverage(const Pattern& pattern, int64_t tokens, int64_t cells);

}  // namespace iha
