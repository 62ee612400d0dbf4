#include "iha/kernels/cpu/peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "iha/kernels/cpu/primitives.h"

namespace iha::cpu {
namespace {

constexpr int kRuns = 5;

double seconds_of(const auto& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
double shortest_of(const auto& run) {
  double shortest = seconds_of(run);
  for (int i = 1; i < kRuns; ++i) shortest = std::min(shortest, seconds_of(run));
  return shortest;
}

}  // namespace

double measured_peak(Isa isa, DType dtype, const ParallelFor& parallel) {
  const Primitives& prim = primitives(isa, dtype);
  // One row for all rows, 64 cells for all of the right operand: all loads hit L1, so only the multiply-adds
  // count.
  constexpr int64_t kDepth = 4096, kRepeats = 200;
  const std::vector<Cell> operands(kDepth, 0);
  const int64_t rows = prim.group_rows;
  const double flops_of_cell = prim.pairs ? 4.0 : 2.0;
  const double shortest = shortest_of([&] {
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
  });
  const double flops =
      flops_of_cell * static_cast<double>(rows * kPanel * kDepth * kRepeats * parallel.workers);
  return flops / shortest;
}

double measured_read_bandwidth(const ParallelFor& parallel) {
  constexpr int64_t kWords = int64_t{32} << 20, kAtOnce = 64, kAhead = 512;  // 8 bytes each
  const std::vector<uint64_t> memory(kWords + kAhead, 1);
  std::vector<uint64_t> sums(parallel.workers * kAtOnce);  // so that nobody can leave the reading out
  const double shortest = shortest_of([&] {
    parallel.run(parallel.workers, [&](int64_t task, int) {
      uint64_t sum[kAtOnce] = {};
      const int64_t first = kWords * task / parallel.workers / kAtOnce * kAtOnce,
                    last = kWords * (task + 1) / parallel.workers / kAtOnce * kAtOnce;
      for (int64_t word = first; word < last; word += kAtOnce) {
        for (int64_t line = 0; line < kAtOnce; line += 8) {
          __builtin_prefetch(memory.data() + word + kAhead + line, /*write=*/0, /*locality, L2:*/ 2);
        }
        for (int64_t i = 0; i < kAtOnce; ++i) sum[i] += memory[word + i];
      }
      std::copy(sum, sum + kAtOnce, sums.begin() + task * kAtOnce);
    });
  });
  volatile uint64_t read = 0;
  for (const uint64_t sum : sums) read = read + sum;
  return static_cast<double>(kWords * sizeof(uint64_t)) / shortest;
}

}  // namespace iha::cpu
