// `iha train`: one model of each kind is one subcommand.
#include "command.h"
#include "train_commands.h"

namespace iha::app {

void add_train(CLI::App& app, Action& action) {
  CLI::App* train = app.add_subcommand("train", "Train one model, with checkpoints, logs and a report");
  train->require_subcommand(1);
  train->footer("Example:\n  iha train compose --variant interleaved");
  add_train_lm(*train, action);
  add_train_compose(*train, action);
  add_train_planted(*train, action);
  add_train_needle(*train, action);
}

}  // namespace iha::app
