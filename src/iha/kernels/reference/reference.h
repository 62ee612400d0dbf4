// The oracle: pseudo-head attention in float64 by plain loops, forward, backward and weights, written to be
// read next to the formulas of docs/operator.md. Every other path is tested against it. Not for speed.
#pragma once

#include <cstdint>
#include <vector>

#include "iha/kernels/problem.h"

namespace iha::reference {

// Contiguous float64 arrays; null where an optional one is absent.
struct Inputs {
  const double* query = nullptr;          // [B, Hq, Nq, d]
  const double* key = nullptr;            // [B, Hkv, Nk, d]
  const double* value = nullptr;          // [B, Hkv, Nk, dv]
  const double* alpha_q = nullptr;        // [Hq, Hq, P]
  const double* alpha_k = nullptr;        // [Hkv, Hkv, P]
  const double* alpha_v = nullptr;        // [Hkv, Hkv, P]
  const double* collapse = nullptr;       // [Hq, P] or [Hq, Hq, P], by problem.collapse
  const double* sinks = nullptr;          // [Hq]
  const double* mode_weights = nullptr;   // [Hq, M], with learned heads
  const double* block_weights = nullptr;  // [B, Hq, Nq, blocks], with dynamic heads
};

struct Outputs {
  std::vector<double> out;    // [B, Hq, Nq, dv]
  std::vector<double> parts;  // [B, Hq, Nq, P, dv]
  std::vector<double> lse;    // [B, Hq, Nq, P]
};

// The upstream gradients: those of sum(out * grad.out) + sum(parts * grad.parts) + sum(lse * grad.lse), the
// last over pseudo-queries that see a key. Null: zero.
struct Upstream {
  const double* out = nullptr;
  const double* parts = nullptr;
  const double* lse = nullptr;
};

// Shapes of the inputs of the same name; empty where the input is absent.
struct Gradients {
  std::vector<double> query, key, value, alpha_q, alpha_k, alpha_v, collapse, sinks, mode_weights,
      block_weights;
};

Outputs forward(const Problem& problem, const Inputs& inputs);
Gradients backward(const Problem& problem, const Inputs& inputs, const Upstream& upstream);
// Softmax weights (without dropout) of the query rows `rows`: [B, Hq, R, P, Nk, P].
std::vector<double> weights(const Problem& problem, const Inputs& inputs, const std::vector<int64_t>& rows);

// The same by sequences, for callers that spread them over threads. `inputs` and `upstream` point at the
// slices of sequence b ([Hq, Nq, d], ...), outputs and gradients are its slices, and gradients of alpha_*,
// collapse, sinks and mode weights its share of the sum over the batch. The problem is checked already.
Inputs sequence_of(const Problem& problem, Inputs inputs, int64_t b);
Outputs forward_sequence(const Problem& problem, const Visibility& visible, const Inputs& inputs, int64_t b);
Gradients backward_sequence(const Problem& problem, const Visibility& visible, const Inputs& inputs,
                            const Upstream& upstream, int64_t b);
// Gradients of alpha_*, collapse, sinks and mode weights of the whole batch, all zero; the others are left
// empty.
Gradients zero_shared(const Problem& problem, const Inputs& inputs);
// Adds a sequence's share of these to `total`.
void add_shared(Gradients& total, const Gradients& share);

}  // namespace iha::reference
