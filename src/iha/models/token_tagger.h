// A bidirectional tagger of the cells of square grids: every cell is a token, every token gets one logit. The
// model of the relation-composition comparison, and a small encoder for any m x m table of symbols.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "iha/models/cost.h"
#include "iha/models/mixer.h"

namespace iha::models {

struct TokenTaggerConfig {
  int64_t values = 2;    // symbols a cell may hold
  int64_t max_side = 5;  // largest m: rows and columns that have an embedding
  int64_t d_model = 64;
  // What is around the attention of a layer:
  //   bare           x' = attention(x)
  //   residual_norm  x' = LayerNorm(x + attention(x)); the embedding goes through a LayerNorm too
  //   pre_norm       x' = x + attention(RMSNorm(x)), then the same with a feed-forward; a last RMSNorm
  std::string layer = "bare";
  std::optional<int64_t> feed_forward = std::nullopt;  // hidden width in pre_norm; absent: 4 d_model
  // One more learned vector for each (row, column), so that a position need not be a sum of two.
  bool free_embedding = false;
  std::vector<MixerConfig> layers = {MixerConfig{}};
  friend bool operator==(const TokenTaggerConfig&, const TokenTaggerConfig&) = default;
};

void to_json(nlohmann::json& json, const TokenTaggerConfig& config);
void from_json(const nlohmann::json& json, TokenTaggerConfig& config);

// A padded batch of grids, N tokens each. Padding holds any valid numbers.
struct GridTokens {
  torch::Tensor values;   // int64 [B, N]
  torch::Tensor rows;     // int64 [B, N]
  torch::Tensor columns;  // int64 [B, N]
  torch::Tensor lengths;  // int64 [B]: tokens of each grid; undefined: all N
};

// Parameters: value, row, column, free, layers.<n> (a layer of nn/: layers.0.alpha_q), norms.<n>, readout.
// x = value[v] + row[r] + column[c] (+ free[r, c]), all N(0, 1) at first; the layers; a linear read-out to
// one logit.
class TokenTaggerImpl : public torch::nn::Cloneable<TokenTaggerImpl> {
 public:
  // Throws c10::ValueError naming the field that does not fit.
  explicit TokenTaggerImpl(TokenTaggerConfig config);

  void reset() override;  // new parameters, drawn from torch's generator
  void pretty_print(std::ostream& stream) const override;

  // Logits [B, N]; those of padding mean nothing and no other cell depends on padding.
  torch::Tensor forward(const GridTokens& input);

  // For looking: what the attention of a layer reads, [B, N, D], and that attention itself. Both throw
  // c10::ValueError for a layer that the model lacks. The input runs as in forward: dropout while training.
  torch::Tensor attention_input(const GridTokens& input, int64_t layer);
  nn::InterleavedHeadAttention attention(int64_t layer);

  // Hardens every layer, and `config` with it: nn::InterleavedHeadAttention::harden. Returns how many heads
  // stay learned.
  int64_t harden(double decided = 0.9);

  // Forward FLOPs of one grid of `tokens` cells.
  Flops flops(int64_t tokens) const;

  TokenTaggerConfig config;  // every defaulted field written out

 private:
  // The tokens after the first `layers` layers, [B, N, D].
  torch::Tensor hidden(const GridTokens& input, size_t layers);
  void check_layer(int64_t layer) const;

  torch::nn::Embedding value_{nullptr}, row_{nullptr}, column_{nullptr}, free_{nullptr};
  torch::nn::ModuleList layers_{nullptr};
  // residual_norm: LayerNorms of the embedding and after each layer; pre_norm: the last RMSNorm; bare: none.
  torch::nn::ModuleList norms_{nullptr};
  torch::nn::Linear readout_{nullptr};
};
TORCH_MODULE(TokenTagger);

}  // namespace iha::models
