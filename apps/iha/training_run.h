// What the commands of `iha train` share: options of the training loop, the run's folder, and a
// run with its log, progress line and checkpoints. A run's folder holds
//   config.json        the resolved options: `--config config.json` repeats the run
//   model.json         the model's configuration, every default written out
//   model.safetensors  the weights that did best on validation data
//   train.jsonl, events.out.tfevents.*   the course of the run
//   checkpoints/       what --resume goes on from
//   summary.json, report.html            the result
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "iha/train/gates.h"
#include "iha/train/trainer.h"

namespace iha::app {

struct TrainingOptions {
  train::TrainerSettings trainer;
  train::GateSettings gates;  // read where the model has learned heads; `tokens` is the command's to set
  int64_t batch = 64;
  uint64_t seed = 0;
  int64_t log_every = 10;
  std::string output;
  bool resume = false;
  bool overwrite = false;
  bool json = false;
  const CLI::App* command = nullptr;  // whose resolved options config.json keeps
};

// --steps, --rate, ... with `options` as defaults. `rate_help` tells what --rate 0 means; empty: 0 is
// refused.
void add_training_options(CLI::App& command, TrainingOptions& options, const std::string& rate_help = {});

struct TrainingOutcome {
  train::TrainingResult result;
  double seconds = 0;  // of this process's steps and evaluations
};

// Refuses a folder that holds a run already unless --resume or --overwrite is given (which removes it), makes
// the folder and writes config.json and `model` (as model.json).
void prepare_folder(const TrainingOptions& options, const nlohmann::json& model);

// Trains, with a progress line where standard error is a terminal, and leaves in `model` and in
// model.safetensors the weights that did best on validation data.
TrainingOutcome run_training(const std::string& title, torch::nn::Module& model, train::Objective& objective,
                             const TrainingOptions& options);

nlohmann::json read_json(const std::filesystem::path& file);  // throws std::invalid_argument naming the file
void write_json(const std::filesystem::path& file, const nlohmann::json& value);  // atomically
nlohmann::json to_json(const std::vector<train::Metric>& metrics);  // {name: value}; null where not finite

// Where the model, a models:: module with harden(), has learned heads: hardens it, undecided heads too, and
// leaves it in hardened/ of the run's folder as model.json and model.safetensors. Tells whether it did.
template <class Model>
bool save_hardened(const TrainingOptions& options, Model& model);

// What the summary of every run holds: seed, rate, parameters, steps, seconds, seconds_per_step.
nlohmann::json run_figures(const TrainingOptions& options, const torch::nn::Module& model,
                           const TrainingOutcome& outcome);

// Prints `summary` where --json was given, else `lines`.
void print_result(const TrainingOptions& options, const nlohmann::json& summary, const std::string& lines);

// The parts of save_hardened that know no model.
void write_hardened(const TrainingOptions& options, const torch::nn::Module& model,
                    const nlohmann::json& config);

template <class Model>
bool save_hardened(const TrainingOptions& options, Model& model) {
  if (train::gates_of(*model).empty()) return false;
  model->harden(0);
  write_hardened(options, *model, model->config);
  return true;
}

}  // namespace iha::app
