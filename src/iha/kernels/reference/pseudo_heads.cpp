#include "iha/kernels/reference/pseudo_heads.h"

#include <cmath>
#include <limits>

#include "iha/core/philox.h"
#include "iha/kernels/reference/pair_weights.h"

namespace iha::reference {

Sizes query_sizes(const Problem& problem) {
  return {problem.query_heads, problem.queries, problem.pseudo_heads, problem.head_dim};
}
Sizes key_sizes(const Problem& problem) {
  return {problem.key_heads, problem.keys, problem.pseudo_heads, problem.head_dim};
}
Sizes value_sizes(const Problem& problem) {
  return {problem.key_heads, problem.keys, problem.pseudo_heads, problem.value_dim};
}

std::vector<double> mix(const double* x, const double* alpha, const Sizes& sizes) {
  const auto [heads, tokens, pseudo_heads, width] = sizes;
  std::vector<double> mixed(heads * tokens * pseudo_heads * width);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t n = 0; n < tokens; ++n) {
      for (int64_t p = 0; p < pseudo_heads; ++p) {
        double* row = mixed.data() + ((h * tokens + n) * pseudo_heads + p) * width;
        for (int64_t m = 0; m < heads; ++m) {
          if (alpha == nullptr && m != h) continue;
          const double factor = alpha == nullptr ? 1.0 : alpha[(m * heads + h) * pseudo_heads + p];
          const double* source = x + (m * tokens + n) * width;
          for (int64_t c = 0; c < width; ++c) row[c] += factor * source[c];
        }
      }
    }
  }
  return mixed;
}

void mix_backward(const double* x, const double* alpha, const Sizes& sizes,
                  const std::vector<double>& grad_mixed, const std::vector<char>& used,
                  std::vector<double>& grad_x, std::vector<double>& grad_alpha) {
  const auto [heads, tokens, pseudo_heads, width] = sizes;
  grad_x.assign(heads * tokens * width, 0.0);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t n = 0; n < tokens; ++n) {
      for (int64_t p = 0; p < pseudo_heads; ++p) {
        const int64_t row = (h * tokens + n) * pseudo_heads + p;
        if (!used[row]) continue;
        const double* grad_row = grad_mixed.data() + row * width;
        for (int64_t m = 0; m < heads; ++m) {
          if (alpha == nullptr && m != h) continue;
          const int64_t entry = (m * heads + h) * pseudo_heads + p;
          const double factor = alpha == nullptr ? 1.0 : alpha[entry];
          const int64_t source = (m * tokens + n) * width;
          double dot = 0;
          for (int64_t c = 0; c < width; ++c) {
            grad_x[source + c] += factor * grad_row[c];
            dot += x[source + c] * grad_row[c];
          }
          if (alpha != nullptr) grad_alpha[entry] += dot;
        }
      }
    }
  }
}

void turn(std::vector<double>& mixed, const Problem& problem, const Sizes& sizes, int64_t position,
          int direction) {
  if (problem.rope.kind == RopeKind::kNone) return;
  const std::vector<double> frequencies = rope_frequencies(problem.rope, sizes.width);
  double* row = mixed.data();
  for (int64_t h = 0; h < sizes.heads; ++h) {
    for (int64_t n = 0; n < sizes.tokens; ++n) {
      for (int64_t p = 0; p < sizes.pseudo_heads; ++p, row += sizes.width) {
        const int64_t at = rope_position(problem.rope.kind, position + n, p, sizes.pseudo_heads);
        rotate(row, frequencies, problem.rope.style, at, direction);
      }
    }
  }
}

PseudoHeads make_pseudo_heads(const Problem& problem, const Inputs& inputs, int64_t b) {
  PseudoHeads pseudo;
  pseudo.query = mix(inputs.query, inputs.alpha_q, query_sizes(problem));
  turn(pseudo.query, problem, query_sizes(problem), problem.query_offset[b], 1);
  pseudo.key = mix(inputs.key, inputs.alpha_k, key_sizes(problem));
  turn(pseudo.key, problem, key_sizes(problem), 0, 1);
  if (inputs.value != nullptr) pseudo.value = mix(inputs.value, inputs.alpha_v, value_sizes(problem));
  return pseudo;
}

Row softmax_row(const Problem& problem, const Visibility& visible, const PseudoHeads& pseudo,
                const Inputs& inputs, int64_t b, int64_t h, int64_t i, int64_t p) {
  const int64_t pseudo_heads = problem.pseudo_heads, head_dim = problem.head_dim;
  const double* query = pseudo.query.data() + ((h * problem.queries + i) * pseudo_heads + p) * head_dim;
  const double* keys = pseudo.key.data() + h / problem.group() * problem.keys * pseudo_heads * head_dim;
  const PairWeights pair_weights(problem, inputs);
  const double* sinks = inputs.sinks;
  Row row;
  for (int64_t j = 0; j < problem.keys; ++j) {
    for (int64_t r = 0; r < pseudo_heads; ++r) {
      const uint32_t candidates = visible.candidates(b, h, i, p, j, r);
      const double weight = pair_weights.weight(h, i, j, candidates);
      if (weight == 0) continue;
      const int64_t column = j * pseudo_heads + r;
      double score = 0;
      for (int64_t c = 0; c < head_dim; ++c) score += query[c] * keys[column * head_dim + c];
      row.columns.push_back(column);
      row.candidates.push_back(candidates);
      row.weights.push_back(problem.scale * score + std::log(weight));  // the score for now
    }
  }
  const double sink = sinks == nullptr ? -std::numeric_limits<double>::infinity() : sinks[h];
  if (row.columns.empty()) {
    row.lse = sink;
    return row;
  }
  double largest = sink;
  for (const double score : row.weights) largest = std::max(largest, score);
  double sum = sinks == nullptr ? 0 : std::exp(sink - largest);
  for (const double score : row.weights) sum += std::exp(score - largest);
  for (double& weight : row.weights) weight = std::exp(weight - largest) / sum;
  row.sink_weight = sinks == nullptr ? 0 : std::exp(sink - largest) / sum;
  row.lse = largest + std::log(sum);
  return row;
}

double dropout_factor(const Problem& problem, int64_t b, int64_t h, int64_t row, int64_t column) {
  const double p = problem.dropout_p;
  if (p == 0) return 1;
  const int64_t batch_head = b * problem.query_heads + h;
  const bool kept = dropout_keeps(dropout_threshold(p), problem.dropout_seed, batch_head, row, column);
  return kept ? 1 / (1 - p) : 0;
}

}  // namespace iha::reference
