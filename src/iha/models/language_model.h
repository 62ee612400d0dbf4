// An autoregressive language model over bytes (or any small vocabulary): embedding, pre-norm blocks each with
// its own mixer, a last norm, and logits by a read-out of its own or the transposed embedding. Decoding
// recomputes the whole window for every token.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "iha/models/cost.h"
#include "iha/models/mixer.h"
#include "iha/nn/rms_norm.h"
#include "iha/nn/transformer_block.h"

namespace iha::models {

struct LanguageModelConfig {
  int64_t vocabulary = 256;
  int64_t d_model = 128;
  std::optional<int64_t> feed_forward = std::nullopt;  // hidden width; absent: 4 d_model
  int64_t context = 256;  // tokens of a training window; generation reads the last `context` tokens
  bool tied = true;       // the read-out is the transposed embedding
  double dropout = 0.0;   // on the residual branches; on attention weights: MixerConfig::dropout
  std::vector<MixerConfig> layers;
  friend bool operator==(const LanguageModelConfig&, const LanguageModelConfig&) = default;
};

void to_json(nlohmann::json& json, const LanguageModelConfig& config);
void from_json(const nlohmann::json& json, LanguageModelConfig& config);

struct SamplingOptions {
  int64_t tokens = 200;                         // to generate
  double temperature = 1.0;                     // 0: always the most probable token
  std::optional<int64_t> top_k = std::nullopt;  // draw from the k most probable tokens; absent: from all
  uint64_t seed = 0;                            // of a stream of its own; torch's generator is not touched
};

// Parameters: embedding, blocks.<n> (nn::TransformerBlock: blocks.0.attention.alpha_q), norm, readout.
class LanguageModelImpl : public torch::nn::Cloneable<LanguageModelImpl> {
 public:
  // Throws c10::ValueError naming the field that does not fit; patterns that see the future are refused,
  // naming layer and heads.
  explicit LanguageModelImpl(LanguageModelConfig config);

  void reset() override;  // new parameters, drawn from torch's generator
  void pretty_print(std::ostream& stream) const override;

  // tokens int64 [B, N] -> logits [B, N, vocabulary]: those at n are of token n + 1 and depend on tokens 0..n
  // only. documents (int64 [B, N], optional): tokens see their own document only.
  torch::Tensor forward(const torch::Tensor& tokens, const torch::Tensor& documents = {});

  // prompt int64 [N], N >= 1 -> the generated tokens, int64 [options.tokens]. Runs without dropout and
  // gradients, whatever the module's mode.
  torch::Tensor generate(const torch::Tensor& prompt, const SamplingOptions& options = {});

  // The softmax weights of one layer on tokens int64 [N], for looking: [H, N, P, N, P], [head, query, p, key,
  // r].
  torch::Tensor attention_weights(const torch::Tensor& tokens, int64_t layer);

  // For looking: what the attention of a layer reads on tokens int64 [N], the normed residual stream [1, N,
  // D], without dropout and gradients, and that attention itself. Both throw c10::ValueError for a layer that
  // the model lacks.
  torch::Tensor attention_input(const torch::Tensor& tokens, int64_t layer);
  nn::InterleavedHeadAttention attention(int64_t layer);

  // Hardens every layer, and `config` with it: nn::InterleavedHeadAttention::harden. Returns how many heads
  // stay learned.
  int64_t harden(double decided = 0.9);

  // Forward FLOPs of one sequence.
  Flops flops(int64_t tokens) const;

  LanguageModelConfig config;  // every defaulted field written out

 private:
  // The residual stream after the first `layers` blocks, [B, N, d_model].
  torch::Tensor hidden(const torch::Tensor& tokens, const torch::Tensor& documents, int64_t layers);
  torch::Tensor read_out(const torch::Tensor& x);
  nn::TransformerBlockImpl* block(int64_t layer);  // checked

  torch::nn::Embedding embedding_{nullptr};
  torch::nn::ModuleList blocks_{nullptr};
  nn::RMSNorm norm_{nullptr};
  torch::nn::Linear readout_{nullptr};  // none where tied
};
TORCH_MODULE(LanguageModel);

}  // namespace iha::models
