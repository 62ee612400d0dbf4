// RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight over the last axis, computed in float32 at least. And the
// choice of a norm by name that blocks and models share.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>

namespace iha::nn {

struct RMSNormOptions {
  explicit RMSNormOptions(int64_t width) : width_(width) {}
  TORCH_ARG(int64_t, width);
  TORCH_ARG(double, eps) = 1e-5;
};

class RMSNormImpl : public torch::nn::Cloneable<RMSNormImpl> {
 public:
  explicit RMSNormImpl(int64_t width) : RMSNormImpl(RMSNormOptions(width)) {}
  // Throws c10::ValueError for a width below 1 or eps not a positive number.
  explicit RMSNormImpl(RMSNormOptions options);

  void reset() override;
  void reset_parameters();  // weight = 1
  void pretty_print(std::ostream& stream) const override;
  // x [.., width] -> the same shape and dtype.
  torch::Tensor forward(const torch::Tensor& x);

  RMSNormOptions options;
  torch::Tensor weight;  // [width]
};
TORCH_MODULE(RMSNorm);

// `kind`: "rms" -> RMSNorm, "layer" -> torch::nn::LayerNorm with scale and shift. Throws c10::ValueError for
// others.
torch::nn::AnyModule make_norm(const std::string& kind, int64_t width, double eps = 1e-5);
void reset_norm(torch::nn::AnyModule& norm);  // of make_norm: scale 1, shift 0

}  // namespace iha::nn
