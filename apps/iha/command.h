// What the subcommands of `iha` share: how they are added to the command line, and their common options. A
// subcommand is one file: `add_x` declares its options (each with a default, a range and a sentence) and,
// once it is chosen, leaves what to do in `action`; the action runs after all of the command line has been
// parsed. Not here: any work.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace iha::app {

// What a subcommand does; its value is the exit status: 0, or 1 for "ran, and the answer is no". Exceptions
// become one line on standard error and exit status 1; wrong usage is found earlier, while parsing, and exits
// with 2.
using Action = std::function<int()>;

void add_train(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_view(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);

// --config, for --help alone: main replaces it by the file's options before anything is parsed (config.h).
void add_config(CLI::App& command);

// Adds subcommand `name` of `parent`, whose options live in a value of type Options: `declare(command,
// options)` declares them, `run(options)` is the action. `example` is shown by --help.
template <class Options, class Declare, class Run>
CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& sentence,
                      const std::string& example, Action& action, const Declare& declare, const Run& run) {
  CLI::App* command = parent.add_subcommand(name, sentence);
  command->footer("Example:\n  " + example);
  command->option_defaults()->always_capture_default();
  auto options = std::make_shared<Options>();
  declare(*command, *options);
  add_config(*command);
  command->callback([&action, options, run] { action = [options, run] { return run(*options); }; });
  return command;
}

// --threads: how many threads torch may use; 0 leaves its own choice. The value takes effect at once.
void add_threads(CLI::App& command);

// A check for options that hold a pattern list, so that a misspelt mode is a usage error.
CLI::Validator pattern_list();

// The resolved value of every option of `command` but --help, --config and the options named in `without`:
// [name without dashes, value]. Options with several values are joined by commas; flags are "true" or
// "false".
std::vector<std::pair<std::string, std::string>> resolved_options(
    const CLI::App& command, const std::vector<std::string>& without = {});

}  // namespace iha::app
