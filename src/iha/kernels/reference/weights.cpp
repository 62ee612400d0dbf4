#include "iha/core/error.h"
#include "iha/kernels/reference/pair_weights.h"
#include "iha/kernels/reference/pseudo_heads.h"

namespace iha::reference {

std::vector<double> weights(const Problem& problem, const Inputs& inputs, const std::vector<int64_t>& rows) {
  constexpr const char* kName = "iha::reference::weights";
  check(problem, kName);
  check_weights(problem, inputs, kName);
  for (const int64_t i : rows) {
    check(0 <= i && i < problem.queries, kName, ": query row ", i, ", expected 0 to ", problem.queries - 1);
  }
  const Visibility visible(problem);
  const int64_t pseudo_heads = problem.pseudo_heads, columns = problem.keys * pseudo_heads;
  std::vector<double> weights(problem.batch * problem.query_heads * rows.size() * pseudo_heads * columns);
  double* out = weights.data();
  for (int64_t b = 0; b < problem.batch; ++b) {
    const Inputs own = sequence_of(problem, inputs, b);
    const PseudoHeads pseudo = make_pseudo_heads(problem, own, b);
    for (int64_t h = 0; h < problem.query_heads; ++h) {
      for (const int64_t i : rows) {
        for (int64_t p = 0; p < pseudo_heads; ++p, out += columns) {
          const Row row = softmax_row(problem, visible, pseudo, own, b, h, i, p);
          for (std::size_t at = 0; at < row.columns.size(); ++at) out[row.columns[at]] = row.weights[at];
        }
      }
    }
  }
  return weights;
}

}  // namespace iha::reference
