#include "iha/kernels/cpu/peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "iha/kernels/cpu/primitives.h"

namespace iha::cpu {

double measured_peak(Isa isa, DType dtype, const ParallelFor& parallel) {
  const Primitives& prim = primitives(isa, dtype);
  // One row for all rows, 64 cells for all of the right operand: all loads hit L1, so only the multiply-adds
  // count.
  constexpr int64_t kDepth = 4096, kRepeats = 200;
  const std::vector<Cell> operands(kDepth, 0);
  const int64_t rows = prim.group_rows;
  const double flops_of_cell = prim.pairs ? 4.0 : 2.0;
  const auto once = [&] {
    const auto start = std::chrono::steady_clock::now();
    parallel.run(parallel.workers, [&](int64_t, int) {
      const TaskGuard guard(prim);
      std::vector<float> sums(kMaxGroupRows * kPanel);
      for (int64_t repeat = 0; repeat < kRepeats; ++repeat) {
        prim.multiply({.rows = rows,
                       .columns = kPanel,
                       .depth = kDepth,
                       .a = operands.data(),
                       .a_row = 0,
                       .a_depth = 1,
                       .b = operands.data(),
                       .b_depth = 0,
                       .b_panel = 0,
                       .c = sums.data(),
                       .c_row = kPanel,
                       .accumulate = false});
      }
    });
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  double shortest = once();
  for (int run = 0; run < 4; ++run) shortest = std::min(shortest, once());
  const double flops =
      flops_of_cell * static_cast<double>(rows * kPanel * kDepth * kRepeats * parallel.workers);
  return flops / shortest;
}

}  // namespace iha::cpu
