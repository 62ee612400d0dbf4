// Presets and checks of the attention layer's options: everything a layer could trip over is refused here,
// before anything is divided or allocated.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <sstream>
#include <string_view>
#include <utility>

#include "iha/nn/interleaved_head_attention.h"
#include "iha/patterns/parse.h"

namespace iha::nn {
namespace {

using Options = InterleavedHeadAttentionOptions;
constexpr std::string_view kName = "iha::nn::InterleavedHeadAttention";

int64_t at_least_one(int64_t value, std::string_view option) {
  TORCH_CHECK_VALUE(value >= 1, kName, ": ", option, " = ", value, ", expected at least 1");
  return value;
}

void check_one_of(const std::string& value, std::string_view option,
                  std::initializer_list<std::string_view> names) {
  if (std::find(names.begin(), names.end(), value) != names.end()) return;
  std::ostringstream expected;
  const char* separator = "";
  for (const auto name : names) expected << std::exchange(separator, ", ") << "'" << name << "'";
  TORCH_CHECK_VALUE(false, kName, ": ", option, " = '", value, "', expected one of ", expected.str());
}

void resolve_sizes(Options& options) {
  at_least_one(options.d_model(), "d_model");
  const auto heads = at_least_one(options.heads(), "heads");
  const auto kv_heads = at_least_one(options.kv_heads().value_or(heads), "kv_heads");
  TORCH_CHECK_VALUE(heads % kv_heads == 0, kName, ": ", heads, " heads is not a multiple of ", kv_heads,
                    " kv_heads");
  TORCH_CHECK_VALUE(options.head_dim().has_value() || options.d_model() % heads == 0, kName, ": d_model ",
                    options.d_model(), " is not a multiple of ", heads, " heads; give head_dim");
  const auto head_dim = at_least_one(options.head_dim().value_or(options.d_model() / heads), "head_dim");
  const auto pseudo_heads =
      at_least_one(options.pseudo_heads().value_or(options.mixing() ? heads : 1), "pseudo_heads");
  TORCH_CHECK_VALUE(options.mixing() || pseudo_heads == 1, kName, ": ", pseudo_heads,
                    " pseudo_heads without mixing, expected 1 (or mixing)");
  options.kv_heads(kv_heads).head_dim(head_dim).pseudo_heads(pseudo_heads);
  // A collapse without anything to collapse would be one more output projection.
  if (!options.mixing()) options.collapse("mean");
}

void check_rope(const Options& options) {
  check_one_of(options.rope(), "rope", {"none", "token", "virtual"});
  check_one_of(options.rope_style(), "rope_style", {"half", "adjacent"});
  if (options.rope() == "none") return;
  TORCH_CHECK_VALUE(*options.head_dim() % 2 == 0, kName, ": head_dim ", *options.head_dim(), " with rope = '",
                    options.rope(), "', expected an even number");
  TORCH_CHECK_VALUE(options.rope_theta() > 0 && std::isfinite(options.rope_theta()), kName,
                    ": rope_theta = ", options.rope_theta(), ", expected a positive number");
}

void check_patterns(const Options& options) {
  const auto& patterns = options.patterns();
  const auto count = static_cast<int64_t>(patterns.entries().size());
  TORCH_CHECK_VALUE(patterns.for_all() || count == options.heads(), kName, ": ", count, " patterns for ",
                    options.heads(), " heads, expected one a head, or one without a count for all");
  if (!options.autoregressive()) return;
  std::ostringstream found;
  const char* separator = "";
  const auto heads = patterns.expand(options.heads());
  for (size_t head = 0; head < heads.size(); ++head) {
    if (heads[head].causal()) continue;
    found << std::exchange(separator, ", ") << head << " (" << to_text(heads[head]) << ")";
  }
  TORCH_CHECK_VALUE(found.str().empty(), kName, ": an autoregressive layer whose heads ", found.str(),
                    " are not causal, expected patterns that see no later token");
}

void check_warm_start(const Options& options) {
  if (options.mixing_init() != MixingInit::kWarmStart || *options.pseudo_heads() == 1) return;
  TORCH_CHECK_VALUE(
      options.rope() != "virtual", kName,
      ": a warm start with rope = 'virtual', expected 'none' or 'token': virtual positions turn the "
      "copies of a key apart");
  TORCH_CHECK_VALUE(
      options.layout() == "parallel" || options.collapse() != "mean", kName,
      ": a warm start with collapse = 'mean', expected 'per_head' or 'global': under the mean all "
      "pseudo-queries of a head would stay equal");
}

void check_choosing(const Options& options) {
  for (const auto& [name, value] : {std::pair("gate_temperature", options.gate_temperature()),
                                    std::pair("gate_noise", options.gate_noise())}) {
    TORCH_CHECK_VALUE(value >= 0 && std::isfinite(value), kName, ": ", name, " = ", value,
                      ", expected a number of at least 0");
  }
  at_least_one(options.index_dim(), "index_dim");
  at_least_one(options.index_tile(), "index_tile");
}

}  // namespace

Options Options::interleaved(int64_t d_model, int64_t heads, std::optional<int64_t> pseudo_heads) {
  return Options(d_model, heads).pseudo_heads(pseudo_heads).rope("virtual");
}

Options Options::averaged(int64_t d_model, int64_t heads, std::optional<int64_t> pseudo_heads) {
  return Options(d_model, heads).pseudo_heads(pseudo_heads).layout("parallel").collapse("mean");
}

Options Options::per_head_modes(int64_t d_model, const PatternList& patterns) {
  TORCH_CHECK_VALUE(!patterns.for_all(), kName, ": per-head modes of '", to_text(patterns),
                    "', which serves any number of heads, expected one entry a head");
  return Options(d_model, static_cast<int64_t>(patterns.entries().size()))
      .pseudo_heads(1)
      .mixing(false)
      .collapse("mean")
      .patterns(patterns);
}

Options Options::mixed_heads(int64_t d_model, int64_t heads) {
  return Options(d_model, heads).pseudo_heads(1).collapse("mean");
}

Options resolve(Options options) {
  resolve_sizes(options);
  check_one_of(options.layout(), "layout", {"interleaved", "parallel"});
  check_one_of(options.order(), "order", {"flat", "token"});
  check_one_of(options.collapse(), "collapse", {"mean", "per_head", "global"});
  check_rope(options);
  TORCH_CHECK_VALUE(options.dropout() >= 0 && options.dropout() <= 1, kName,
                    ": dropout = ", options.dropout(), ", expected a probability in [0, 1]");
  TORCH_CHECK_VALUE(options.mixing_noise() >= 0 && std::isfinite(options.mixing_noise()), kName,
                    ": mixing_noise = ", options.mixing_noise(), ", expected a number of at least 0");
  check_choosing(options);
  check_patterns(options);
  check_warm_start(options);
  return options;
}

}  // namespace iha::nn
