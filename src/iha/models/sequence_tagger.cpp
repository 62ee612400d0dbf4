#include "iha/models/sequence_tagger.h"

#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "iha/models/json_fields.h"
#include "iha/nn/transformer_block.h"

namespace iha::models {
namespace {

constexpr auto kName = "iha::models::SequenceTagger: ";

template <class Visitor, class Config>
void visit(Visitor& visitor, Config& config) {
  visitor("vocabulary", config.vocabulary);
  visitor("outputs", config.outputs);
  visitor("d_model", config.d_model);
  visitor("feed_forward", config.feed_forward);
  visitor("autoregressive", config.autoregressive);
  visitor("layers", config.layers);
}

SequenceTaggerConfig resolved_tagger(SequenceTaggerConfig config) {
  TORCH_CHECK_VALUE(config.vocabulary >= 1 && config.outputs >= 1, kName, "a vocabulary of ",
                    config.vocabulary, " and ", config.outputs, " outputs, expected at least 1 of each");
  if (!config.feed_forward) config.feed_forward = 4 * config.d_model;
  for (MixerConfig& layer : config.layers) layer = resolved(layer, config.d_model);
  return config;
}

}  // namespace

void to_json(nlohmann::json& json, const SequenceTaggerConfig& config) {
  JsonWriter writer(json);
  visit(writer, config);
}

void from_json(const nlohmann::json& json, SequenceTaggerConfig& config) {
  JsonReader reader(json, "sequence tagger");
  visit(reader, config);
  reader.finish();
}

SequenceTaggerImpl::SequenceTaggerImpl(SequenceTaggerConfig config)
    : config(resolved_tagger(std::move(config))) {
  reset();
}

void SequenceTaggerImpl::reset() {
  embedding_ = register_module("embedding", torch::nn::Embedding(config.vocabulary, config.d_model));
  blocks_ = register_module("blocks", torch::nn::ModuleList());
  for (const MixerConfig& mixer : config.layers) {
    const auto options = layer_options(mixer, config.d_model, config.autoregressive);
    blocks_->push_back(
        nn::TransformerBlock(nn::TransformerBlockOptions(options).hidden(config.feed_forward)));
  }
  norm_ = register_module("norm", nn::RMSNorm(config.d_model));
  readout_ = register_module("readout", torch::nn::Linear(config.d_model, config.outputs));
}

void SequenceTaggerImpl::pretty_print(std::ostream& stream) const {
  stream << "iha::models::SequenceTagger(" << nlohmann::json(config).dump() << ")";
}

torch::Tensor SequenceTaggerImpl::forward(const torch::Tensor& symbols) {
  TORCH_CHECK_VALUE(symbols.dim() == 2 && symbols.scalar_type() == torch::kInt64, kName, "symbols ",
                    symbols.sizes(), " of ", symbols.scalar_type(), ", expected [B, N] of int64");
  torch::Tensor x = embedding_(symbols);
  for (const auto& block : *blocks_) x = block->as<nn::TransformerBlockImpl>()->forward(x);
  return readout_(norm_(x));
}

int64_t SequenceTaggerImpl::harden(double decided) {
  int64_t learned = 0;
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    auto& attention = *blocks_[layer]->as<nn::TransformerBlockImpl>()->attention;
    learned += models::harden(attention, config.layers[layer], decided);
  }
  return learned;
}

Flops SequenceTaggerImpl::flops(int64_t tokens) const {
  Flops flops;
  for (const MixerConfig& mixer : config.layers) {
    flops += attention_flops(layer_options(mixer, config.d_model, config.autoregressive), tokens);
    flops.projections += 4 * tokens * config.d_model * *config.feed_forward;
  }
  flops.projections += 2 * tokens * config.d_model * config.outputs;
  return flops;
}

}  // namespace iha::models
