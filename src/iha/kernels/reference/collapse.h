// From the outputs of pseudo-heads to the outputs of heads, for one sequence, and back. Private to
// kernels/reference/.
#pragma once

#include <vector>

#include "iha/kernels/problem.h"

namespace iha::reference {

// [Hq, Nq, P, dv] -> [Hq, Nq, dv]:
//   mean      out[h,n] = sum_p o[h,n,p] / P
//   per head  out[h,n] = sum_p R[h,p] o[h,n,p]
//   global    out[h,n] = sum_{m,p} R[h,m,p] o[m,n,p]
std::vector<double> collapse(const Problem& problem, const double* weights, const std::vector<double>& parts);

// Adds to grad_parts [Hq, Nq, P, dv] what grad_out [Hq, Nq, dv] gives it and, unless the kind is mean, to
// grad_weights [Hq, P] or [Hq, Hq, P]. Pseudo-queries [Hq, Nq, P] that are not `used` (they see no key) give
// nothing.
void collapse_backward(const Problem& problem, const double* weights, const std::vector<double>& parts,
                       const std::vector<char>& used, const double* grad_out, std::vector<double>& grad_parts,
                       std::vector<double>& grad_weights);

}  // namespace iha::reference
