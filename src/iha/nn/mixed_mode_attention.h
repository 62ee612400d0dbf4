// The published LibTorch layer of per-head modes by its own names: every head is causal, sliding or global, P
// = 1, no mixing, projections W_q, W_k, W_v, W_o with biases. Weights saved by that layer load here under
// their own names:
//
//   using namespace iha::nn;
//   std::vector<AttentionMode> modes(12, AttentionMode::Causal);
//   InterleavedHeadAttention layer(/*heads=*/12, /*d_model=*/768, /*window=*/256, modes);
//
// It is the layer of interleaved_head_attention.h under other names, so everything said there holds.
#pragma once

#include <cstdint>
#include <vector>

#include "iha/nn/interleaved_head_attention.h"

namespace iha::nn {

// Causal -> causal, Sliding -> sliding:window (`window` tokens on each side), Global -> global.
// Throws c10::ValueError for a negative window.
PatternList mode_patterns(int64_t window, const std::vector<AttentionMode>& modes);

// The published layer's options for any patterns: one for all heads, or one a head.
InterleavedHeadAttentionOptions mixed_mode_options(int64_t heads, int64_t d_model,
                                                   const PatternList& patterns);

}  // namespace iha::nn
