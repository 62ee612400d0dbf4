// What the trainer asks of a model and its data: the loss of a numbered batch, and metrics on held-out data.
// Batches are numbered, not iterated: the number alone decides the content, so the data's position in a
// checkpoint is one integer and looking at data never moves a random state.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace iha::train {

// The mean loss over `tokens` things that count (cells, bytes). With no such thing the mean is not read.
struct Loss {
  torch::Tensor mean;  // scalar, differentiable
  int64_t tokens = 0;
};

struct Metric {
  std::string name;
  double value = 0;
  bool higher_is_better = false;
};

class Objective {
 public:
  virtual ~Objective() = default;
  // The loss of batch `batch` (0, 1, 2, ...) in training mode.
  virtual Loss loss(int64_t batch) = 0;
  // Metrics on validation data, without gradients; the first one decides which checkpoint is best.
  virtual std::vector<Metric> evaluate() = 0;
};

}  // namespace iha::train
