#include "iha/nn/linear_attention.h"

#include <string_view>
#include <utility>

#include "iha/nn/bit_linear.h"
#include "iha/nn/heads.h"

namespace iha::nn {
namespace {

constexpr std::string_view kName = "iha::nn::LinearAttention";

LinearAttentionOptions resolved(LinearAttentionOptions options) {
  const auto heads = options.heads();
  const auto kv_heads = options.kv_heads().value_or(heads);
  TORCH_CHECK_VALUE(options.d_model() >= 1 && heads >= 1 && kv_heads >= 1, kName,
                    ": d_model = ", options.d_model(), ", heads = ", heads, ", kv_heads = ", kv_heads,
                    ", expected at least 1 of each");
  TORCH_CHECK_VALUE(heads % kv_heads == 0, kName, ": ", heads, " heads is not a multiple of ", kv_heads,
                    " kv_heads");
  TORCH_CHECK_VALUE(options.head_dim().has_value() || options.d_model() % heads == 0, kName, ": d_model ",
                    options.d_model(), " is not a multiple of ", heads, " heads; give head_dim");
  const auto head_dim = options.head_dim().value_or(options.d_model() / heads);
  TORCH_CHECK_VALUE(head_dim >= 1, kName, ": head_dim = ", head_dim, ", expected at least 1");
  TORCH_CHECK_VALUE(options.feature_map() == "elu" || options.feature_map() == "identity", kName,
                    ": feature_map = '", options.feature_map(), "', expected 'elu' or 'identity'");
  TORCH_CHECK_VALUE(options.chunk() >= 1, kName, ": chunk = ", options.chunk(), ", expected at least 1");
  const bool normalise = options.normalise().value_or(normalised_by_default(options.feature_map()));
  return options.kv_heads(kv_heads).head_dim(head_dim).normalise(normalise);
}

void check_tokens(const torch::Tensor& x, int64_t d_model, const char* name) {
  TORCH_CHECK_VALUE(x.defined() && x.dim() == 3 && x.size(2) == d_model, kName, ": ", name, " of shape ",
                    x.defined() ? c10::str(x.sizes()) : "undefined", ", expected [B, N, ", d_model, "]");
}

}  // namespace

LinearAttentionImpl::LinearAttentionImpl(LinearAttentionOptions options)
    : options(resolved(std::move(options))) {
  reset();  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall): as torch's own modules
}

void LinearAttentionImpl::reset() {
  const auto project = [&](const char* name, int64_t in, int64_t out) {
    auto projection = make_projection(in, out, options.bias(), options.bit_linear());
    register_module(name, projection.ptr());
    return projection;
  };
  q_proj = project("q_proj", options.d_model(), options.heads() * *options.head_dim());
  k_proj = project("k_proj", options.d_model(), *options.kv_heads() * *options.head_dim());
  v_proj = project("v_proj", options.d_model(), *options.kv_heads() * *options.head_dim());
  out_proj = project("out_proj", options.heads() * *options.head_dim(), options.d_model());
}

void LinearAttentionImpl::reset_parameters() {
  for (auto* projection : {&q_proj, &k_proj, &v_proj, &out_proj}) reset_projection(*projection);
}

void LinearAttentionImpl::pretty_print(std::ostream& stream) const {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  stream << "iha::nn::LinearAttention(d_model=" << options.d_model() << ", heads=" << options.heads()
         << ", kv_heads=" << *options.kv_heads() << ", head_dim=" << *options.head_dim()
         << ", feature_map=" << options.feature_map() << ", normalise=" << flag(*options.normalise())
         << ", causal=" << flag(options.causal()) << ", chunk=" << options.chunk()
         << ", bias=" << flag(options.bias()) << ", bit_linear=" << flag(options.bit_linear()) << ")";
}

torch::Tensor LinearAttentionImpl::attend(const torch::Tensor& x, const torch::Tensor& context,
                                          LinearAttentionArguments arguments) {
  arguments.feature_map = options.feature_map();
  arguments.normalise = options.normalise();
  arguments.causal = options.causal();
  arguments.chunk = options.chunk();
  const auto query = split_heads(q_proj.forward(x), options.heads(), *options.head_dim());
  const auto key = split_heads(k_proj.forward(context), *options.kv_heads(), *options.head_dim());
  const auto value = split_heads(v_proj.forward(context), *options.kv_heads(), *options.head_dim());
  return out_proj.forward(merge_heads(linear_attention(query, key, value, arguments)));
}

torch::Tensor LinearAttentionImpl::forward(const torch::Tensor& x, const LinearAttentionCall& call) {
  TORCH_CHECK_VALUE(!call.context.defined() || !options.causal(), kName,
                    ": a context for a causal layer, expected causal(false)");
  const auto& context = call.context.defined() ? call.context : x;
  check_tokens(x, options.d_model(), "x");
  check_tokens(context, options.d_model(), "context");
  return attend(x, context, {.key_lengths = call.key_lengths});
}

torch::Tensor LinearAttentionImpl::step(const torch::Tensor& x, LinearAttentionState& state) {
  TORCH_CHECK_VALUE(options.causal(), kName, ": a step of a layer that is not causal, expected causal(true)");
  check_tokens(x, options.d_model(), "x");
  return attend(x, x, {.state = &state});
}

int64_t LinearAttentionImpl::state_bytes() const {
  const auto dim = *options.head_dim();
  const auto dtype = parameters().front().scalar_type();
  return *options.kv_heads() * dim * (dim + (*options.normalise() ? 1 : 0)) *
         (dtype == torch::kFloat64 ? 8 : 4);
}

}  // namespace iha::nn
