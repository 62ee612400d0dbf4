#include "iha/schedule/layer_cost.h"

#include <algorithm>
#include <cmath>

#include "iha/core/error.h"
#include "iha/patterns/count.h"

namespace iha {
namespace {

constexpr auto kName = "iha::layer_cost: ";

double ratio(int64_t pairs, int64_t others) {
  return others == 0 ? 1.0 : static_cast<double>(pairs) / static_cast<double>(others);
}

void check_shape(const LayerShape& shape, std::size_t heads) {
  check(shape.tokens >= 0, kName, shape.tokens, " tokens, expected at least 0");
  check(shape.head_dim >= 0, kName, "head dimension ", shape.head_dim, ", expected at least 0");
  check(shape.pseudo_heads >= 1, kName, shape.pseudo_heads, " pseudo-heads, expected at least 1");
  const double side = static_cast<double>(shape.tokens) * static_cast<double>(shape.pseudo_heads);
  check(side * side * static_cast<double>(std::max<std::size_t>(heads, 1)) < std::ldexp(1.0, 62), kName,
        shape.tokens, " tokens of ", shape.pseudo_heads, " pseudo-heads and ", heads,
        " heads, expected fewer than 2^62 pairs");
}

int64_t pairs_of(const Pattern& pattern, const LayerShape& shape) {
  return read_pseudo_pairs(pattern, shape.tokens, shape.tokens, 0, shape.pseudo_heads, shape.interleaved,
                           shape.flat);
}

}  // namespace

double LayerCost::against_all_causal() const {
  return ratio(pairs, all_causal_pairs);
}
double LayerCost::against_all_global() const {
  return ratio(pairs, all_global_pairs);
}

LayerCost layer_cost(const std::vector<Pattern>& heads, const LayerShape& shape) {
  check_shape(shape, heads.size());
  const auto count = static_cast<int64_t>(heads.size());
  const int64_t dense = pairs_of(global(), shape);
  LayerCost cost{
      .heads = {}, .all_causal_pairs = count * pairs_of(causal(), shape), .all_global_pairs = count * dense};
  for (const Pattern& pattern : heads) {
    const auto same = std::find_if(cost.heads.begin(), cost.heads.end(),
                                   [&](const HeadCost& head) { return head.pattern == pattern; });
    const int64_t pairs = same != cost.heads.end() ? same->pairs : pairs_of(pattern, shape);
    const double flops = 4.0 * static_cast<double>(pairs) * static_cast<double>(shape.head_dim);
    cost.heads.push_back({.pattern = pattern,
                          .pairs = pairs,
                          .share_of_dense = dense == 0 ? 0.0 : ratio(pairs, dense),
                          .flops = flops});
    cost.pairs += pairs;
    cost.flops += flops;
  }
  return cost;
}

}  // namespace iha
