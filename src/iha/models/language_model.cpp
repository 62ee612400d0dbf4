#include "iha/models/language_model.h"

#include <torch/nn/init.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>
#include <utility>

#include "iha/core/philox.h"
#include "iha/models/json_fields.h"

namespace iha::models {
namespace {

constexpr auto kName = "iha::models::LanguageModel: ";

// Standard deviation of the embedding at first. Small, since with tied weights it is the read-out too: logits
// of the normed output then have a deviation of 0.02 sqrt(d_model), and training begins at about the uniform
// guess.
constexpr double kEmbeddingDeviation = 0.02;

template <class Visitor, class Config>
void visit(Visitor& visitor, Config& config) {
  visitor("vocabulary", config.vocabulary);
  visitor("d_model", config.d_model);
  visitor("feed_forward", config.feed_forward);
  visitor("context", config.context);
  visitor("tied", config.tied);
  visitor("dropout", config.dropout);
  visitor("layers", config.layers);
}

LanguageModelConfig resolved_model(LanguageModelConfig config) {
  TORCH_CHECK_VALUE(config.vocabulary >= 1 && config.context >= 1, kName, "a vocabulary of ",
                    config.vocabulary, " and a context of ", config.context, ", expected at least 1 of each");
  if (!config.feed_forward) config.feed_forward = 4 * config.d_model;
  for (MixerConfig& layer : config.layers) layer = resolved(layer, config.d_model);
  return config;
}

// Evaluation without gradients for a scope; the module's mode is put back at its end.
class Evaluation {
 public:
  explicit Evaluation(torch::nn::Module& module) : module_(module), training_(module.is_training()) {
    module_.eval();
  }
  ~Evaluation() { module_.train(training_); }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

 private:
  torch::NoGradGuard no_grad_;
  torch::nn::Module& module_;
  bool training_;
};

// Ids from the most to the least probable; the lower id first among equals.
std::vector<int64_t> by_probability(const std::vector<double>& logits) {
  std::vector<int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), int64_t{0});
  std::ranges::stable_sort(ids, [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  return ids;
}

int64_t draw_token(const std::vector<double>& logits, const SamplingOptions& options, PhiloxStream& stream) {
  std::vector<int64_t> ids = by_probability(logits);
  if (options.temperature == 0) return ids[0];
  if (options.top_k) ids.resize(std::min<size_t>(ids.size(), *options.top_k));
  std::vector<double> cumulative;
  double total = 0;
  for (const int64_t id : ids) {
    total += std::exp((logits[id] - logits[ids[0]]) / options.temperature);
    cumulative.push_back(total);
  }
  const auto drawn = std::ranges::upper_bound(cumulative, stream.next_double() * total);
  return ids[std::min<size_t>(drawn - cumulative.begin(), ids.size() - 1)];
}

}  // namespace

void to_json(nlohmann::json& json, const LanguageModelConfig& config) {
  JsonWriter writer(json);
  visit(writer, config);
}

void from_json(const nlohmann::json& json, LanguageModelConfig& config) {
  JsonReader reader(json, "language model");
  visit(reader, config);
  reader.finish();
}

LanguageModelImpl::LanguageModelImpl(LanguageModelConfig config) : config(resolved_model(std::move(config))) {
  reset();
}

void LanguageModelImpl::reset() {
  embedding_ = register_module("embedding", torch::nn::Embedding(config.vocabulary, config.d_model));
  blocks_ = register_module("blocks", torch::nn::ModuleList());
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    try {
      const nn::InterleavedHeadAttentionOptions options =
          layer_options(config.layers[layer], config.d_model, true);
      blocks_->push_back(nn::TransformerBlock(
          nn::TransformerBlockOptions(options).hidden(config.feed_forward).dropout(config.dropout)));
    } catch (const c10::ValueError& error) {
      TORCH_CHECK_VALUE(false, kName, "layer ", layer, ": ", error.what_without_backtrace());
    }
  }
  norm_ = register_module("norm", nn::RMSNorm(config.d_model));
  if (!config.tied) {
    readout_ = register_module(
        "readout",
        torch::nn::Linear(torch::nn::LinearOptions(config.d_model, config.vocabulary).bias(false)));
  }
  torch::nn::init::normal_(embedding_->weight, 0.0, kEmbeddingDeviation);
}

void LanguageModelImpl::pretty_print(std::ostream& stream) const {
  stream << "iha::models::LanguageModel(" << nlohmann::json(config).dump() << ")";
}

torch::Tensor LanguageModelImpl::hidden(const torch::Tensor& tokens, const torch::Tensor& documents,
                                        int64_t layers) {
  TORCH_CHECK_VALUE(tokens.dim() == 2 && tokens.scalar_type() == torch::kInt64, kName, "tokens ",
                    tokens.sizes(), " of ", tokens.scalar_type(), ", expected [B, N] of int64");
  torch::Tensor x = embedding_(tokens);
  nn::AttentionCall call;
  call.documents = documents;
  for (int64_t layer = 0; layer < layers; ++layer) {
    x = blocks_[layer]->as<nn::TransformerBlockImpl>()->forward(x, call);
  }
  return x;
}

torch::Tensor LanguageModelImpl::read_out(const torch::Tensor& x) {
  const torch::Tensor normed = norm_(x);
  return config.tied ? normed.matmul(embedding_->weight.t()) : readout_(normed);
}

torch::Tensor LanguageModelImpl::forward(const torch::Tensor& tokens, const torch::Tensor& documents) {
  return read_out(hidden(tokens, documents, static_cast<int64_t>(blocks_->size())));
}

torch::Tensor LanguageModelImpl::generate(const torch::Tensor& prompt, const SamplingOptions& options) {
  TORCH_CHECK_VALUE(prompt.dim() == 1 && prompt.numel() >= 1 && prompt.scalar_type() == torch::kInt64, kName,
                    "a prompt ", prompt.sizes(), " of ", prompt.scalar_type(),
                    ", expected [N] of int64 with N >= 1");
  TORCH_CHECK_VALUE(options.tokens >= 0 && options.temperature >= 0 && options.top_k.value_or(1) >= 1, kName,
                    options.tokens, " tokens, temperature ", options.temperature, ", top_k ",
                    options.top_k.value_or(1), ", expected at least 0, 0 and 1");
  const Evaluation evaluation(*this);
  const auto device = embedding_->weight.device();
  torch::Tensor window = prompt.to(device);
  PhiloxStream stream(options.seed);
  torch::Tensor generated = torch::empty({options.tokens}, torch::kInt64);
  for (int64_t n = 0; n < options.tokens; ++n) {
    window = window.slice(0, std::max<int64_t>(0, window.size(0) - config.context));
    const torch::Tensor x = hidden(window.unsqueeze(0), {}, static_cast<int64_t>(blocks_->size()));
    const torch::Tensor last =
        read_out(x.select(1, -1)).flatten().to(torch::kCPU, torch::kFloat64).contiguous();
    TORCH_CHECK_VALUE(last.isfinite().all().item<bool>(), kName, "logits that are not finite after ", n,
                      " generated tokens");
    const std::vector<double> logits(last.data_ptr<double>(), last.data_ptr<double>() + last.numel());
    const int64_t token = draw_token(logits, options, stream);
    generated[n] = token;
    window = torch::cat({window, torch::full({1}, token, window.options())});
  }
  return generated;
}

nn::TransformerBlockImpl* LanguageModelImpl::block(int64_t layer) {
  TORCH_CHECK_VALUE(layer >= 0 && layer < static_cast<int64_t>(blocks_->size()), kName, "layer ", layer,
                    ", expected one below ", blocks_->size());
  return blocks_[layer]->as<nn::TransformerBlockImpl>();
}

torch::Tensor LanguageModelImpl::attention_input(const torch::Tensor& tokens, int64_t layer) {
  TORCH_CHECK_VALUE(tokens.dim() == 1, kName, "tokens ", tokens.sizes(), ", expected [N]");
  nn::TransformerBlockImpl* reader = block(layer);
  const Evaluation evaluation(*this);
  return reader->norm1.forward(hidden(tokens.unsqueeze(0), {}, layer));
}

nn::InterleavedHeadAttention LanguageModelImpl::attention(int64_t layer) {
  return block(layer)->attention;
}

torch::Tensor LanguageModelImpl::attention_weights(const torch::Tensor& tokens, int64_t layer) {
  const torch::Tensor x = attention_input(tokens, layer);
  return attention(layer)->weights(x, torch::arange(tokens.size(0), tokens.options())).squeeze(0);
}

int64_t LanguageModelImpl::harden(double decided) {
  int64_t learned = 0;
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    auto& attention = *blocks_[layer]->as<nn::TransformerBlockImpl>()->attention;
    learned += models::harden(attention, config.layers[layer], decided);
  }
  return learned;
}

Flops LanguageModelImpl::flops(int64_t tokens) const {
  Flops flops;
  for (const MixerConfig& mixer : config.layers) {
    flops += attention_flops(layer_options(mixer, config.d_model, true), tokens);
    flops.projections += 4 * tokens * config.d_model * *config.feed_forward;
  }
  flops.projections += 2 * tokens * config.d_model * config.vocabulary;
  return flops;
}

}  // namespace iha::models
