// How one attention layer mixes its heads, as a small value with a name for the command line and a place in
// JSON files, and the schedules that give every layer of a model its mixer. Not here: the layer itself (nn/).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "iha/nn/interleaved_head_attention.h"
#include "iha/patterns/pattern.h"

namespace iha::models {

// Kinds:
//   plain        ordinary heads, one pattern for all
//   modes        ordinary heads, one pattern a head
//   averaged     pseudo-heads side by side, averaged (the published `IHAAttention`)
//   interleaved  pseudo-heads interleaved into the sequence (arXiv:2602.21371)
//   mixed        ordinary heads whose q, k, v are mixed over heads before the softmax
// An absent field means the kind's own choice; `resolved` writes it out.
struct MixerConfig {
  std::string kind = "plain";
  int64_t heads = 4;
  std::optional<int64_t> kv_heads = std::nullopt;  // absent: as many as heads
  std::optional<int64_t> head_dim = std::nullopt;  // absent: d_model / heads
  // Absent: as many as heads for averaged and interleaved, 1 for the others.
  std::optional<int64_t> pseudo_heads = std::nullopt;
  PatternList patterns = global();
  std::optional<std::string> rope = std::nullopt;  // none, token, virtual; absent: none
  double rope_theta = 10000.0;
  // mean, per_head, global; absent: global for interleaved, mean for averaged and mixed
  std::optional<std::string> collapse = std::nullopt;
  // identity_noise, normal, random, warm_start; absent: identity_noise
  std::optional<std::string> mixing_init = std::nullopt;
  double mixing_noise = 0.3;  // standard deviation of the noise of identity_noise
  double dropout = 0.0;       // on attention weights, in training
  bool sinks = false;         // a learned sink logit a head
  bool bit_linear = false;    // every projection a BitLinear
  // Learned heads: noise on the gates' logits in training; absent: 0. Only with learned heads.
  std::optional<double> gate_noise = std::nullopt;
  // Dynamic heads: channels of an index query, queries that choose together; absent: 16, 1. Only with dynamic
  // heads.
  std::optional<int64_t> index_dim = std::nullopt, index_tile = std::nullopt;
  friend bool operator==(const MixerConfig&, const MixerConfig&) = default;
};

// The names of the kinds, in the order of the list above.
const std::vector<std::string>& mixer_kinds();

// The configuration with every defaulted field written out for a layer of width `d_model`. Throws
// c10::ValueError naming the field that does not fit: an unknown kind, heads that do not divide d_model,
// several patterns for `plain`, pseudo-heads for a kind that has none.
MixerConfig resolved(const MixerConfig& config, int64_t d_model);

// The options of the layer. `autoregressive`: patterns that see the future are refused, naming the heads.
nn::InterleavedHeadAttentionOptions layer_options(const MixerConfig& config, int64_t d_model,
                                                  bool autoregressive);

// Hardens the layer (nn::InterleavedHeadAttention::harden) and writes its patterns into the configuration it
// was made of; `plain`, which has one pattern for all heads, becomes `modes`. Returns how many heads stay
// learned.
int64_t harden(nn::InterleavedHeadAttentionImpl& layer, MixerConfig& config, double decided);

// JSON: an object with the fields above, patterns in their text form. Reading takes absent fields for their
// defaults and throws std::invalid_argument for unknown ones.
void to_json(nlohmann::json& json, const MixerConfig& config);
void from_json(const nlohmann::json& json, MixerConfig& config);

// `layers` mixers for an autoregressive model that reads `tokens` tokens at a time. `name` is a kind, which
// then serves every layer, or `paper`: four local interleaved layers, of causal windows of iha::paper_window
// tokens, to one of plain causal heads, beginning with the local ones. `base` gives heads, pseudo-heads,
// dropout and so on, and the patterns of every layer but those of `paper`; without a `rope` interleaved
// layers turn virtual positions and others tokens. Throws c10::ValueError for an unknown name, listing the
// names, and std::invalid_argument where `paper` leaves no window.
std::vector<MixerConfig> layer_schedule(const std::string& name, int64_t layers, int64_t tokens,
                                        const MixerConfig& base);

}  // namespace iha::models
