// A tagger of sequences of symbols: every token gets `outputs` logits. It has no embedding of positions, so
// without RoPE nothing but the heads' patterns tells it where a token stands. The model of the tasks that
// show heads that choose. Not here: grids (token_tagger.h), next tokens (language_model.h).
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "iha/models/cost.h"
#include "iha/models/mixer.h"
#include "iha/nn/rms_norm.h"

namespace iha::models {

struct SequenceTaggerConfig {
  int64_t vocabulary = 2;  // symbols
  int64_t outputs = 1;     // logits a token
  int64_t d_model = 64;
  std::optional<int64_t> feed_forward = std::nullopt;  // hidden width; absent: 4 d_model
  bool autoregressive = false;                         // refuse patterns that see later tokens
  std::vector<MixerConfig> layers = {MixerConfig{}};
  friend bool operator==(const SequenceTaggerConfig&, const SequenceTaggerConfig&) = default;
};

void to_json(nlohmann::json& json, const SequenceTaggerConfig& config);
void from_json(const nlohmann::json& json, SequenceTaggerConfig& config);

// Parameters: embedding, blocks.<n> (nn::TransformerBlock), norm, readout.
class SequenceTaggerImpl : public torch::nn::Cloneable<SequenceTaggerImpl> {
 public:
  // Throws c10::ValueError naming the field that does not fit.
  explicit SequenceTaggerImpl(SequenceTaggerConfig config);

  void reset() override;  // new parameters, drawn from torch's generator
  void pretty_print(std::ostream& stream) const override;

  // symbols int64 [B, N] -> logits [B, N, outputs].
  torch::Tensor forward(const torch::Tensor& symbols);

  // Hardens every layer, and `config` with it: nn::InterleavedHeadAttention::harden. Returns how many heads
  // stay learned.
  int64_t harden(double decided = 0.9);

  // Forward FLOPs of one sequence.
  Flops flops(int64_t tokens) const;

  SequenceTaggerConfig config;  // every defaulted field written out

 private:
  torch::nn::Embedding embedding_{nullptr};
  torch::nn::ModuleList blocks_{nullptr};
  nn::RMSNorm norm_{nullptr};
  torch::nn::Linear readout_{nullptr};
};
TORCH_MODULE(SequenceTagger);

}  // namespace iha::models
