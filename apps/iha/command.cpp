// Shared pieces of the subcommands: see command.h.
#include "command.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <stdexcept>

#include "iha/patterns/parse.h"

namespace iha::app {

namespace {

std::string joined(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ",") + value;
  return text;
}

std::string resolved(const CLI::Option& option) {
  const bool flag = option.get_expected_max() == 0;
  if (option.count() == 0) return flag ? "false" : option.get_default_str();
  return flag ? (option.as<bool>() ? "true" : "false") : joined(option.results());
}

}  // namespace

void add_config(CLI::App& command) {
  command.add_option_function<std::string>(
      "--config", [](const std::string&) {},
      "A JSON object of options, as a run's config.json; the command line goes before it");
}

void add_threads(CLI::App& command) {
  command
      .add_option_function<int>(
          "--threads",
          [](int threads) {
            if (threads > 0) at::set_num_threads(threads);
          },
          "Threads of the computation; 0 leaves torch's own choice")
      ->check(CLI::Range(0, 1024))
      ->default_str("0");
}

CLI::Validator pattern_list() {
  return CLI::Validator(
      [](const std::string& text) {
        try {
          parse_patterns(text);
          return std::string();
        } catch (const std::invalid_argument& error) {
          return std::string(error.what());
        }
      },
      "PATTERNS");
}

std::vector<std::pair<std::string, std::string>> resolved_options(const CLI::App& command,
                                                                  const std::vector<std::string>& without) {
  std::vector<std::pair<std::string, std::string>> options;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames().front();
    const bool skipped = name == "help" || name == "config" ||
                         std::find(without.begin(), without.end(), name) != without.end();
    if (!skipped) options.emplace_back(name, resolved(*option));
  }
  return options;
}

}  // namespace iha::app
