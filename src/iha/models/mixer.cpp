#include "iha/models/mixer.h"

#include <algorithm>
#include <utility>

#include "iha/models/json_fields.h"
#include "iha/patterns/parse.h"
#include "iha/schedule/paper_schedule.h"

namespace iha {

// In JSON a list of patterns is its text.
static void to_json(nlohmann::json& json, const PatternList& patterns) {
  json = to_text(patterns);
}
static void from_json(const nlohmann::json& json, PatternList& patterns) {
  patterns = parse_patterns(json.get<std::string>());
}

}  // namespace iha

namespace iha::models {
namespace {

using nn::InterleavedHeadAttentionOptions;
using nn::MixingInit;

const std::vector<std::pair<std::string, MixingInit>>& mixing_inits() {
  static const std::vector<std::pair<std::string, MixingInit>> kInits = {
      {"identity_noise", MixingInit::kIdentityNoise},
      {"normal", MixingInit::kNormal},
      {"random", MixingInit::kRandom},
      {"warm_start", MixingInit::kWarmStart}};
  return kInits;
}

MixingInit parse_mixing_init(const std::string& name) {
  const auto found = std::ranges::find(mixing_inits(), name, &std::pair<std::string, MixingInit>::first);
  TORCH_CHECK_VALUE(found != mixing_inits().end(), "iha::models::MixerConfig: mixing_init `", name,
                    "`, expected identity_noise, normal, random or warm_start");
  return found->second;
}

std::string mixing_init_text(MixingInit init) {
  return std::ranges::find(mixing_inits(), init, &std::pair<std::string, MixingInit>::second)->first;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool has_pseudo_heads(const std::string& kind) {
  return kind == "averaged" || kind == "interleaved";
}
bool has_learned(const PatternList& patterns) {
  return most_candidates(patterns.entries()) > 0;
}
bool has_dynamic(const PatternList& patterns) {
  return std::ranges::any_of(patterns.entries(), &Pattern::dynamic);
}
bool has_mixing(const std::string& kind) {
  return has_pseudo_heads(kind) || kind == "mixed";
}

// What nn does not check: names of kinds, and fields that a kind has no use for.
void check_config(const MixerConfig& config) {
  constexpr auto kName = "iha::models::MixerConfig: ";
  const std::string& kind = config.kind;
  TORCH_CHECK_VALUE(std::ranges::find(mixer_kinds(), kind) != mixer_kinds().end(), kName, "kind `", kind,
                    "`, expected one of ", listed(mixer_kinds()));
  TORCH_CHECK_VALUE(has_pseudo_heads(kind) || config.pseudo_heads.value_or(1) == 1, kName,
                    config.pseudo_heads.value_or(1), " pseudo-heads for the kind `", kind, "`, expected 1");
  TORCH_CHECK_VALUE(has_mixing(kind) || (!config.collapse && !config.mixing_init), kName, "kind `", kind,
                    "` mixes no heads, expected neither collapse nor mixing_init");
  TORCH_CHECK_VALUE(has_learned(config.patterns) || !config.gate_noise, kName,
                    "gate_noise without learned heads, expected none");
  TORCH_CHECK_VALUE(has_dynamic(config.patterns) || (!config.index_dim && !config.index_tile), kName,
                    "index_dim or index_tile without dynamic heads, expected neither");
  const auto entries = static_cast<int64_t>(config.patterns.entries().size());
  TORCH_CHECK_VALUE(kind != "plain" || config.patterns.for_all(), kName, entries,
                    " patterns for the kind `plain`, expected one for all heads (`modes` takes one a head)");
  TORCH_CHECK_VALUE(config.patterns.for_all() || entries == config.heads, kName, entries, " patterns for ",
                    config.heads, " heads, expected one a head or one without a count");
}

InterleavedHeadAttentionOptions preset(const MixerConfig& config, int64_t d_model) {
  if (config.kind == "averaged") {
    return InterleavedHeadAttentionOptions::averaged(d_model, config.heads, config.pseudo_heads);
  }
  if (config.kind == "interleaved") {
    return InterleavedHeadAttentionOptions::interleaved(d_model, config.heads, config.pseudo_heads);
  }
  if (config.kind == "mixed") return InterleavedHeadAttentionOptions::mixed_heads(d_model, config.heads);
  return InterleavedHeadAttentionOptions(d_model, config.heads).pseudo_heads(1).mixing(false);
}

template <class Visitor, class Config>
void visit(Visitor& visitor, Config& config) {
  visitor("kind", config.kind);
  visitor("heads", config.heads);
  visitor("kv_heads", config.kv_heads);
  visitor("head_dim", config.head_dim);
  visitor("pseudo_heads", config.pseudo_heads);
  visitor("patterns", config.patterns);
  visitor("rope", config.rope);
  visitor("rope_theta", config.rope_theta);
  visitor("collapse", config.collapse);
  visitor("mixing_init", config.mixing_init);
  visitor("mixing_noise", config.mixing_noise);
  visitor("dropout", config.dropout);
  visitor("sinks", config.sinks);
  visitor("bit_linear", config.bit_linear);
  visitor("gate_noise", config.gate_noise);
  visitor("index_dim", config.index_dim);
  visitor("index_tile", config.index_tile);
}

}  // namespace

const std::vector<std::string>& mixer_kinds() {
  static const std::vector<std::string> kKinds = {"plain", "modes", "averaged", "interleaved", "mixed"};
  return kKinds;
}

MixerConfig resolved(const MixerConfig& config, int64_t d_model) {
  const InterleavedHeadAttentionOptions options = layer_options(config, d_model, false);
  MixerConfig result = config;
  result.kv_heads = options.kv_heads();
  result.head_dim = options.head_dim();
  result.pseudo_heads = options.pseudo_heads();
  result.rope = options.rope();
  if (has_mixing(config.kind)) {
    result.collapse = options.collapse();
    result.mixing_init = mixing_init_text(options.mixing_init());
  }
  if (has_learned(config.patterns)) result.gate_noise = options.gate_noise();
  if (has_dynamic(config.patterns)) {
    result.index_dim = options.index_dim();
    result.index_tile = options.index_tile();
  }
  return result;
}

InterleavedHeadAttentionOptions layer_options(const MixerConfig& config, int64_t d_model,
                                              bool autoregressive) {
  check_config(config);
  InterleavedHeadAttentionOptions options = preset(config, d_model);
  options.kv_heads(config.kv_heads)
      .head_dim(config.head_dim)
      .patterns(config.patterns)
      .rope(config.rope.value_or("none"))
      .rope_theta(config.rope_theta)
      .mixing_noise(config.mixing_noise)
      .dropout(config.dropout)
      .sinks(config.sinks)
      .bit_linear(config.bit_linear)
      .autoregressive(autoregressive);
  if (config.collapse) options.collapse(*config.collapse);
  if (config.mixing_init) options.mixing_init(parse_mixing_init(*config.mixing_init));
  if (config.gate_noise) options.gate_noise(*config.gate_noise);
  if (config.index_dim) options.index_dim(*config.index_dim);
  if (config.index_tile) options.index_tile(*config.index_tile);
  return nn::resolve(std::move(options));
}

int64_t harden(nn::InterleavedHeadAttentionImpl& layer, MixerConfig& config, double decided) {
  if (layer.gates.is_empty()) return 0;
  const int64_t learned = layer.harden(decided);
  config.patterns = layer.options.patterns();
  if (config.kind == "plain") config.kind = "modes";
  if (learned == 0) config.gate_noise.reset();
  return learned;
}

void to_json(nlohmann::json& json, const MixerConfig& config) {
  JsonWriter writer(json);
  visit(writer, config);
}

void from_json(const nlohmann::json& json, MixerConfig& config) {
  JsonReader reader(json, "mixer");
  visit(reader, config);
  reader.finish();
}

std::vector<MixerConfig> layer_schedule(const std::string& name, int64_t layers, int64_t tokens,
                                        const MixerConfig& base) {
  constexpr auto kName = "iha::models::layer_schedule: ";
  const bool paper = name == "paper";
  TORCH_CHECK_VALUE(paper || std::ranges::find(mixer_kinds(), name) != mixer_kinds().end(), kName, "mixer `",
                    name, "`, expected one of ", listed(mixer_kinds()), ", paper");
  TORCH_CHECK_VALUE(layers >= 1, kName, layers, " layers, expected at least 1");
  std::vector<MixerConfig> schedule;
  for (int64_t layer = 0; layer < layers; ++layer) {
    MixerConfig mixer = base;
    const bool ordinary = paper && is_ordinary_layer(layer);
    mixer.kind = !paper ? name : ordinary ? "plain" : "interleaved";
    if (!has_pseudo_heads(mixer.kind)) mixer.pseudo_heads.reset();
    if (!has_mixing(mixer.kind)) {
      mixer.collapse.reset();
      mixer.mixing_init.reset();
    }
    if (paper) {
      mixer.patterns =
          ordinary ? causal() : causal_sliding(paper_window(tokens, base.pseudo_heads.value_or(base.heads)));
    }
    if (!mixer.rope) mixer.rope = mixer.kind == "interleaved" ? "virtual" : "token";
    schedule.push_back(std::move(mixer));
  }
  return schedule;
}

}  // namespace iha::models
