// RoPE of rows that do not go through the operator's own (`rope` of iha::attention), in torch operations with
// gradients: keys that are cached turned, and parts of a head's channels.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "iha/core/rope.h"

namespace iha::nn {

// x [.., N, r] turned: row n to position `position` + n, all r channels (r even, 0 too), by the formulas of
// docs/operator.md. Angles are formed in float64; sines and cosines are float64 for float64 inputs, else
// float32, and 16-bit results are rounded once.
torch::Tensor rotate(const torch::Tensor& x, int64_t position, double theta, RopeStyle style);

}  // namespace iha::nn
