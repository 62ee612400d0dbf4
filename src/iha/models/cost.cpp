#include "iha/models/cost.h"

#include "iha/schedule/layer_cost.h"

namespace iha::models {

Flops& Flops::operator+=(const Flops& other) {
  projections += other.projections;
  mixing += other.mixing;
  attention += other.attention;
  return *this;
}

Flops attention_flops(const nn::InterleavedHeadAttentionOptions& options, int64_t tokens) {
  const nn::InterleavedHeadAttentionOptions layer = nn::resolve(options);
  const int64_t heads = layer.heads(), kv_heads = *layer.kv_heads(), width = *layer.head_dim();
  const int64_t pseudo_heads = *layer.pseudo_heads();
  Flops flops;
  // Query and output maps of H d channels, key and value maps of Hkv d.
  flops.projections = 2 * tokens * layer.d_model() * 2 * (heads + kv_heads) * width;
  if (layer.mixing()) {
    const int64_t mixed = heads * heads + 2 * kv_heads * kv_heads;
    int64_t collapsed = 0;
    if (layer.collapse() == "global") collapsed = heads * heads;
    if (layer.collapse() == "per_head" || (layer.collapse() == "mean" && pseudo_heads > 1)) collapsed = heads;
    flops.mixing = 2 * tokens * (mixed + collapsed) * pseudo_heads * width;
  }
  const LayerShape shape{.tokens = tokens,
                         .head_dim = width,
                         .pseudo_heads = pseudo_heads,
                         .interleaved = layer.layout() == "interleaved",
                         .flat = layer.order() == "flat"};
  flops.attention = 4 * width * layer_cost(layer.patterns().expand(heads), shape).pairs;
  return flops;
}

torch::Tensor expected_pair_share(torch::nn::Module& module, int64_t tokens) {
  torch::Tensor pairs;
  int64_t heads = 0;
  for (const auto& each : module.modules()) {
    const auto* gates = each->as<nn::ModeGatesImpl>();
    if (gates == nullptr) continue;
    const torch::Tensor own = gates->expected_pairs(tokens, tokens, 0);
    pairs = pairs.defined() ? pairs + own : own;
    heads += static_cast<int64_t>(gates->learned.size());
  }
  const double all = static_cast<double>(heads) * static_cast<double>(tokens) * static_cast<double>(tokens);
  return pairs.defined() && all > 0 ? pairs / all : pairs;
}

int64_t parameter_count(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const torch::Tensor& parameter : module.parameters()) {
    if (parameter.requires_grad()) count += parameter.numel();
  }
  return count;
}

}  // namespace iha::models
