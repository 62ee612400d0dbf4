#include "iha/kernels/reference/collapse.h"

namespace iha::reference {
namespace {

// Calls visit(out_row, part_row, entry) for every pair of rows that the collapse joins: row (h,n) of the
// output, row (m,n,p) of the parts, and the place of R[h,p] or R[h,m,p] among the weights.
template <class Visit>
void for_each_term(const Problem& problem, Visit visit) {
  const int64_t heads = problem.query_heads, queries = problem.queries, pseudo_heads = problem.pseudo_heads;
  const bool global = problem.collapse == CollapseKind::kGlobal;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t n = 0; n < queries; ++n) {
      for (int64_t m = global ? 0 : h; m < (global ? heads : h + 1); ++m) {
        for (int64_t p = 0; p < pseudo_heads; ++p) {
          const int64_t entry = (global ? h * heads + m : h) * pseudo_heads + p;
          visit(h * queries + n, (m * queries + n) * pseudo_heads + p, entry);
        }
      }
    }
  }
}

double weight_of(const Problem& problem, const double* weights, int64_t entry) {
  if (problem.collapse == CollapseKind::kMean) return 1.0 / static_cast<double>(problem.pseudo_heads);
  return weights[entry];
}

}  // namespace

std::vector<double> collapse(const Problem& problem, const double* weights,
                             const std::vector<double>& parts) {
  const int64_t width = problem.value_dim;
  std::vector<double> out(problem.query_heads * problem.queries * width);
  for_each_term(problem, [&](int64_t out_row, int64_t part_row, int64_t entry) {
    const double weight = weight_of(problem, weights, entry);
    for (int64_t c = 0; c < width; ++c) out[out_row * width + c] += weight * parts[part_row * width + c];
  });
  return out;
}

void collapse_backward(const Problem& problem, const double* weights, const std::vector<double>& parts,
                       const std::vector<char>& used, const double* grad_out, std::vector<double>& grad_parts,
                       std::vector<double>& grad_weights) {
  const int64_t width = problem.value_dim;
  for_each_term(problem, [&](int64_t out_row, int64_t part_row, int64_t entry) {
    if (!used[part_row]) return;
    const double weight = weight_of(problem, weights, entry);
    double dot = 0;
    for (int64_t c = 0; c < width; ++c) {
      grad_parts[part_row * width + c] += weight * grad_out[out_row * width + c];
      dot += parts[part_row * width + c] * grad_out[out_row * width + c];
    }
    if (problem.collapse != CollapseKind::kMean) grad_weights[entry] += dot;
  });
}

}  // namespace iha::reference
