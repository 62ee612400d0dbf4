// The subcommands of `iha train`, and what their summaries share.
#pragma once

#include "training_run.h"

namespace iha::app {

CLI::App* add_train_compose(CLI::App& parent, Action& action);
CLI::App* add_train_lm(CLI::App& parent, Action& action);
CLI::App* add_train_needle(CLI::App& parent, Action& action);
CLI::App* add_train_planted(CLI::App& parent, Action& action);

// FLOPs of an optimizer step whose examples take `forward` FLOPs each: the backward pass counts as two
// forward passes.
inline int64_t training_flops(int64_t forward, const TrainingOptions& options) {
  return 3 * forward * options.batch * options.trainer.accumulate;
}

}  // namespace iha::app
