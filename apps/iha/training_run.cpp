// See training_run.h.
#include "training_run.h"

#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config.h"
#include "iha/core/error.h"
#include "iha/io/atomic_file.h"
#include "iha/models/cost.h"
#include "iha/report/format.h"
#include "iha/train/checkpoint.h"
#include "iha/train/log.h"
#include "iha/train/progress.h"

namespace iha::app {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A number or a boolean where the text is exactly how JSON writes it, else the text.
json json_value(const std::string& text) {
  const json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool exact = (value.is_number() || value.is_boolean()) && value.dump() == text;
  return exact ? value : json(text);
}

nlohmann::ordered_json config_of(const TrainingOptions& options, std::vector<std::string> without) {
  without.insert(without.end(), {"resume", "overwrite", "json", "threads"});
  nlohmann::ordered_json config;
  for (const auto& [name, value] : resolved_options(*options.command, without)) {
    if (!value.empty()) config[name] = json_value(value);
  }
  return config;
}

void write_config(const TrainingOptions& options) {
  io::replace_file(fs::path(options.output) / "config.json", config_of(options, {}).dump(2) + "\n");
}

// Everything that decides the course of a run: all options but where it lies and how it is watched.
std::string course_of(const TrainingOptions& options) {
  return config_of(options, {"output", "log-every", "evaluate-every", "checkpoint-every", "patience",
                             "sample", "temperature"})
      .dump();
}

std::string note_of(const train::StepReport& report) {
  return iha::text("loss ", report::significant(report.loss, 3), "  rate ",
                   report::significant(report.rate, 2));
}

// Every step takes and frees the same megabytes. Given back to the system each time, they would be mapped and
// cleared again, a tenth of a short step's time.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 128 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

}  // namespace

void add_training_options(CLI::App& command, TrainingOptions& options, const std::string& rate_help) {
  options.command = &command;
  const CLI::Range counts(int64_t{0}, int64_t{1} << 40);
  train::TrainerSettings& trainer = options.trainer;
  train::RateSchedule& schedule = trainer.schedule;
  command.add_option("--steps", schedule.steps, "Optimizer steps")->check(counts);
  command.add_option("--rate", schedule.peak, "Peak learning rate" + rate_help)
      ->check(CLI::Range(rate_help.empty() ? 1e-12 : 0.0, 1e3));
  command.add_option("--warmup", schedule.warmup, "Steps in which the rate climbs to its peak")
      ->check(counts);
  command.add_option("--final-rate", schedule.floor, "Where the cosine ends, as a share of the peak")
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--batch", options.batch, "Examples a batch")->check(CLI::Range(1, 1 << 20));
  command.add_option("--accumulate", trainer.accumulate, "Batches a step, weighted by what counts in them")
      ->check(CLI::Range(1, 1 << 20));
  command
      .add_option("--weight-decay", trainer.adamw.weight_decay,
                  "AdamW's decay of the matrices of linear maps")
      ->check(CLI::Range(0.0, 1e3));
  command.add_option("--beta1", trainer.adamw.beta1, "AdamW's first beta")->check(CLI::Range(0.0, 0.999999));
  command.add_option("--beta2", trainer.adamw.beta2, "AdamW's second beta")->check(CLI::Range(0.0, 0.999999));
  command.add_option("--clip", trainer.clip, "Most global gradient norm; 0: no limit")
      ->check(CLI::Range(0.0, 1e9));
  command
      .add_option("--evaluate-every", trainer.evaluate_every,
                  "Steps between evaluations; 0: at the end alone")
      ->check(counts);
  command
      .add_option("--checkpoint-every", trainer.checkpoint_every,
                  "Steps between checkpoints; 0: at evaluations and the end alone")
      ->check(counts);
  command
      .add_option("--patience", trainer.patience,
                  "Stop after so many evaluations without a new best; 0: never")
      ->check(counts);
  command
      .add_option("--gate-temperature", options.gates.temperature,
                  "Of learned heads' gates, at the first step")
      ->check(CLI::Range(1e-3, 1e3));
  command
      .add_option("--final-gate-temperature", options.gates.final_temperature,
                  "Of learned heads' gates, at the last step")
      ->check(CLI::Range(1e-3, 1e3));
  command
      .add_option(
          "--gate-cost", options.gates.cost,
          "Added to the loss: this times the share of all pairs that learned heads are expected to read")
      ->check(CLI::Range(0.0, 1e3));
  command.add_option("--log-every", options.log_every, "Steps between records of the log")
      ->check(CLI::Range(1, 1 << 30));
  command.add_option("--seed", options.seed, "Seed of weights, batches and dropout")->check(counts);
  command.add_option("--output", options.output, "The run's folder");
  command.add_flag("--resume", options.resume, "Go on from the folder's latest checkpoint, if it has one");
  command.add_flag("--overwrite", options.overwrite, "Remove a run that the folder holds, and begin anew");
  command.add_flag("--json", options.json, "Print the summary as JSON");
  add_threads(command);
}

void prepare_folder(const TrainingOptions& options, const json& model) {
  const fs::path folder = options.output;
  if (fs::exists(folder / "config.json") && !options.resume) {
    check(options.overwrite, folder.string(),
          " holds a run already: --resume goes on with it, --overwrite removes it");
    fs::remove_all(folder);
  }
  fs::create_directories(folder);
  // A run that goes on keeps its own files; whether it may is decided by its checkpoint (run_training).
  if (options.resume && train::CheckpointFolder(folder / "checkpoints").latest()) return;
  write_config(options);
  write_json(folder / "model.json", model);
}

TrainingOutcome run_training(const std::string& title, torch::nn::Module& model, train::Objective& objective,
                             const TrainingOptions& options) {
  keep_freed_memory();
  const fs::path folder = options.output;
  train::TrainerSettings settings = options.trainer;
  settings.data = course_of(options);
  train::GatedObjective gated(model, objective, options.gates, settings.schedule.steps * settings.accumulate);
  train::Trainer trainer(model, gated, settings, folder / "checkpoints");
  if (options.resume) trainer.resume();
  const int64_t begin = trainer.state().step;
  train::RunLog log(folder, options.log_every, begin);
  const auto start = std::chrono::steady_clock::now();
  TrainingOutcome outcome;
  {
    train::ProgressBar bar(std::cerr, train::terminal_width(STDERR_FILENO), title, begin,
                           options.trainer.schedule.steps);
    outcome.result = trainer.run(
        {.on_step =
             [&](const train::StepReport& report) {
               log.step(report);
               if (report.step % options.log_every == 0) log.gates(report.step, train::gates_of(model));
               bar.update(report.step, note_of(report));
             },
         .on_evaluation = [&](const train::EvaluationReport& report) { log.evaluation(report); }});
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto best = trainer.checkpoints().best();
  if (best) train::load_model(*best / "model.safetensors", model);
  model.eval();
  train::save_model(folder / "model.safetensors", model);
  return outcome;
}

void write_hardened(const TrainingOptions& options, const torch::nn::Module& model, const json& config) {
  const fs::path folder = fs::path(options.output) / "hardened";
  fs::create_directories(folder);
  write_json(folder / "model.json", config);
  train::save_model(folder / "model.safetensors", model);
}

json read_json(const fs::path& file) {
  json value = json::parse(io::read_text(file), nullptr, /*allow_exceptions=*/false);
  check(!value.is_discarded(), file.string(), ": is not JSON");
  return value;
}

void write_json(const fs::path& file, const json& value) {
  io::replace_file(file, value.dump(2) + "\n");
}

json to_json(const std::vector<train::Metric>& metrics) {
  json object = json::object();
  for (const train::Metric& metric : metrics) {
    object[metric.name] = std::isfinite(metric.value) ? json(metric.value) : json(nullptr);
  }
  return object;
}

json run_figures(const TrainingOptions& options, const torch::nn::Module& model,
                 const TrainingOutcome& outcome) {
  return {{"seed", options.seed},
          {"rate", options.trainer.schedule.peak},
          {"parameters", models::parameter_count(model)},
          {"steps", outcome.result.steps},
          {"seconds", outcome.seconds},
          {"seconds_per_step", outcome.result.seconds_per_step}};
}

void print_result(const TrainingOptions& options, const json& summary, const std::string& lines) {
  if (options.json) {
    std::cout << summary.dump(2) << '\n';
  } else {
    std::cout << lines;
  }
}

}  // namespace iha::app
