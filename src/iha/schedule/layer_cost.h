// What the heads of one layer cost, counted pair by pair from their patterns. Not here: projections, mixing
// and collapse (linear in tokens), times (measured, not computed), whole models (paper_schedule.h).
#pragma once

#include <cstdint>
#include <vector>

#include "iha/patterns/pattern.h"

namespace iha {

// Self-attention of one sequence.
struct LayerShape {
  int64_t tokens = 0;
  int64_t head_dim = 0;
  int64_t pseudo_heads = 1;  // P
  bool interleaved = true;   // false: the parallel layout
  bool flat = true;          // false: token order
};

struct HeadCost {
  Pattern pattern;
  int64_t pairs = 0;          // (pseudo-query, pseudo-key) pairs, visible; of a dynamic head: read at most
  double share_of_dense = 0;  // of the pairs of a global head; 0 without tokens
  double flops = 0;  // forward: 4 * pairs * head_dim, two products of a multiplication and an addition each
};

struct LayerCost {
  std::vector<HeadCost> heads;
  int64_t pairs = 0;  // of all heads
  double flops = 0;
  int64_t all_causal_pairs = 0;  // were every head causal
  int64_t all_global_pairs = 0;  // were every head global

  // How many times the pairs of the other layer; 1 without tokens or heads.
  double against_all_causal() const;
  double against_all_global() const;
};

// O(tokens) for each distinct pattern. Throws std::invalid_argument for sizes below 0, P < 1, and for layers
// whose dense pairs exceed an int64.
LayerCost layer_cost(const std::vector<Pattern>& heads, const LayerShape& shape);

}  // namespace iha
