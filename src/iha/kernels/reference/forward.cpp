#include "iha/kernels/reference/collapse.h"
#include "iha/kernels/reference/pair_weights.h"
#include "iha/kernels/reference/pseudo_heads.h"

namespace iha::reference {
namespace {

// o[h,n,p] = sum over visible (j,r) of weight * dropout * v~[j,r].
void weigh_values(const Problem& problem, const PseudoHeads& pseudo, const Row& row, int64_t b, int64_t h,
                  int64_t query_row, double* part) {
  const int64_t width = problem.value_dim;
  const double* values =
      pseudo.value.data() + h / problem.group() * problem.keys * problem.pseudo_heads * width;
  for (std::size_t at = 0; at < row.columns.size(); ++at) {
    const int64_t column = row.columns[at];
    const double weight = row.weights[at] * dropout_factor(problem, b, h, query_row, column);
    for (int64_t c = 0; c < width; ++c) part[c] += weight * values[column * width + c];
  }
}

void append(std::vector<double>& whole, const std::vector<double>& part) {
  whole.insert(whole.end(), part.begin(), part.end());
}

}  // namespace

Outputs forward_sequence(const Problem& problem, const Visibility& visible, const Inputs& inputs, int64_t b) {
  const int64_t heads = problem.query_heads, queries = problem.queries, pseudo_heads = problem.pseudo_heads;
  const PseudoHeads pseudo = make_pseudo_heads(problem, inputs, b);
  Outputs outputs;
  outputs.parts.assign(heads * queries * pseudo_heads * problem.value_dim, 0.0);
  outputs.lse.resize(heads * queries * pseudo_heads);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t p = 0; p < pseudo_heads; ++p) {
        const Row row = softmax_row(problem, visible, pseudo, inputs, b, h, i, p);
        const int64_t at = (h * queries + i) * pseudo_heads + p;
        outputs.lse[at] = row.lse;
        weigh_values(problem, pseudo, row, b, h, i * pseudo_heads + p,
                     outputs.parts.data() + at * problem.value_dim);
      }
    }
  }
  outputs.out = collapse(problem, inputs.collapse, outputs.parts);
  return outputs;
}

Outputs forward(const Problem& problem, const Inputs& inputs) {
  check(problem, "iha::reference::forward");
  check_weights(problem, inputs, "iha::reference::forward");
  const Visibility visible(problem);
  Outputs outputs;
  for (int64_t b = 0; b < problem.batch; ++b) {
    const Outputs sequence = forward_sequence(problem, visible, sequence_of(problem, inputs, b), b);
    append(outputs.out, sequence.out);
    append(outputs.parts, sequence.parts);
    append(outputs.lse, sequence.lse);
  }
  return outputs;
}

Inputs sequence_of(const Problem& problem, Inputs inputs, int64_t b) {
  const auto skip = [b](const double*& data, const Sizes& sizes) {
    if (data != nullptr) data += b * sizes.heads * sizes.tokens * sizes.width;
  };
  skip(inputs.query, query_sizes(problem));
  skip(inputs.key, key_sizes(problem));
  skip(inputs.value, value_sizes(problem));
  skip(inputs.block_weights, {problem.query_heads, problem.queries, 1, problem.key_blocks()});
  return inputs;
}

}  // namespace iha::reference
