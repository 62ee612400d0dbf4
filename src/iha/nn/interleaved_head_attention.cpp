#include "iha/nn/interleaved_head_attention.h"

#include <torch/nn/init.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "iha/nn/bit_linear.h"
#include "iha/nn/heads.h"
#include "iha/patterns/parse.h"

namespace iha::nn {
namespace {

constexpr double kNormalInit = 0.02;  // of MixingInit::kNormal, as in the published averaged layer

std::optional<torch::Tensor> optional(const torch::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

void check_tokens(const torch::Tensor& x, int64_t d_model, const char* name) {
  TORCH_CHECK_VALUE(x.defined() && x.dim() == 3 && x.size(2) == d_model,
                    "iha::nn::InterleavedHeadAttention: ", name, " of shape ",
                    x.defined() ? c10::str(x.sizes()) : "undefined", ", expected [B, N, ", d_model, "]");
}

// Normal noise of standard deviation `noise` that sums to 0 over the last axis, pseudo-heads.
torch::Tensor balanced_noise(at::IntArrayRef sizes, double noise, const torch::TensorOptions& options) {
  const auto draw = torch::randn(sizes, options) * noise;
  return draw - draw.mean(-1, /*keepdim=*/true);
}

// alpha [H, H, P]. `balanced`: with a warm start, add noise that sums to 0 over pseudo-heads.
void fill_mixing(torch::Tensor& alpha, const InterleavedHeadAttentionOptions& options, bool balanced) {
  const auto heads = alpha.size(0);
  const auto identity = torch::eye(heads, alpha.options()).unsqueeze(-1);
  switch (options.mixing_init()) {
    case MixingInit::kIdentityNoise:
      alpha.normal_(0, options.mixing_noise()).add_(identity);
      break;
    case MixingInit::kNormal:
      alpha.normal_(0, kNormalInit);
      break;
    case MixingInit::kRandom: {
      const double bound = 1.0 / std::sqrt(static_cast<double>(heads));
      alpha.uniform_(-bound, bound);
      break;
    }
    case MixingInit::kWarmStart:
      alpha.copy_(identity.expand_as(alpha));
      if (balanced) alpha.add_(balanced_noise(alpha.sizes(), options.mixing_noise(), alpha.options()));
      break;
  }
}

// Whether some pseudo-queries see fewer copies of their own token than others do, in flat order.
bool somewhere_causal(const Pattern& pattern) {
  return pattern.causal() || std::ranges::any_of(pattern.candidates, &Pattern::causal);
}

// How a head weighs its own pseudo-heads at first, [H, P]: their mean, or, for a warm start, any weights that
// sum to 1 where all its pseudo-queries see the same, and the last pseudo-query, which sees all, where flat
// order hides keys from the others.
torch::Tensor own_collapse(const InterleavedHeadAttentionOptions& options,
                           const torch::TensorOptions& tensor) {
  const auto heads = options.heads();
  const auto pseudo_heads = *options.pseudo_heads();
  auto weights = torch::full({heads, pseudo_heads}, 1.0 / static_cast<double>(pseudo_heads), tensor);
  if (options.mixing_init() != MixingInit::kWarmStart || options.layout() == "parallel") return weights;
  weights += balanced_noise(weights.sizes(), options.mixing_noise(), tensor);
  const auto patterns = options.patterns().expand(heads);
  for (int64_t head = 0; head < heads; ++head) {
    if (options.order() != "flat" || !somewhere_causal(patterns[head])) continue;
    weights[head].zero_();
    weights[head][-1].fill_(1);
  }
  return weights;
}

const char* name_of(MixingInit init) {
  switch (init) {
    case MixingInit::kIdentityNoise:
      return "identity_noise";
    case MixingInit::kNormal:
      return "normal";
    case MixingInit::kRandom:
      return "random";
    case MixingInit::kWarmStart:
      return "warm_start";
  }
  return "unknown";
}

}  // namespace

InterleavedHeadAttentionImpl::InterleavedHeadAttentionImpl(InterleavedHeadAttentionOptions options)
    : options(resolve(std::move(options))) {
  reset();  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall): as torch's own modules
}

void InterleavedHeadAttentionImpl::reset() {
  const auto heads = options.heads();
  const auto kv_heads = *options.kv_heads();
  const auto pseudo_heads = *options.pseudo_heads();
  const auto project = [&](const char* name, const char* published, int64_t in, int64_t out) {
    auto projection = make_projection(in, out, options.bias(), options.bit_linear());
    register_module(options.projection_names() == ProjectionNames::kW ? published : name, projection.ptr());
    return projection;
  };
  q_proj = project("q_proj", "W_q", options.d_model(), heads * *options.head_dim());
  k_proj = project("k_proj", "W_k", options.d_model(), kv_heads * *options.head_dim());
  v_proj = project("v_proj", "W_v", options.d_model(), kv_heads * *options.head_dim());
  out_proj = project("out_proj", "W_o", heads * *options.head_dim(), options.d_model());
  if (options.mixing()) {
    alpha_q = register_parameter("alpha_q", torch::empty({heads, heads, pseudo_heads}));
    alpha_k = register_parameter("alpha_k", torch::empty({kv_heads, kv_heads, pseudo_heads}));
    alpha_v = register_parameter("alpha_v", torch::empty({kv_heads, kv_heads, pseudo_heads}));
  }
  if (options.collapse() == "per_head") {
    collapse = register_parameter("collapse", torch::empty({heads, pseudo_heads}));
  } else if (options.collapse() == "global") {
    collapse = register_parameter("collapse", torch::empty({heads, heads, pseudo_heads}));
  }
  if (options.sinks()) sinks = register_parameter("sinks", torch::empty({heads}));
  const auto patterns = options.patterns().expand(heads);
  if (most_candidates(patterns) > 0) {
    gates = register_module("gates", ModeGates(patterns, options.gate_temperature(), options.gate_noise()));
  }
  if (std::ranges::any_of(patterns, &Pattern::dynamic)) {
    index = register_module("index", BlockIndex(BlockIndexOptions(options.d_model(), patterns)
                                                    .dim(options.index_dim())
                                                    .tile(options.index_tile())));
  }
  reset_own_parameters();
}

void InterleavedHeadAttentionImpl::reset_parameters() {
  for (auto* projection : {&q_proj, &k_proj, &v_proj, &out_proj}) reset_projection(*projection);
  if (!gates.is_empty()) gates->reset_parameters();
  if (!index.is_empty()) index->reset_parameters();
  reset_own_parameters();
}

void InterleavedHeadAttentionImpl::reset_own_parameters() {
  torch::NoGradGuard no_grad;
  if (options.mixing()) {
    fill_mixing(alpha_q, options, false);
    fill_mixing(alpha_k, options, false);
    fill_mixing(alpha_v, options, true);
  }
  if (collapse.defined()) {
    const auto own = own_collapse(options, collapse.options().requires_grad(false));
    collapse.copy_(options.collapse() == "global" ? torch::diag_embed(own.t(), 0, 0, 1) : own);
  }
  if (sinks.defined()) {
    // P equal copies of every key weigh as much against a sink of log P as one copy against a sink of 0.
    const bool copies = options.mixing_init() == MixingInit::kWarmStart && options.layout() == "interleaved";
    sinks.fill_(copies ? std::log(static_cast<double>(*options.pseudo_heads())) : 0.0);
  }
}

void InterleavedHeadAttentionImpl::pretty_print(std::ostream& stream) const {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  stream << "iha::nn::InterleavedHeadAttention(d_model=" << options.d_model() << ", heads=" << options.heads()
         << ", kv_heads=" << *options.kv_heads() << ", head_dim=" << *options.head_dim()
         << ", pseudo_heads=" << *options.pseudo_heads() << ", patterns=" << to_text(options.patterns())
         << ", mixing=" << (options.mixing() ? name_of(options.mixing_init()) : "none")
         << ", layout=" << options.layout() << ", order=" << options.order() << ", rope=" << options.rope()
         << ", collapse=" << options.collapse() << ", dropout=" << options.dropout()
         << ", bias=" << flag(options.bias()) << ", sinks=" << flag(options.sinks())
         << ", bit_linear=" << flag(options.bit_linear())
         << ", autoregressive=" << flag(options.autoregressive()) << ")";
}

AttentionOptions InterleavedHeadAttentionImpl::attention_options(const torch::Tensor& x,
                                                                 const torch::Tensor& context,
                                                                 const AttentionCall& call, bool noise) {
  AttentionOptions result;
  result.patterns = options.patterns();
  result.alpha_q = optional(alpha_q);
  result.alpha_k = optional(alpha_k);
  result.alpha_v = optional(alpha_v);
  result.collapse = optional(collapse);
  result.layout = options.layout();
  result.order = options.order();
  result.rope = options.rope();
  result.rope_theta = options.rope_theta();
  result.rope_style = options.rope_style();
  result.query_offset = optional(call.query_offset);
  result.key_lengths = optional(call.key_lengths);
  result.documents = optional(call.documents);
  result.sinks = optional(sinks);
  if (!gates.is_empty()) {
    const auto drawn = noise ? gates->forward() : gates->gates();
    if (gates->temperature() == 0) {
      result.patterns = gates->chosen(drawn);  // plain patterns, at their price
    } else {
      result.mode_weights = gates->mode_weights(drawn);
    }
  }
  if (!index.is_empty()) {
    TORCH_CHECK_VALUE(!call.documents.defined(),
                      "iha::nn::InterleavedHeadAttention: documents with dynamic "
                      "heads, expected none: the mean of a block would tell one document of another");
    result.block_weights = index->forward(x, context, call.query_offset, call.key_lengths);
  }
  return result;
}

int64_t InterleavedHeadAttentionImpl::harden(double decided) {
  if (gates.is_empty()) return 0;
  const auto values = gates->gates();
  const auto largest = std::get<0>(values.max(1));
  auto patterns = gates->chosen(values);
  for (size_t l = 0; l < gates->learned.size(); ++l) {
    const auto head = gates->learned[l];
    if (largest[static_cast<int64_t>(l)].item<double>() < decided) patterns[head] = gates->heads[head];
  }
  options.patterns(patterns);
  if (most_candidates(patterns) > 0) {
    gates = replace_module("gates", ModeGates(gates->narrowed(patterns)));
    return static_cast<int64_t>(gates->learned.size());
  }
  unregister_module("gates");
  gates = nullptr;
  return 0;
}

torch::Tensor InterleavedHeadAttentionImpl::forward(const torch::Tensor& x, const AttentionCall& call) {
  const auto& context = call.context.defined() ? call.context : x;
  check_tokens(x, options.d_model(), "x");
  check_tokens(context, options.d_model(), "context");
  const auto query = split_heads(q_proj.forward(x), options.heads(), *options.head_dim());
  const auto key = split_heads(k_proj.forward(context), *options.kv_heads(), *options.head_dim());
  const auto value = split_heads(v_proj.forward(context), *options.kv_heads(), *options.head_dim());
  auto attend = attention_options(x, context, call, /*noise=*/true);
  attend.dropout_p = is_training() ? options.dropout() : 0.0;
  return out_proj.forward(merge_heads(attention(query, key, value, attend)));
}

torch::Tensor InterleavedHeadAttentionImpl::weights(const torch::Tensor& x, const torch::Tensor& rows,
                                                    const AttentionCall& call) {
  torch::NoGradGuard no_grad;
  const auto& context = call.context.defined() ? call.context : x;
  check_tokens(x, options.d_model(), "x");
  check_tokens(context, options.d_model(), "context");
  const auto query = split_heads(q_proj.forward(x), options.heads(), *options.head_dim());
  const auto key = split_heads(k_proj.forward(context), *options.kv_heads(), *options.head_dim());
  return attention_weights(query, key, rows, attention_options(x, context, call, /*noise=*/false));
}

}  // namespace iha::nn
