#include "iha/kernels/reference/pair_weights.h"

#include "iha/core/error.h"

namespace iha::reference {

void check_weights(const Problem& problem, const Inputs& inputs, std::string_view operator_name) {
  const int64_t modes = problem.modes(), blocks = problem.key_blocks();
  check(modes == 0 || inputs.mode_weights != nullptr, operator_name,
        ": mode_weights is absent, expected [query heads, ", modes, "] for learned heads");
  const bool any_rows = problem.batch > 0 && problem.queries > 0;
  check(blocks == 0 || !any_rows || inputs.block_weights != nullptr, operator_name,
        ": block_weights is absent, expected [batch, query heads, queries, ", blocks, "] for dynamic heads");
  for (int64_t h = 0; h < problem.query_heads; ++h) {
    const Pattern& pattern = problem.patterns[h];
    for (std::size_t m = 0; m < pattern.candidates.size(); ++m) {
      check_weight(inputs.mode_weights[h * modes + static_cast<int64_t>(m)], operator_name, "mode_weights");
    }
    if (!pattern.dynamic()) continue;
    const int64_t size = problem.queries * blocks;
    for (int64_t b = 0; b < problem.batch; ++b) {
      const double* weights = inputs.block_weights + (b * problem.query_heads + h) * size;
      for (int64_t at = 0; at < size; ++at) check_weight(weights[at], operator_name, "block_weights");
    }
  }
}

int64_t PairWeights::block_at(int64_t h, int64_t i, int64_t j) const {
  return (h * problem_.queries + i) * problem_.key_blocks() + j / problem_.block();
}

double PairWeights::weight(int64_t h, int64_t i, int64_t j, uint32_t candidates) const {
  const Pattern& pattern = problem_.patterns[h];
  if (candidates == 0) return 0;
  if (pattern.dynamic()) return counted_weight(inputs_.block_weights[block_at(h, i, j)]);
  if (!pattern.learned()) return 1;
  double sum = 0;
  for (int64_t m = 0; candidates >> m != 0; ++m) {
    if (candidates >> m & 1u) sum += counted_weight(inputs_.mode_weights[h * problem_.modes() + m]);
  }
  return sum;
}

void PairWeights::add_gradient(int64_t h, int64_t i, int64_t j, uint32_t candidates, double bias,
                               Gradients& gradients) const {
  const Pattern& pattern = problem_.patterns[h];
  if (!pattern.dynamic() && !pattern.learned()) return;
  const double gradient = bias / weight(h, i, j, candidates);
  if (pattern.dynamic()) {
    gradients.block_weights[block_at(h, i, j)] += gradient;
    return;
  }
  for (int64_t m = 0; candidates >> m != 0; ++m) {
    if (candidates >> m & 1u) gradients.mode_weights[h * problem_.modes() + m] += gradient;
  }
}

}  // namespace iha::reference
