// The engine's kernels on one thread, beside what the machine can do: register tiles with operands in L1 and
// L2, and whole passes of one head. "of_peak" is the share of the peak measured in the same run by
// independent multiply-adds of the same instruction set (FMA, or VDPBF16PS for pairs).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "iha/core/philox.h"
#include "iha/kernels/cpu/engine.h"
#include "iha/kernels/cpu/peak.h"
#include "iha/kernels/cpu/primitives.h"
#include "iha/patterns/parse.h"

namespace iha::cpu {
namespace {

// Flops of one multiply-add cell: 2, or 4 for a pair.
double flops_of_cell(const Primitives& prim) {
  return prim.pairs ? 4.0 : 2.0;
}

void report(benchmark::State& state, Isa isa, DType dtype, double flops) {
  using benchmark::Counter;
  state.counters["flops"] = Counter(flops, Counter::kIsIterationInvariantRate, Counter::kIs1000);
  state.counters["of_peak"] =
      Counter(flops / measured_peak(isa, dtype, serial()), Counter::kIsIterationInvariantRate);
}

// Scores: one register tile's rows against a block of 512 keys of `range(0)` channels.
void scores(benchmark::State& state, Isa isa, DType dtype) {
  const Primitives& prim = primitives(isa, dtype);
  const int64_t depth = state.range(0) / (prim.pairs ? 2 : 1), columns = 512;
  const std::vector<Cell> a(kMaxGroupRows * depth, 0), b(depth * columns, 0);
  std::vector<float> c(kMaxGroupRows * columns);
  const TaskGuard guard(prim);
  for (auto _ : state) {
    prim.multiply({.rows = prim.group_rows,
                   .columns = columns,
                   .depth = depth,
                   .a = a.data(),
                   .a_row = depth,
                   .a_depth = 1,
                   .b = b.data(),
                   .b_depth = kPanel,
                   .b_panel = depth * kPanel,
                   .c = c.data(),
                   .c_row = columns,
                   .accumulate = false});
    benchmark::ClobberMemory();
  }
  report(state, isa, dtype, flops_of_cell(prim) * prim.group_rows * columns * depth);
}

void softmax(benchmark::State& state, Isa isa, DType dtype) {
  const Primitives& prim = primitives(isa, dtype);
  const int64_t columns = 512;
  std::vector<float> scores(prim.group_rows * columns), start(scores.size()), output(kMaxGroupRows * 64);
  for (size_t i = 0; i < start.size(); ++i) start[i] = std::sin(static_cast<float>(i));
  std::vector<float> largest(kMaxGroupRows, 1.0f), sum(kMaxGroupRows);
  for (auto _ : state) {
    std::copy(start.begin(), start.end(), scores.begin());
    prim.softmax({.rows = prim.group_rows,
                  .columns = columns,
                  .scores = scores.data(),
                  .score_row = columns,
                  .log2_scale = 1.0f,
                  .largest = largest.data(),
                  .sum = sum.data(),
                  .output = output.data(),
                  .output_row = 64,
                  .output_columns = 64,
                  .keep = nullptr,
                  .keep_row = 0});
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * prim.group_rows * columns);
}

// One head of N = range(0) tokens and d = range(1) channels; forward, or forward's gradients.
void head(benchmark::State& state, Isa isa, DType dtype, bool gradients, const std::string& pattern) {
  const int64_t tokens = state.range(0), d = state.range(1), size = tokens * d;
  Problem problem;
  problem.batch = problem.query_heads = problem.key_heads = 1;
  problem.queries = problem.keys = tokens;
  problem.head_dim = problem.value_dim = d;
  problem.scale = 1.0 / std::sqrt(static_cast<double>(d));
  problem.patterns = parse_patterns(pattern).expand(1);
  problem.query_offset = {0};
  const auto bytes = static_cast<int64_t>(size_of(dtype));
  PhiloxStream random(1);
  std::vector<std::vector<char>> arrays(8, std::vector<char>(size * bytes));
  for (int i = 0; i < 4; ++i) {
    for (int64_t at = 0; at < size; ++at) store(arrays[i].data(), dtype, at, random.next_normal());
  }
  std::vector<float> lse(tokens);
  const std::array<int64_t, 5> strides{size, size, d, 1, 0}, part_strides{size, size, d, d, 1};
  const auto array = [&](int i) { return core::Array{arrays[i].data(), dtype, strides}; };
  const auto target = [&](int i) { return core::MutableArray{arrays[i].data(), dtype, strides}; };
  const core::AttentionInputs inputs{array(0), array(1), array(2), {}, {}, {}, {}, {}};
  const core::AttentionOutputs outputs{
      target(4), {}, {lse.data(), DType::kFloat32, {tokens, tokens, 1, 1, 0}}};
  forward(problem, inputs, outputs, serial(), isa);
  const core::AttentionUpstream upstream{{arrays[4].data(), dtype, part_strides},
                                         {lse.data(), DType::kFloat32, {tokens, tokens, 1, 1, 0}},
                                         array(3),
                                         {},
                                         {}};
  const core::AttentionGradients results{target(5), target(6), target(7), {}, {}, {}, {}, {}};
  for (auto _ : state) {
    if (gradients) {
      backward(problem, inputs, upstream, results, serial(), isa);
    } else {
      forward(problem, inputs, outputs, serial(), isa);
    }
  }
  const double pairs = static_cast<double>(tokens) * (pattern == "causal" ? tokens + 1 : 2 * tokens) / 2;
  report(state, isa, dtype, (gradients ? 10.0 : 4.0) * pairs * static_cast<double>(d));
}

void add(Isa isa, DType dtype) {
  const std::string of = "/" + std::string(name_of(isa)) + "/" + std::string(name_of(dtype));
  benchmark::RegisterBenchmark(("scores" + of).c_str(), scores, isa, dtype)->Arg(32)->Arg(64)->Arg(128);
  benchmark::RegisterBenchmark(("softmax" + of).c_str(), softmax, isa, dtype);
  for (const char* pattern : {"global", "causal"}) {
    const std::string name = of + "/" + pattern;
    benchmark::RegisterBenchmark(("forward" + name).c_str(), head, isa, dtype, false, pattern)
        ->Args({144, 32})
        ->Args({1024, 64})
        ->Args({1024, 128});
    benchmark::RegisterBenchmark(("backward" + name).c_str(), head, isa, dtype, true, pattern)
        ->Args({144, 32})
        ->Args({1024, 64})
        ->Args({1024, 128});
  }
}

}  // namespace
}  // namespace iha::cpu

int main(int argc, char** argv) {
  for (const iha::cpu::Isa isa : iha::cpu::supported_isas()) {
    iha::cpu::add(isa, iha::DType::kFloat32);
    if (iha::cpu::primitives(isa, iha::DType::kBFloat16).pairs) iha::cpu::add(isa, iha::DType::kBFloat16);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
