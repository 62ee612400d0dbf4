// A file of its own: inlined into its callers, these look like a mismatch to the compiler.
#include "tests/io/largest_allocation.h"

#include <cstdlib>
#include <new>

void* operator new(std::size_t size) {
  std::size_t known = iha::largest_allocation;
  while (known < size && !iha::largest_allocation.compare_exchange_weak(known, size)) {
  }
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
