// torch's CPU generator as a tensor: saved in checkpoints, and put back after work that must not move it.
#pragma once

#include <torch/types.h>

namespace iha::train {

torch::Tensor random_state();  // uint8 [bytes]
// Throws c10::Error for a tensor that is no generator's state.
void set_random_state(const torch::Tensor& state);

// Puts the generator back, at the end of a scope, to where it was at its beginning.
class RandomStateGuard {
 public:
  RandomStateGuard() : state_(random_state()) {}
  ~RandomStateGuard() { set_random_state(state_); }
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;

 private:
  torch::Tensor state_;
};

}  // namespace iha::train
