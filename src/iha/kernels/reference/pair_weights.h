// The weights w that learned and dynamic heads put on pairs: a bias ln w on their scores. Private to
// kernels/reference/.
#pragma once

#include <cstdint>
#include <vector>

#include "iha/kernels/problem.h"
#include "iha/kernels/reference/reference.h"

namespace iha::reference {

// Throws std::invalid_argument, naming `operator_name`, for weights that are absent where a head needs them,
// or refused by check_weight.
void check_weights(const Problem& problem, const Inputs& inputs, std::string_view operator_name);

// Of one sequence, whose slices `inputs` holds.
class PairWeights {
 public:
  PairWeights(const Problem& problem, const Inputs& inputs) : problem_(problem), inputs_(inputs) {}

  // w of a pair of head h, query i and key j that `candidates` (Visibility::candidates) show: the sum of
  // their mode weights, the block's weight, or 1.
  double weight(int64_t h, int64_t i, int64_t j, uint32_t candidates) const;
  // Adds what a gradient `bias` of ln w gives these weights: bias / w to each that is part of w.
  void add_gradient(int64_t h, int64_t i, int64_t j, uint32_t candidates, double bias,
                    Gradients& gradients) const;

 private:
  int64_t block_at(int64_t h, int64_t i, int64_t j) const;

  const Problem& problem_;
  const Inputs& inputs_;
};

}  // namespace iha::reference
