// Memory of one worker or one call: aligned to cache lines, grows, is not initialised.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

namespace iha::cpu {

template <class T>
class Buffer {
 public:
  // At least `count` elements; what they hold is lost when the buffer grows.
  T* ensure(int64_t count) {
    if (count > size_) {
      memory_.reset();
      memory_.reset(static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{64})));
      size_ = count;
    }
    return memory_.get();
  }
  T* get() const { return memory_.get(); }

 private:
  struct Delete {
    void operator()(T* memory) const { ::operator delete (memory, std::align_val_t{64}); }
  };
  std::unique_ptr<T, Delete> memory_;
  int64_t size_ = 0;
};

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr int64_t divide_up(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

}  // namespace iha::cpu
