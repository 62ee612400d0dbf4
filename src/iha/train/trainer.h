// The training loop: batches, accumulation, clipping, AdamW, schedule, evaluation, checkpoints. Not here:
// logs and progress (log.h, progress.h hang on the hooks), models and data (objective.h).
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/adamw.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "iha/train/checkpoint.h"
#include "iha/train/objective.h"
#include "iha/train/optimizer.h"
#include "iha/train/schedule.h"

namespace iha::train {

struct TrainerSettings {
  RateSchedule schedule;
  AdamWSettings adamw;
  double clip = 1.0;             // most global gradient norm; 0: no limit
  int64_t accumulate = 1;        // batches a step; their losses are weighted by tokens
  int64_t evaluate_every = 0;    // steps; 0: after the last step alone
  int64_t checkpoint_every = 0;  // steps; 0: after evaluations and the last step alone
  std::string data = {};         // model and data in words: a run goes on only where they are the same
  int64_t patience = 0;          // stop after so many evaluations in a row without a new best; 0: never
};

struct StepReport {
  int64_t step = 0;  // 1 for the first
  double loss = 0;   // mean over the step's tokens
  double rate = 0;
  double gradient_norm = 0;  // before clipping
  int64_t tokens = 0;
  double seconds = 0;
  bool skipped = false;  // no token counted: parameters and moments stayed as they were
};

struct EvaluationReport {
  int64_t step = 0;
  std::vector<Metric> metrics;
  bool best = false;
};

struct TrainerHooks {
  std::function<void(const StepReport&)> on_step;
  std::function<void(const EvaluationReport&)> on_evaluation;
};

struct TrainingResult {
  int64_t steps = 0;
  bool stopped_early = false;
  double seconds_per_step = 0;  // median of this process's steps, evaluation not counted; 0 without steps
  std::optional<EvaluationReport> last;
};

class Trainer {
 public:
  // `folder` holds the checkpoints; empty: none are written. `model` and `objective` outlive the trainer.
  // Throws std::invalid_argument for settings that mean nothing.
  Trainer(torch::nn::Module& model, Objective& objective, TrainerSettings settings,
          std::filesystem::path folder = {});

  // Goes on from the folder's latest checkpoint, if it has one, and tells whether it did. From there on the
  // run equals one that never stopped, bit for bit. Throws where the checkpoint was written under other
  // settings.
  bool resume();
  // One optimizer step. Throws c10::Error naming the step where the loss or the gradient is not finite;
  // parameters, moments and checkpoints are then those of the step before.
  StepReport step();
  // Metrics of the model as it is. Does not move torch's generator.
  EvaluationReport evaluate();
  // All steps that are left, with evaluations and checkpoints when they are due.
  TrainingResult run(const TrainerHooks& hooks = {});

  // Writes a checkpoint of the present step; without a folder nothing.
  void save_checkpoint(bool best = false);

  torch::optim::AdamW& optimizer() { return *optimizer_; }
  const TrainingState& state() const { return state_; }
  const CheckpointFolder& checkpoints() const { return checkpoints_; }

 private:
  bool finished() const;
  void refuse_unless_finite(double value, const char* what) const;

  torch::nn::Module& model_;
  Objective& objective_;
  TrainerSettings settings_;
  bool keeps_checkpoints_;
  CheckpointFolder checkpoints_;
  std::unique_ptr<torch::optim::AdamW> optimizer_;
  TrainingState state_;
};

}  // namespace iha::train
