#include "iha/nn/bit_linear.h"

#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <string_view>
#include <utility>

namespace iha::nn {
namespace {

constexpr double kEpsilon = 1e-5;  // of the variance and of both scales

void check(const BitLinearOptions& options, std::string_view name) {
  TORCH_CHECK_VALUE(options.in_features() >= 1 && options.out_features() >= 1, name, ": ",
                    options.in_features(), " input and ", options.out_features(),
                    " output features, expected at least 1 of each");
}

torch::Dtype compute_dtype(const torch::Tensor& x) {
  return at::isReducedFloatingType(x.scalar_type()) ? torch::kFloat32 : x.scalar_type();
}

// The value of `rounded` exactly, with the gradient going to `value` as if nothing had been rounded.
torch::Tensor straight_through(const torch::Tensor& value, const torch::Tensor& rounded) {
  return value.requires_grad() ? rounded + (value - value.detach()) : rounded;
}

torch::Tensor dequantize(const TernaryWeight& weight, torch::Dtype dtype) {
  return (weight.values.to(weight.scale.scalar_type()) * weight.scale).to(dtype);
}

void print(std::ostream& stream, std::string_view name, const BitLinearOptions& options) {
  stream << "iha::nn::" << name << "(in_features=" << options.in_features()
         << ", out_features=" << options.out_features() << ", bias=" << (options.bias() ? "true" : "false")
         << ")";
}

}  // namespace

torch::Tensor quantize_activations(const torch::Tensor& x) {
  TORCH_CHECK_VALUE(x.dim() >= 1 && x.size(-1) >= 1, "iha::nn::quantize_activations: a tensor of shape ",
                    x.sizes(), ", expected a last axis of at least 1 feature");
  const auto normal = at::layer_norm(x.to(compute_dtype(x)), {x.size(-1)}, {}, {}, kEpsilon);
  torch::Tensor rounded;
  {
    torch::NoGradGuard no_grad;
    const auto scale = 127.0 / normal.abs().amax(-1, /*keepdim=*/true).clamp_min(kEpsilon);
    rounded = (normal * scale).round().clamp(-128, 127) / scale;
  }
  return straight_through(normal, rounded).to(x.scalar_type());
}

TernaryWeight ternary(const torch::Tensor& weight) {
  TORCH_CHECK_VALUE(weight.dim() == 2 && weight.numel() >= 1, "iha::nn::ternary: a weight of shape ",
                    weight.sizes(), ", expected [out, in] of at least one element");
  torch::NoGradGuard no_grad;
  const auto wide = weight.to(compute_dtype(weight));
  // Rows first: torch splits a full sum over its threads, and the bits would depend on their number.
  const auto scale = wide.abs().mean(1).mean(0, /*keepdim=*/true).clamp_min(kEpsilon);
  return {(wide / scale).round().clamp(-1, 1).to(torch::kInt8), scale};
}

TernaryLinearImpl::TernaryLinearImpl(BitLinearOptions options) : options(std::move(options)) {
  check(this->options, "iha::nn::TernaryLinear");
  reset();  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall): as torch's own modules
}

void TernaryLinearImpl::reset() {
  ternary =
      register_buffer("ternary", torch::zeros({options.out_features(), options.in_features()}, torch::kInt8));
  scale = register_buffer("scale", torch::ones({1}));
  if (options.bias()) bias = register_buffer("bias", torch::zeros({options.out_features()}));
}

void TernaryLinearImpl::pretty_print(std::ostream& stream) const {
  print(stream, "TernaryLinear", options);
}

void TernaryLinearImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  Module::to(device, dtype, non_blocking);
  keep_int8();
}

void TernaryLinearImpl::to(torch::Dtype dtype, bool non_blocking) {
  Module::to(dtype, non_blocking);
  keep_int8();
}

// -1, 0 and 1 come back from any dtype unharmed.
void TernaryLinearImpl::keep_int8() {
  ternary.set_data(ternary.to(torch::kInt8));
}

torch::Tensor TernaryLinearImpl::forward(const torch::Tensor& x) {
  return at::linear(quantize_activations(x), dequantize({ternary, scale}, x.scalar_type()), bias);
}

BitLinearImpl::BitLinearImpl(BitLinearOptions options) : options(std::move(options)) {
  check(this->options, "iha::nn::BitLinear");
  reset();  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall): as torch's own modules
}

void BitLinearImpl::reset() {
  weight = register_parameter("weight", torch::empty({options.out_features(), options.in_features()}));
  if (options.bias()) bias = register_parameter("bias", torch::empty({options.out_features()}));
  reset_parameters();
}

void BitLinearImpl::reset_parameters() {
  torch::nn::init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (bias.defined()) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(options.in_features()));
    torch::nn::init::uniform_(bias, -bound, bound);
  }
}

void BitLinearImpl::pretty_print(std::ostream& stream) const {
  print(stream, "BitLinear", options);
}

torch::Tensor BitLinearImpl::forward(const torch::Tensor& x) {
  const auto rounded = dequantize(nn::ternary(weight), weight.scalar_type());
  return at::linear(quantize_activations(x), straight_through(weight, rounded), bias);
}

TernaryLinear BitLinearImpl::bake() const {
  torch::NoGradGuard no_grad;
  TernaryLinear baked(options);
  const auto [values, scale] = nn::ternary(weight);
  baked->ternary.set_data(values);
  baked->scale.set_data(scale);
  if (bias.defined()) baked->bias.set_data(bias.detach().clone());
  baked->train(is_training());
  return baked;
}

torch::nn::AnyModule make_projection(int64_t in_features, int64_t out_features, bool bias, bool bit_linear) {
  if (bit_linear) {
    return torch::nn::AnyModule(BitLinear(BitLinearOptions(in_features, out_features).bias(bias)));
  }
  return torch::nn::AnyModule(
      torch::nn::Linear(torch::nn::LinearOptions(in_features, out_features).bias(bias)));
}

void reset_projection(torch::nn::AnyModule& projection) {
  if (auto bit_linear = std::dynamic_pointer_cast<BitLinearImpl>(projection.ptr())) {
    bit_linear->reset_parameters();
  } else {
    projection.get<torch::nn::LinearImpl>().reset_parameters();
  }
}

}  // namespace iha::nn
