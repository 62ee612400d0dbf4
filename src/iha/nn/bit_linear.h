// A linear layer with ternary weights and 8-bit activations, trained through both roundings, and its baked
// form. For input x [.., in] and weight W [out, in]:
//   y  = (x - mean) / sqrt(variance + 1e-5)                over the last axis, no scale, no shift
//   s  = 127 / max(max |y| of the token, 1e-5)             yq = clamp(round(y s), -128, 127) / s
//   g  = max(mean |W|, 1e-5)                               Wq = clamp(round(W / g), -1, 1) g
//   out = yq Wq^T (+ bias)
// round takes halves to even. Gradients pass straight through the roundings: d yq / dy = 1 and d Wq / dW = 1,
// clamped or not, and none goes by s or g. 16-bit inputs and weights are normalised and rounded in float32.
// Not here: kernels for ternary weights; the baked form saves memory, not time.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace iha::nn {

// yq of the formulas above, with straight-through gradients back to x.
torch::Tensor quantize_activations(const torch::Tensor& x);

// A weight as -1, 0, 1 and one scale: Wq = values * scale.
struct TernaryWeight {
  torch::Tensor values;  // int8 [out, in]
  torch::Tensor scale;   // g: one element in the weight's dtype, float32 for 16-bit weights
};
TernaryWeight ternary(const torch::Tensor& weight);

struct BitLinearOptions {
  BitLinearOptions(int64_t in_features, int64_t out_features)
      : in_features_(in_features), out_features_(out_features) {}
  TORCH_ARG(int64_t, in_features);
  TORCH_ARG(int64_t, out_features);
  TORCH_ARG(bool, bias) = false;
};

// The baked form: no parameters, an eighth to a quarter of the memory, for inference and export. Buffers
// `ternary` (int8 [out, in]), `scale` and `bias`. Gradients reach its input only.
class TernaryLinearImpl : public torch::nn::Cloneable<TernaryLinearImpl> {
 public:
  // Zero weights, to load a saved state into. Throws c10::ValueError for features below 1.
  explicit TernaryLinearImpl(BitLinearOptions options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  // x [.., in] -> [.., out]: bit for bit what the BitLinear it was baked from gives.
  torch::Tensor forward(const torch::Tensor& x);
  // Everything but `ternary`, which stays int8.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  using Module::to;

  BitLinearOptions options;
  torch::Tensor ternary, scale, bias;  // bias is undefined where absent

 private:
  void keep_int8();
};
TORCH_MODULE(TernaryLinear);

class BitLinearImpl : public torch::nn::Cloneable<BitLinearImpl> {
 public:
  BitLinearImpl(int64_t in_features, int64_t out_features)
      : BitLinearImpl(BitLinearOptions(in_features, out_features)) {}
  // Throws c10::ValueError for features below 1.
  explicit BitLinearImpl(BitLinearOptions options);

  void reset() override;
  void reset_parameters();  // as torch::nn::Linear
  void pretty_print(std::ostream& stream) const override;
  torch::Tensor forward(const torch::Tensor& x);
  TernaryLinear bake() const;

  BitLinearOptions options;
  torch::Tensor weight, bias;  // [out, in], [out]; bias is undefined where absent
};
TORCH_MODULE(BitLinear);

// What every layer of this folder projects with: a torch::nn::Linear, or a BitLinear.
torch::nn::AnyModule make_projection(int64_t in_features, int64_t out_features, bool bias, bool bit_linear);
void reset_projection(torch::nn::AnyModule& projection);

}  // namespace iha::nn
