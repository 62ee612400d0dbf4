#include "iha/schedule/paper_schedule.h"

#include <algorithm>
#include <cmath>

#include "iha/core/error.h"
#include "iha/schedule/layer_cost.h"

namespace iha {
namespace {

constexpr auto kName = "iha::paper_schedule: ";
constexpr double kLseBytes = 4;  // one float32 a pseudo-query

void check_model(const PaperModel& model) {
  const auto at_least_one = [](int64_t value, const char* what) {
    check(value >= 1, kName, what, " is ", value, ", expected at least 1");
  };
  at_least_one(model.heads, "the number of heads");
  at_least_one(model.kv_heads, "the number of key heads");
  at_least_one(model.layers, "the number of layers");
  at_least_one(model.head_dim, "the head dimension");
  at_least_one(model.bytes_per_value, "the size of a value");
  check(model.heads % model.kv_heads == 0, kName, model.heads, " heads is not a multiple of ", model.kv_heads,
        " key heads");
}

// Bytes that stay from the forward pass if q, k and v are kept `copies` times a token.
double kept_bytes(const PaperModel& model, int64_t copies, int64_t pseudo_heads) {
  const auto tokens = static_cast<double>(model.tokens);
  const auto heads = static_cast<double>(model.heads);
  const double value_bytes = static_cast<double>(model.bytes_per_value * model.head_dim);
  const double inputs = (heads + 2.0 * static_cast<double>(model.kv_heads)) * static_cast<double>(copies);
  const double outputs = heads * static_cast<double>(pseudo_heads);
  return tokens * ((inputs + outputs) * value_bytes + outputs * kLseBytes);
}

PlannedLayer planned_layer(const PaperModel& model, const Pattern& pattern, int64_t pseudo_heads) {
  const auto tokens = static_cast<double>(model.tokens);
  const LayerShape shape{.tokens = model.tokens, .head_dim = model.head_dim, .pseudo_heads = pseudo_heads};
  const HeadCost head = layer_cost({pattern}, shape).heads.front();
  const bool local = pattern.left != Pattern::kUnbounded;
  const double side = tokens * static_cast<double>(pseudo_heads);
  const int64_t cached = local ? std::min(model.tokens, pattern.left + 1) : model.tokens;
  PlannedLayer layer{.pattern = pattern, .pseudo_heads = pseudo_heads, .pairs = head.pairs};
  layer.paper_pairs = side * side * (local ? static_cast<double>(pattern.left) / tokens : 1.0);
  layer.flops = head.flops * static_cast<double>(model.heads);
  layer.cache_bytes = 2.0 * static_cast<double>(cached * model.kv_heads) *
                      static_cast<double>(model.head_dim * model.bytes_per_value);
  layer.saved_bytes = kept_bytes(model, 1, pseudo_heads);
  layer.unfused_bytes = kept_bytes(model, pseudo_heads, pseudo_heads) + (local ? side * side : 0.0);
  return layer;
}

std::vector<std::string> warnings_of(const PaperModel& model, int64_t window) {
  std::vector<std::string> warnings;
  if (window < kUsefulWindow) {
    const int64_t tokens = 2 * model.pseudo_heads * model.pseudo_heads * kUsefulWindow;
    const auto most =
        static_cast<int64_t>(std::sqrt(static_cast<double>(model.tokens) / (2.0 * kUsefulWindow)));
    warnings.push_back(text("the local layers see ", window, " tokens back, fewer than ", kUsefulWindow,
                            ": take ", tokens, " tokens or more",
                            most >= 1 ? text(", or at most ", most, " pseudo-heads") : ""));
  }
  if (model.pseudo_heads == 1) {
    warnings.emplace_back(
        "with 1 pseudo-head the local layers are plain sliding windows, nothing is interleaved");
  }
  if (model.layers < 5) {
    warnings.push_back(text("fewer than 5 layers hold no ordinary one: nothing is carried farther than ",
                            model.layers * window, " tokens"));
  }
  return warnings;
}

}  // namespace

int64_t paper_window(int64_t tokens, int64_t pseudo_heads) {
  check(tokens >= 1, kName, tokens, " tokens, expected at least 1");
  check(pseudo_heads >= 1, kName, pseudo_heads, " pseudo-heads, expected at least 1");
  // Two divisions, since P^2 may not fit: floor(floor(a / b) / c) = floor(a / (b c)).
  const int64_t window = tokens / 2 / pseudo_heads / pseudo_heads;
  check(window >= 1, kName, tokens, " tokens and ", pseudo_heads,
        " pseudo-heads leave no window, expected at least 2 P^2 tokens");
  return window;
}

PaperSchedule paper_schedule(const PaperModel& given) {
  PaperModel model = given;
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  check_model(model);
  PaperSchedule schedule;
  schedule.window = paper_window(model.tokens, model.pseudo_heads);
  schedule.local = planned_layer(model, causal_sliding(schedule.window), model.pseudo_heads);
  schedule.ordinary = planned_layer(model, causal(), 1);
  schedule.ordinary.layers = model.layers / 5;
  schedule.local.layers = model.layers - schedule.ordinary.layers;

  const auto layers = static_cast<double>(model.layers);
  const auto over_layers = [&](double local, double ordinary) {
    return static_cast<double>(schedule.local.layers) * local +
           static_cast<double>(schedule.ordinary.layers) * ordinary;
  };
  schedule.flops = over_layers(schedule.local.flops, schedule.ordinary.flops);
  schedule.plain_flops = layers * schedule.ordinary.flops;
  schedule.everywhere_flops = layers * planned_layer(model, causal(), model.pseudo_heads).flops;
  schedule.share_of_plain = schedule.flops / schedule.plain_flops;
  schedule.paper_share = over_layers(schedule.local.paper_pairs, schedule.ordinary.paper_pairs) /
                         (layers * schedule.ordinary.paper_pairs);
  schedule.cache_bytes = over_layers(schedule.local.cache_bytes, schedule.ordinary.cache_bytes);
  schedule.plain_cache_bytes = layers * schedule.ordinary.cache_bytes;
  schedule.warnings = warnings_of(model, schedule.window);
  return schedule;
}

}  // namespace iha
