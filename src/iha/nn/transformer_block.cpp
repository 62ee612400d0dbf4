#include "iha/nn/transformer_block.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>

#include <utility>

#include "iha/nn/bit_linear.h"
#include "iha/nn/rms_norm.h"

namespace iha::nn {
namespace {

FeedForwardOptions resolved(FeedForwardOptions options) {
  constexpr auto kName = "iha::nn::FeedForward";
  TORCH_CHECK_VALUE(options.d_model() >= 1, kName, ": d_model = ", options.d_model(),
                    ", expected at least 1");
  TORCH_CHECK_VALUE(options.kind() == "gelu" || options.kind() == "swiglu", kName, ": kind = '",
                    options.kind(), "', expected 'gelu' or 'swiglu'");
  const auto two_maps = 4 * options.d_model();
  const auto three_maps = (8 * options.d_model() / 3 + 7) / 8 * 8;
  const auto hidden = options.hidden().value_or(options.kind() == "gelu" ? two_maps : three_maps);
  TORCH_CHECK_VALUE(hidden >= 1, kName, ": hidden = ", hidden, ", expected at least 1");
  options.hidden(hidden);
  return options;
}

}  // namespace

FeedForwardImpl::FeedForwardImpl(FeedForwardOptions options) : options(resolved(std::move(options))) {
  reset();  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall): as torch's own modules
}

void FeedForwardImpl::reset() {
  const auto project = [&](const char* name, int64_t in, int64_t out) {
    auto projection = make_projection(in, out, options.bias(), options.bit_linear());
    register_module(name, projection.ptr());
    return projection;
  };
  if (options.kind() == "swiglu") gate = project("gate", options.d_model(), *options.hidden());
  up = project("up", options.d_model(), *options.hidden());
  down = project("down", *options.hidden(), options.d_model());
}

void FeedForwardImpl::reset_parameters() {
  if (!gate.is_empty()) reset_projection(gate);
  reset_projection(up);
  reset_projection(down);
}

void FeedForwardImpl::pretty_print(std::ostream& stream) const {
  stream << "iha::nn::FeedForward(d_model=" << options.d_model() << ", hidden=" << *options.hidden()
         << ", kind=" << options.kind() << ")";
}

torch::Tensor FeedForwardImpl::forward(const torch::Tensor& x) {
  TORCH_CHECK_VALUE(x.dim() >= 1 && x.size(-1) == options.d_model(), "iha::nn::FeedForward: x of shape ",
                    x.sizes(), ", expected a last axis of ", options.d_model());
  if (gate.is_empty()) return down.forward(at::gelu(up.forward(x)));
  return down.forward(at::silu(gate.forward(x)) * up.forward(x));
}

TransformerBlockImpl::TransformerBlockImpl(TransformerBlockOptions options) : options(std::move(options)) {
  this->options.attention(resolve(this->options.attention()));
  TORCH_CHECK_VALUE(this->options.dropout() >= 0 && this->options.dropout() <= 1,
                    "iha::nn::TransformerBlock: dropout = ", this->options.dropout(),
                    ", expected a probability in [0, 1]");
  reset();  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall): as torch's own modules
}

void TransformerBlockImpl::reset() {
  const auto& mixer = options.attention();
  norm1 = make_norm(options.norm(), mixer.d_model(), options.norm_eps());
  register_module("norm1", norm1.ptr());
  attention = register_module("attention", InterleavedHeadAttention(mixer));
  norm2 = make_norm(options.norm(), mixer.d_model(), options.norm_eps());
  register_module("norm2", norm2.ptr());
  feed_forward = register_module("feed_forward", FeedForward(FeedForwardOptions(mixer.d_model())
                                                                 .hidden(options.hidden())
                                                                 .kind(options.feed_forward())
                                                                 .bias(mixer.bias())
                                                                 .bit_linear(mixer.bit_linear())));
  dropout = register_module("dropout", torch::nn::Dropout(options.dropout()));
}

void TransformerBlockImpl::reset_parameters() {
  reset_norm(norm1);
  attention->reset_parameters();
  reset_norm(norm2);
  feed_forward->reset_parameters();
}

void TransformerBlockImpl::pretty_print(std::ostream& stream) const {
  stream << "iha::nn::TransformerBlock";
}

torch::Tensor TransformerBlockImpl::forward(const torch::Tensor& x, const AttentionCall& call) {
  const auto mixed = x + dropout(attention(norm1.forward(x), call));
  return mixed + dropout(feed_forward(norm2.forward(mixed)));
}

}  // namespace iha::nn
