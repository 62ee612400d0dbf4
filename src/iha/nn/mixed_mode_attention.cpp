#include "iha/nn/mixed_mode_attention.h"

namespace iha::nn {

PatternList mode_patterns(int64_t window, const std::vector<AttentionMode>& modes) {
  TORCH_CHECK_VALUE(window >= 0, "iha::nn::InterleavedHeadAttention: window = ", window,
                    ", expected at least 0");
  std::vector<Pattern> patterns;
  patterns.reserve(modes.size());
  for (const auto mode : modes) {
    switch (mode) {
      case AttentionMode::Causal:
        patterns.push_back(causal());
        break;
      case AttentionMode::Sliding:
        patterns.push_back(sliding(window));
        break;
      case AttentionMode::Global:
        patterns.push_back(global());
        break;
    }
  }
  TORCH_CHECK_VALUE(patterns.size() == modes.size(),
                    "iha::nn::InterleavedHeadAttention: ", modes.size() - patterns.size(),
                    " modes are none of Causal, Sliding, Global");
  return patterns;
}

InterleavedHeadAttentionOptions mixed_mode_options(int64_t heads, int64_t d_model,
                                                   const PatternList& patterns) {
  return InterleavedHeadAttentionOptions(d_model, heads)
      .pseudo_heads(1)
      .mixing(false)
      .collapse("mean")
      .patterns(patterns)
      .bias(true)
      .projection_names(ProjectionNames::kW);
}

InterleavedHeadAttentionImpl::InterleavedHeadAttentionImpl(int64_t heads, int64_t d_model, int64_t window,
                                                           const std::vector<AttentionMode>& modes)
    : InterleavedHeadAttentionImpl(mixed_mode_options(heads, d_model, mode_patterns(window, modes))) {}

}  // namespace iha::nn
