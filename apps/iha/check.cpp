// `iha check`: computes case files and compares with their expectations, one line each.
#include <algorithm>
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "case_engine.h"
#include "command.h"
#include "iha/core/error.h"
#include "iha/report/format.h"

namespace iha::app {

namespace {

struct CheckOptions {
  std::vector<std::string> files;
  std::string engine = "operator";
  bool json = false;
};

struct Verdict {
  std::string file;
  std::vector<io::Comparison> tensors;
  std::string fault;  // why there is no comparison

  const io::Comparison* worst() const {
    const auto place =
        std::max_element(tensors.begin(), tensors.end(), [](const auto& left, const auto& right) {
          return std::pair(!left.pass, left.error) < std::pair(!right.pass, right.error);
        });
    return place == tensors.end() ? nullptr : &*place;
  }
  bool pass() const { return fault.empty() && worst() != nullptr && worst()->pass; }
};

Verdict judge(const std::string& file, Engine engine) {
  Verdict verdict{.file = file, .tensors = {}, .fault = {}};
  try {
    const io::Case given = io::read_case(file);
    const auto& [expected, dtype] =
        std::visit([](const auto& each) { return std::pair(each.expected, each.dtype); }, given);
    check(!expected.empty(), file, ": holds no expectation to check against");
    verdict.tensors = io::compare(expected, compute(given, engine), dtype);
  } catch (const c10::Error& error) {
    verdict.fault = error.what_without_backtrace();
  } catch (const std::exception& error) {
    verdict.fault = error.what();
  }
  verdict.fault = verdict.fault.substr(0, verdict.fault.find('\n'));
  return verdict;
}

std::string in_words(const Verdict& verdict) {
  const std::string name = std::filesystem::path(verdict.file).filename().string();
  if (!verdict.fault.empty()) return text("FAIL  ", name, "  ", verdict.fault);
  const io::Comparison& worst = *verdict.worst();
  const std::string error = text("largest error ", report::significant(worst.absolute_error, 3), " in ",
                                 worst.name, ", ", report::percent(worst.error), " of what is allowed");
  if (verdict.pass()) return text("ok    ", name, "  ", error);
  return text("FAIL  ", name, "  ", error, ": ", worst.fault);
}

nlohmann::json to_json(const Verdict& verdict) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const io::Comparison& each : verdict.tensors) {
    tensors.push_back({{"name", each.name},
                       {"pass", each.pass},
                       {"error", each.error},
                       {"absolute_error", each.absolute_error},
                       {"fault", each.fault}});
  }
  return {{"file", verdict.file}, {"pass", verdict.pass()}, {"fault", verdict.fault}, {"tensors", tensors}};
}

int run(const CheckOptions& options) {
  const Engine engine = engine_named(options.engine);
  nlohmann::json all = nlohmann::json::array();
  std::size_t passed = 0;
  for (const std::string& file : options.files) {
    const Verdict verdict = judge(file, engine);
    passed += verdict.pass() ? 1 : 0;
    if (options.json) {
      all.push_back(to_json(verdict));
    } else {
      std::cout << in_words(verdict) << '\n' << std::flush;
    }
  }
  if (options.json) std::cout << all.dump(2) << '\n';
  if (passed < options.files.size()) {
    std::cerr << "iha: " << options.files.size() - passed << " of " << options.files.size()
              << " cases are off\n";
  }
  return passed == options.files.size() ? 0 : 1;
}

}  // namespace

void add_check(CLI::App& app, Action& action) {
  add_command<CheckOptions>(
      app, "check", "Compute case files and compare with their expected results; exits with 1 if any is off",
      "iha check cases/*.safetensors --engine oracle", action,
      [](CLI::App& command, CheckOptions& options) {
        command.add_option("cases", options.files, "Case files (safetensors)")->required();
        command
            .add_option("--engine", options.engine,
                        "What computes them: the torch operator or the float64 oracle")
            ->check(CLI::IsMember({"operator", "oracle"}));
        command.add_flag("--json", options.json,
                         "Print a list of {file, pass, fault, tensors} instead of lines");
        add_threads(command);
      },
      run);
}

}  // namespace iha::app
