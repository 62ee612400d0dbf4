#include "iha/models/token_tagger.h"

#include <torch/nn/modules/normalization.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "iha/models/json_fields.h"
#include "iha/nn/rms_norm.h"
#include "iha/nn/transformer_block.h"

namespace iha::models {
namespace {

constexpr auto kName = "iha::models::TokenTagger: ";

template <class Visitor, class Config>
void visit(Visitor& visitor, Config& config) {
  visitor("values", config.values);
  visitor("max_side", config.max_side);
  visitor("d_model", config.d_model);
  visitor("layer", config.layer);
  visitor("feed_forward", config.feed_forward);
  visitor("free_embedding", config.free_embedding);
  visitor("layers", config.layers);
}

TokenTaggerConfig resolved_tagger(TokenTaggerConfig config) {
  TORCH_CHECK_VALUE(config.values >= 1 && config.max_side >= 1, kName, config.values,
                    " values and a side of ", config.max_side, ", expected at least 1 of each");
  TORCH_CHECK_VALUE(config.layer == "bare" || config.layer == "residual_norm" || config.layer == "pre_norm",
                    kName, "layer `", config.layer, "`, expected bare, residual_norm or pre_norm");
  const bool has_feed_forward = config.layer == "pre_norm";
  TORCH_CHECK_VALUE(has_feed_forward || !config.feed_forward, kName, "feed_forward for `", config.layer,
                    "`, expected it for pre_norm only");
  if (has_feed_forward && !config.feed_forward) config.feed_forward = 4 * config.d_model;
  for (MixerConfig& layer : config.layers) layer = resolved(layer, config.d_model);
  return config;
}

}  // namespace

void to_json(nlohmann::json& json, const TokenTaggerConfig& config) {
  JsonWriter writer(json);
  visit(writer, config);
}

void from_json(const nlohmann::json& json, TokenTaggerConfig& config) {
  JsonReader reader(json, "token tagger");
  visit(reader, config);
  reader.finish();
}

TokenTaggerImpl::TokenTaggerImpl(TokenTaggerConfig config) : config(resolved_tagger(std::move(config))) {
  reset();
}

void TokenTaggerImpl::reset() {
  const int64_t width = config.d_model;
  value_ = register_module("value", torch::nn::Embedding(config.values, width));
  row_ = register_module("row", torch::nn::Embedding(config.max_side, width));
  column_ = register_module("column", torch::nn::Embedding(config.max_side, width));
  if (config.free_embedding) {
    free_ = register_module("free", torch::nn::Embedding(config.max_side * config.max_side, width));
  }
  layers_ = register_module("layers", torch::nn::ModuleList());
  norms_ = register_module("norms", torch::nn::ModuleList());
  const auto add_norm = [&] {
    norms_->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  };
  if (config.layer == "residual_norm") add_norm();
  for (const MixerConfig& mixer : config.layers) {
    const nn::InterleavedHeadAttentionOptions options = layer_options(mixer, width, false);
    if (config.layer == "pre_norm") {
      layers_->push_back(
          nn::TransformerBlock(nn::TransformerBlockOptions(options).hidden(config.feed_forward)));
    } else {
      layers_->push_back(nn::InterleavedHeadAttention(options));
    }
    if (config.layer == "residual_norm") add_norm();
  }
  if (config.layer == "pre_norm") norms_->push_back(nn::RMSNorm(width));
  readout_ = register_module("readout", torch::nn::Linear(width, 1));
}

void TokenTaggerImpl::pretty_print(std::ostream& stream) const {
  stream << "iha::models::TokenTagger(" << nlohmann::json(config).dump() << ")";
}

torch::Tensor TokenTaggerImpl::hidden(const GridTokens& input, size_t layers) {
  for (const torch::Tensor& tensor : {input.values, input.rows, input.columns}) {
    TORCH_CHECK_VALUE(tensor.dim() == 2 && tensor.sizes() == input.values.sizes(), kName,
                      "values, rows and columns of ", input.values.sizes(), ", ", input.rows.sizes(), " and ",
                      input.columns.sizes(), ", expected one shape [B, N]");
  }
  torch::Tensor x = value_(input.values) + row_(input.rows) + column_(input.columns);
  if (!free_.is_empty()) x = x + free_(input.rows * config.max_side + input.columns);
  nn::AttentionCall call;
  // Where every grid fills the batch no key is hidden, and plain attention is the faster path.
  if (input.lengths.defined() && !input.lengths.eq(x.size(1)).all().item<bool>())
    call.key_lengths = input.lengths;
  const auto norm = [&](size_t n, const torch::Tensor& y) {
    return norms_[n]->as<torch::nn::LayerNormImpl>()->forward(y);
  };
  if (config.layer == "residual_norm") x = norm(0, x);
  for (size_t n = 0; n < layers; ++n) {
    if (config.layer == "pre_norm") {
      x = layers_[n]->as<nn::TransformerBlockImpl>()->forward(x, call);
      continue;
    }
    const torch::Tensor mixed = layers_[n]->as<nn::InterleavedHeadAttentionImpl>()->forward(x, call);
    x = config.layer == "bare" ? mixed : norm(n + 1, x + mixed);
  }
  return x;
}

torch::Tensor TokenTaggerImpl::forward(const GridTokens& input) {
  torch::Tensor x = hidden(input, layers_->size());
  if (config.layer == "pre_norm") x = norms_[0]->as<nn::RMSNormImpl>()->forward(x);
  return readout_(x).squeeze(-1);
}

void TokenTaggerImpl::check_layer(int64_t layer) const {
  TORCH_CHECK_VALUE(layer >= 0 && layer < static_cast<int64_t>(layers_->size()), kName, "layer ", layer,
                    ", expected one below ", layers_->size());
}

torch::Tensor TokenTaggerImpl::attention_input(const GridTokens& input, int64_t layer) {
  check_layer(layer);
  const torch::Tensor x = hidden(input, static_cast<size_t>(layer));
  if (config.layer != "pre_norm") return x;
  return layers_[layer]->as<nn::TransformerBlockImpl>()->norm1.forward(x);
}

nn::InterleavedHeadAttention TokenTaggerImpl::attention(int64_t layer) {
  check_layer(layer);
  if (config.layer == "pre_norm") return layers_[layer]->as<nn::TransformerBlockImpl>()->attention;
  return std::dynamic_pointer_cast<nn::InterleavedHeadAttentionImpl>(
      layers_->ptr(static_cast<size_t>(layer)));
}

int64_t TokenTaggerImpl::harden(double decided) {
  int64_t learned = 0;
  for (size_t n = 0; n < config.layers.size(); ++n) {
    auto* block = layers_[n]->as<nn::TransformerBlockImpl>();
    auto* layer = block ? block->attention.get() : layers_[n]->as<nn::InterleavedHeadAttentionImpl>();
    learned += models::harden(*layer, config.layers[n], decided);
  }
  return learned;
}

Flops TokenTaggerImpl::flops(int64_t tokens) const {
  Flops flops;
  for (const MixerConfig& mixer : config.layers) {
    flops += attention_flops(layer_options(mixer, config.d_model, false), tokens);
    if (config.layer == "pre_norm") flops.projections += 4 * tokens * config.d_model * *config.feed_forward;
  }
  flops.projections += 2 * tokens * config.d_model;  // the read-out
  return flops;
}

}  // namespace iha::models
