// Visiting the elements of a strided array. Private to kernels/.
#pragma once

#include <cstdint>
#include <span>

namespace iha::core {

// Calls visit(n, place) for the n-th element in row-major order and its place in the array, from place
// `offset` on; returns n after the last. `n` is that of the first.
template <class Visit>
int64_t walk(std::span<const int64_t> shape, std::span<const int64_t> strides, int64_t offset, int64_t n,
             const Visit& visit) {
  if (shape.empty()) {
    visit(n, offset);
    return n + 1;
  }
  for (int64_t index = 0; index < shape[0]; ++index) {
    n = walk(shape.subspan(1), strides.subspan(1), offset + index * strides[0], n, visit);
  }
  return n;
}

}  // namespace iha::core
