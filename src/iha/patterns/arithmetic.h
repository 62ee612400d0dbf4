// Integer arithmetic on token positions that patterns, counts and tiles share: division that rounds down,
// sums that saturate (windows may be Pattern::kUnbounded), numbers of multiples. Positions themselves stay
// within +-2^62.
#pragma once

#include <cstdint>
#include <limits>

namespace iha {

// x mod k in [0, k), k >= 1.
inline int64_t floor_mod(int64_t x, int64_t k) {
  const int64_t remainder = x % k;
  return remainder < 0 ? remainder + k : remainder;
}

inline int64_t floor_div(int64_t x, int64_t k) {
  return x / k - (x % k < 0 ? 1 : 0);
}

// a + b and a - b for b >= 0, held at the ends of int64.
inline int64_t add_saturated(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}
inline int64_t subtract_saturated(int64_t a, int64_t b) {
  int64_t difference = 0;
  return __builtin_sub_overflow(a, b, &difference) ? std::numeric_limits<int64_t>::min() : difference;
}

// How many multiples of k lie in [begin, end).
inline int64_t multiples_in(int64_t begin, int64_t end, int64_t k) {
  return end <= begin ? 0 : floor_div(end - 1, k) - floor_div(begin - 1, k);
}

}  // namespace iha
