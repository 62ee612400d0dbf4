// `iha`: the command line. This file maps a command line to one subcommand and errors to exit statuses (0
// done, 1 failed, 2 wrong usage); the work is in the file named after the subcommand.
#include <c10/util/Exception.h>

#include <csignal>
#include <exception>
#include <iostream>
#include <string>

#include "command.h"
#include "config.h"

namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

// The first line of a message: torch appends the place in its sources, which says nothing to a user.
std::string first_line(const std::string& message) {
  return message.substr(0, message.find('\n'));
}

int fail_with(const std::string& message) {
  std::cerr << "iha: " << first_line(message) << '\n';
  return kFailed;
}

int run(const iha::app::Action& action) {
  try {
    const int status = action();
    std::cout.flush();
    return std::cout ? status : fail_with("standard output: could not be written");
  } catch (const c10::Error& error) {
    return fail_with(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail_with(error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Attention layers whose heads differ and talk to each other.", "iha");
  app.footer("Run `iha COMMAND --help` for a command's options and an example.");
  app.require_subcommand(1);
  iha::app::Action action;  // one line a subcommand: iha::app::add_NAME(app, action);
  iha::app::add_train(app, action);
  iha::app::add_compare(app, action);
  iha::app::add_run(app, action);
  iha::app::add_check(app, action);
  iha::app::add_inspect(app, action);
  iha::app::add_view(app, action);
  iha::app::add_plan(app, action);
  iha::app::add_bench(app, action);
  try {
    // CLI11 takes the arguments last first.
    auto arguments = iha::app::with_config({argv + 1, argv + argc});
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == kDone ? kDone : kWrongUsage;
  } catch (const std::exception& error) {
    fail_with(error.what());
    return kWrongUsage;
  }
  return run(action);
}
