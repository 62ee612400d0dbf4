// `iha bench`: this engine, composed and torch side by side on the same inputs, in turns within one run,
// beside the machine's measured peak. Ratios are medians of the turns: machines are noisy, and noise hits all
// contenders alike.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench_table.h"
#include "bench_work.h"
#include "command.h"
#include "iha/core/error.h"
#include "iha/io/atomic_file.h"
#include "iha/kernels/cpu/isa.h"
#include "iha/kernels/cpu/peak.h"
#include "iha/ops/engine.h"
#include "iha/report/table.h"
#include "peak_memory.h"

namespace iha::app {
namespace {

struct BenchOptions {
  std::vector<std::string> work;
  std::vector<std::string> dtypes = {"float32", "bfloat16"};
  int rounds = 5;
  std::string output;
  bool json = false;
  bool explain = false;
};

struct Timing {
  std::string name;
  std::vector<double> seconds;
  std::optional<int64_t> extra_bytes;
  double error = 0;  // largest difference from the last contender in float32, over the largest value
};

constexpr double kNoError = -1;  // another function

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// One turn: a call, and calls of a few milliseconds again and again, as a model's layers would. Not where
// what is timed is memory, which caches would serve the second time.
double seconds_of(const Contender& contender, bool once) {
  constexpr double kLeastSeconds = 0.03;
  const auto start = std::chrono::steady_clock::now();
  double seconds = 0;
  int calls = 0;
  do {
    contender.run();
    ++calls;
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } while (!once && seconds < kLeastSeconds);
  return seconds / calls;
}

at::ScalarType dtype_named(const std::string& name) {
  return name == "float32" ? at::kFloat : name == "bfloat16" ? at::kBFloat16 : at::kHalf;
}
DType core_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat ? DType::kFloat32 : dtype == at::kBFloat16 ? DType::kBFloat16 : DType::kFloat16;
}

std::vector<Timing> measure(const Work& work, at::ScalarType dtype, int rounds) {
  at::manual_seed(0);
  const std::vector<Contender> contenders = contenders_for(work, dtype);
  std::vector<Timing> timings;
  std::vector<at::Tensor> results;
  for (const Contender& contender : contenders) {
    timings.push_back({contender.name, {}, {}, 0});
    results.push_back(contender.run());  // warms up: pages of code are no memory of the computation
    std::optional<int64_t>& extra = timings.back().extra_bytes;
    extra = extra_memory_of([&] { contender.run(); });
    if (extra) *extra += contender.held_bytes;
  }
  const at::Tensor expected = results.back().to(at::kFloat);
  const double largest = expected.abs().max().item<double>();
  for (std::size_t at = 0; at < contenders.size(); ++at) {
    if (!contenders[at].same) {
      timings[at].error = kNoError;
      continue;
    }
    timings[at].error = (results[at].to(at::kFloat) - expected).abs().max().item<double>() / largest;
  }
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t at = 0; at < contenders.size(); ++at)
      timings[at].seconds.push_back(seconds_of(contenders[at], work.queries == 1));
  }
  return timings;
}

std::vector<Work> chosen(const BenchOptions& options) {
  if (options.work.empty()) return standard_work();
  std::vector<Work> list;
  for (const std::string& name : options.work) {
    for (const Work& work : standard_work()) {
      if (work.name == name) list.push_back(work);
    }
  }
  return list;
}

int explain() {
  std::cout << "CPU tensors of float32, bfloat16 and float16: the engine, on " << name_of(cpu::active_isa())
            << " (IHA_ISA forces another of:";
  for (const cpu::Isa isa : cpu::supported_isas()) std::cout << ' ' << name_of(isa);
  std::cout << ").\nEvery option of the operator runs there. Steps are gathered, with +first for more than "
               "32 queries.\n"
               "Documents, and the steps that are not gathered, are masked.\n"
               "Heads that choose (learned, dynamic) run there too; few queries pack their keys.\n"
               "float64: composed torch operations (in iha::core the float64 oracle).\n"
               "iha::attention_weights and tensors on other devices: composed torch operations.\n"
               "IHA_CPU=composed takes the engine out of the way.\n";
  return 0;
}

int bench(const BenchOptions& options) {
  if (options.explain) return explain();
  nlohmann::json lines = nlohmann::json::array();
  for (const Work& work : chosen(options)) {
    for (const std::string& name : options.dtypes) {
      const at::ScalarType dtype = dtype_named(name);
      const double peak = cpu::measured_peak(cpu::active_isa(), core_dtype(dtype), ops::torch_threads());
      const double bandwidth = work.queries == 1 ? cpu::measured_read_bandwidth(ops::torch_threads()) : 0;
      const std::vector<Timing> timings = measure(work, dtype, options.rounds);
      for (const Timing& timing : timings) {
        std::vector<double> ratios;
        for (std::size_t round = 0; round < timing.seconds.size(); ++round) {
          ratios.push_back(timing.seconds[round] / timings.front().seconds[round]);
        }
        const double seconds = median(timing.seconds);
        nlohmann::json line = {{"work", work.name},
                               {"dtype", name},
                               {"path", timing.name},
                               {"threads", at::get_num_threads()},
                               {"instruction_set", name_of(cpu::active_isa())},
                               {"seconds", seconds},
                               {"flops_per_second", flops_of(work) / seconds},
                               {"peak_flops_per_second", peak},
                               {"seconds_over_iha", median(ratios)},
                               {"extra_bytes", nullptr},
                               {"error", timing.error < 0 ? nlohmann::json() : nlohmann::json(timing.error)}};
        if (timing.extra_bytes) line["extra_bytes"] = *timing.extra_bytes;
        // The limit of few queries; others read keys and values many times.
        if (work.queries == 1) {
          line["key_value_bytes_per_second"] = key_value_bytes(work, dtype) / seconds;
          line["read_bytes_per_second"] = bandwidth;
        }
        lines.push_back(std::move(line));
      }
    }
  }
  if (!options.output.empty()) io::replace_file(options.output, lines.dump(2) + "\n");
  std::cout << (options.json ? lines.dump(2) + "\n" : report::to_text(bench_table(lines)));
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  std::vector<std::string> names;
  for (const Work& work : standard_work()) names.push_back(work.name);
  add_command<BenchOptions>(
      app, "bench", "Time this engine, composed torch operations and torch's own attention side by side",
      "iha bench --work causal,mixed --dtypes float32 --threads 2", action,
      [names](CLI::App& command, BenchOptions& options) {
        command
            .add_option("--work", options.work, "What to measure; default: everything, which takes minutes")
            ->delimiter(',')
            ->check(CLI::IsMember(names));
        command.add_option("--dtypes", options.dtypes, "Element types")
            ->delimiter(',')
            ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
        command.add_option("--rounds", options.rounds, "Turns of all contenders; medians are shown")
            ->check(CLI::Range(1, 1000));
        command.add_option("--output", options.output, "Also write the JSON to this file");
        command.add_flag("--json", options.json, "Print JSON instead of a table");
        command.add_flag("--explain", options.explain, "Say which path serves what, and measure nothing");
        add_threads(command);
      },
      bench);
}

}  // namespace iha::app
