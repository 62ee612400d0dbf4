#include "iha/nn/averaged_pseudo_heads.h"

#include <torch/nn/init.h>

#include <utility>

#include "iha/nn/bit_linear.h"
#include "iha/nn/heads.h"

namespace iha::nn {
namespace {

IHAAttentionOptions resolved(IHAAttentionOptions options) {
  constexpr auto kName = "iha::nn::IHAAttention";
  TORCH_CHECK_VALUE(options.hidden_size() >= 1 && options.num_heads() >= 1, kName,
                    ": hidden_size = ", options.hidden_size(), " and num_heads = ", options.num_heads(),
                    ", expected at least 1 of each");
  TORCH_CHECK_VALUE(options.hidden_size() % options.num_heads() == 0, kName, ": hidden_size ",
                    options.hidden_size(), " is not a multiple of ", options.num_heads(), " num_heads");
  const auto pseudo_heads = options.iha_num_pseudo_heads().value_or(options.num_heads());
  TORCH_CHECK_VALUE(pseudo_heads >= 1, kName, ": iha_num_pseudo_heads = ", pseudo_heads,
                    ", expected at least 1");
  TORCH_CHECK_VALUE(options.dropout() >= 0 && options.dropout() <= 1, kName,
                    ": dropout = ", options.dropout(), ", expected a probability in [0, 1]");
  TORCH_CHECK_VALUE(options.mode() == "encoder" || options.mode() == "decoder", kName, ": mode = '",
                    options.mode(), "', expected 'encoder' or 'decoder'");
  options.iha_num_pseudo_heads(pseudo_heads);
  return options;
}

}  // namespace

IHAAttentionImpl::IHAAttentionImpl(IHAAttentionOptions options) : options(resolved(std::move(options))) {
  reset();  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall): as torch's own modules
}

void IHAAttentionImpl::reset() {
  const auto project = [&](const char* name) {
    auto projection =
        make_projection(options.hidden_size(), options.hidden_size(), false, options.use_bitnet());
    register_module(name, projection.ptr());
    return projection;
  };
  q_proj = project("q_proj");
  k_proj = project("k_proj");
  v_proj = project("v_proj");
  out_proj = project("out_proj");
  const auto heads = options.num_heads();
  const auto rows = heads * *options.iha_num_pseudo_heads();
  q_mix = register_parameter("q_mix", torch::empty({rows, heads}));
  k_mix = register_parameter("k_mix", torch::empty({rows, heads}));
  v_mix = register_parameter("v_mix", torch::empty({rows, heads}));
  reset_mixing();
}

void IHAAttentionImpl::reset_parameters() {
  for (auto* projection : {&q_proj, &k_proj, &v_proj, &out_proj}) reset_projection(*projection);
  reset_mixing();
}

void IHAAttentionImpl::reset_mixing() {
  for (auto* mix : {&q_mix, &k_mix, &v_mix}) torch::nn::init::normal_(*mix, 0, 0.02);
}

void IHAAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "iha::nn::IHAAttention(hidden_size=" << options.hidden_size()
         << ", num_heads=" << options.num_heads()
         << ", iha_num_pseudo_heads=" << *options.iha_num_pseudo_heads() << ", dropout=" << options.dropout()
         << ", use_bitnet=" << (options.use_bitnet() ? "true" : "false") << ", mode=" << options.mode()
         << ")";
}

torch::Tensor IHAAttentionImpl::forward(const torch::Tensor& x) {
  TORCH_CHECK_VALUE(x.dim() == 3 && x.size(2) == options.hidden_size(), "iha::nn::IHAAttention: x of shape ",
                    x.sizes(), ", expected [B, N, ", options.hidden_size(), "]");
  const auto heads = options.num_heads();
  const auto head_dim = options.hidden_size() / heads;
  // Row h*P + p, column m of a mix is alpha[m, h, p].
  const auto alpha = [&](const torch::Tensor& mix) {
    return mix.unflatten(0, {heads, *options.iha_num_pseudo_heads()}).permute({2, 0, 1});
  };
  AttentionOptions attend;
  attend.patterns = options.mode() == "decoder" ? causal() : global();
  attend.alpha_q = alpha(q_mix);
  attend.alpha_k = alpha(k_mix);
  attend.alpha_v = alpha(v_mix);
  attend.layout = "parallel";
  attend.dropout_p = is_training() ? options.dropout() : 0.0;
  const auto out = attention(split_heads(q_proj.forward(x), heads, head_dim),
                             split_heads(k_proj.forward(x), heads, head_dim),
                             split_heads(v_proj.forward(x), heads, head_dim), attend);
  return out_proj.forward(merge_heads(out));
}

}  // namespace iha::nn
