#include "iha/nn/rms_norm.h"

#include <ATen/ops/rms_norm.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <utility>

namespace iha::nn {

RMSNormImpl::RMSNormImpl(RMSNormOptions options) : options(std::move(options)) {
  TORCH_CHECK_VALUE(this->options.width() >= 1, "iha::nn::RMSNorm: width ", this->options.width(),
                    ", expected at least 1");
  TORCH_CHECK_VALUE(this->options.eps() > 0 && std::isfinite(this->options.eps()), "iha::nn::RMSNorm: eps ",
                    this->options.eps(), ", expected a positive number");
  reset();  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall): as torch's own modules
}

void RMSNormImpl::reset() {
  weight = register_parameter("weight", torch::empty({options.width()}));
  reset_parameters();
}

void RMSNormImpl::reset_parameters() {
  torch::NoGradGuard no_grad;
  weight.fill_(1);
}

void RMSNormImpl::pretty_print(std::ostream& stream) const {
  stream << "iha::nn::RMSNorm(" << options.width() << ", eps=" << options.eps() << ")";
}

torch::Tensor RMSNormImpl::forward(const torch::Tensor& x) {
  TORCH_CHECK_VALUE(x.dim() >= 1 && x.size(-1) == options.width(), "iha::nn::RMSNorm: x of shape ", x.sizes(),
                    ", expected a last axis of ", options.width());
  return at::rms_norm(x, {options.width()}, weight, options.eps());
}

torch::nn::AnyModule make_norm(const std::string& kind, int64_t width, double eps) {
  TORCH_CHECK_VALUE(kind == "rms" || kind == "layer", "iha::nn::make_norm: norm '", kind,
                    "', expected 'rms' or 'layer'");
  TORCH_CHECK_VALUE(width >= 1, "iha::nn::make_norm: width ", width, ", expected at least 1");
  if (kind == "rms") return torch::nn::AnyModule(RMSNorm(RMSNormOptions(width).eps(eps)));
  return torch::nn::AnyModule(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(eps)));
}

void reset_norm(torch::nn::AnyModule& norm) {
  if (auto rms = std::dynamic_pointer_cast<RMSNormImpl>(norm.ptr())) {
    rms->reset_parameters();
  } else {
    norm.get<torch::nn::LayerNormImpl>().reset_parameters();
  }
}

}  // namespace iha::nn
