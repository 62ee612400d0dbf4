// See random_state.h.
#include "iha/train/random_state.h"

#include <ATen/Context.h>

#include <mutex>

namespace iha::train {

torch::Tensor random_state() {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(const torch::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::scoped_lock lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace iha::train
