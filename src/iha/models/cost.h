// What a layer costs: forward FLOPs in closed form (a multiplication with its addition counts as two) and
// parameters. Not here: measured seconds.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>

#include "iha/nn/interleaved_head_attention.h"

namespace iha::models {

// Forward FLOPs of one sequence. Softmax, norms and activations are left out: they grow with no product of
// two widths.
struct Flops {
  int64_t projections = 0;  // q, k, v and output, feed-forward, read-out: 2 a weight and token
  int64_t mixing = 0;       // q~, k~, v~ and the collapse
  int64_t attention = 0;    // 4 d a visible pair of pseudo-tokens
  int64_t total() const { return projections + mixing + attention; }
  Flops& operator+=(const Flops& other);
  friend bool operator==(const Flops&, const Flops&) = default;
};

// One attention layer over `tokens` tokens. A dense map of `in` x `out` weights costs 2 in out a token.
Flops attention_flops(const nn::InterleavedHeadAttentionOptions& options, int64_t tokens);

// What learned heads are expected to read of `tokens` tokens, as a share of all pairs: the expected pairs of
// every learned head of the module (nn/mode_gates.h) over tokens^2 a head. A differentiable scalar in [0, 1];
// undefined where no head is learned.
torch::Tensor expected_pair_share(torch::nn::Module& module, int64_t tokens);

// Trainable numbers, each counted once (tied weights are one tensor).
int64_t parameter_count(const torch::nn::Module& module);

}  // namespace iha::models
