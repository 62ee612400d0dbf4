// `iha run`: computes one case file and writes what came out.
#include <iostream>

#include "case_engine.h"
#include "command.h"
#include "iha/report/format.h"

namespace iha::app {

namespace {

struct RunOptions {
  std::string file;
  std::string output;
  std::string engine = "operator";
};

int run(const RunOptions& options) {
  const io::Case given = io::read_case(options.file);
  const io::Arrays results = compute(given, engine_named(options.engine));
  io::save_arrays(options.output, results);
  std::cout << options.output << ": ";
  std::string names;
  for (const auto& [name, array] : results) names += (names.empty() ? "" : ", ") + name;
  std::cout << names << '\n';
  return 0;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  add_command<RunOptions>(
      app, "run", "Compute a case file: its outputs and, where it has an upstream gradient, all gradients",
      "iha run cases/rope_half.safetensors --output /tmp/rope_half.out.safetensors", action,
      [](CLI::App& command, RunOptions& options) {
        command.add_option("case", options.file, "Case file (safetensors)")->required();
        command
            .add_option(
                "--output", options.output,
                "Where to write out, lse, parts and grad_NAME (a layer: out, grad_x, grad_PARAMETER), as F64")
            ->required();
        command
            .add_option("--engine", options.engine,
                        "What computes it: the torch operator or the float64 oracle")
            ->check(CLI::IsMember({"operator", "oracle"}));
        add_threads(command);
      },
      run);
}

}  // namespace iha::app
