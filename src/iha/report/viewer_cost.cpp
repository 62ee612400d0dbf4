// What the viewer's cost panel shows.
#include <algorithm>
#include <vector>

#include "iha/core/error.h"
#include "iha/report/viewer.h"
#include "iha/schedule/kept_keys.h"

namespace iha::report {
namespace {

constexpr double kWeightBytes = 4;  // of one weight, were it stored: float32

struct Sizes {
  LayerShape shape;
  int64_t group = 1;  // heads that share a key head
  int64_t bytes_per_value = 4;
};

ViewedCost cost_of(int64_t pairs, int64_t kept, const Sizes& sizes) {
  const auto head_dim = static_cast<double>(sizes.shape.head_dim);
  return {
      .pairs = pairs,
      .flops = 4.0 * static_cast<double>(pairs) * head_dim,
      .weight_bytes = kWeightBytes * static_cast<double>(pairs),
      .cache_bytes = 2.0 * static_cast<double>(kept) * head_dim * static_cast<double>(sizes.bytes_per_value)};
}

// The whole layer. A key head keeps what the neediest of its query heads needs; windows that lie apart would
// need their union, which no named pattern has but `every` beside a window.
ViewedCost cost_of(const std::vector<Pattern>& heads, const Sizes& sizes) {
  int64_t kept = 0;
  const auto group = static_cast<std::size_t>(sizes.group);
  for (std::size_t first = 0; first < heads.size(); first += group) {
    int64_t most = 0;
    for (std::size_t head = first; head < first + group; ++head)
      most = std::max(most, kept_keys(heads[head], sizes.shape.tokens));
    kept += most;
  }
  return cost_of(layer_cost(heads, sizes.shape).pairs, kept, sizes);
}

ViewedCosts costs_of(const std::vector<Pattern>& heads, const Sizes& sizes) {
  const auto all = [&](const Pattern& pattern) {
    return cost_of(std::vector<Pattern>(heads.size(), pattern), sizes);
  };
  return {.own = cost_of(heads, sizes), .causal = all(causal()), .global = all(global())};
}

}  // namespace

void add_costs(ViewedLayer& layer, const LayerShape& shape, int64_t kv_heads, int64_t bytes_per_value) {
  const auto heads = static_cast<int64_t>(layer.heads.size());
  check(heads == 0 || (kv_heads >= 1 && heads % kv_heads == 0), "report: ", heads,
        " heads is not a multiple of ", kv_heads, " key heads");
  Sizes sizes{.shape = shape, .group = heads == 0 ? 1 : heads / kv_heads, .bytes_per_value = bytes_per_value};
  std::vector<Pattern> patterns;
  for (const ViewedHead& head : layer.heads) patterns.push_back(head.pattern);
  layer.cost = costs_of(patterns, sizes);
  sizes.group = 1;
  for (ViewedHead& head : layer.heads) head.cost = costs_of({head.pattern}, sizes);
}

}  // namespace iha::report
