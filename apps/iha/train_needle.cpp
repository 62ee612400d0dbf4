// `iha train needle`: heads that choose blocks of keys, on needles that no window of their budget reaches.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "iha/core/error.h"
#include "iha/patterns/count.h"
#include "iha/patterns/parse.h"
#include "iha/report/format.h"
#include "iha/report/report.h"
#include "iha/train/needle.h"
#include "run_report.h"
#include "train_commands.h"

namespace iha::app {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct NeedleOptions {
  NeedleOptions();

  tasks::NeedleOptions data;
  std::string patterns = "causal_dynamic:64:5*2";
  int64_t d_model = 64;
  int64_t index_dim = 16;
  int64_t test_tokens = 4096;
  int64_t held_out = 32;
  TrainingOptions training;
};

NeedleOptions::NeedleOptions() {
  data.tokens = 1024;
  training.output = "runs/needle";
  training.batch = 8;
  training.trainer.schedule = {.peak = 3e-3, .steps = 800, .warmup = 20, .floor = 0.1};
  training.trainer.evaluate_every = 100;
}

models::SequenceTaggerConfig model_config(const NeedleOptions& options) {
  models::SequenceTaggerConfig config;
  config.vocabulary = options.data.symbols();
  config.outputs = options.data.values;
  config.d_model = options.d_model;
  config.autoregressive = true;
  models::MixerConfig& mixer = config.layers[0];
  mixer.kind = "modes";
  mixer.patterns = parse_patterns(options.patterns);
  mixer.heads = static_cast<int64_t>(mixer.patterns.entries().size());
  if (std::ranges::any_of(mixer.patterns.entries(), &Pattern::dynamic)) mixer.index_dim = options.index_dim;
  return config;
}

// The most keys that a question reads of `tokens` tokens in one head.
int64_t budget(const NeedleOptions& options, int64_t tokens) {
  int64_t keys = 0;
  const PatternList patterns = parse_patterns(options.patterns);
  for (const Pattern& pattern : patterns.entries()) {
    keys = std::max(keys, read_keys(pattern, tokens - 1, tokens));
  }
  return keys;
}

std::string in_words(const json& summary) {
  const auto figure = [&](const char* split, const char* name) {
    return report::fixed(summary.at(split).at(name).get<double>(), 4);
  };
  return text(summary.at("patterns").get<std::string>(), ": accuracy ", figure("test", "accuracy"), " on ",
              report::count(summary.at("test_tokens").get<int64_t>()),
              " tokens, of which a head reads at most ",
              report::count(summary.at("keys_read").get<int64_t>()), " (chance ", figure("test", "chance"),
              "); ", report::count(summary.at("parameters").get<int64_t>()), " parameters, ",
              report::duration(summary.at("seconds_per_step").get<double>()), " a step\n");
}

int run(const NeedleOptions& given) {
  NeedleOptions options = given;
  torch::manual_seed(options.training.seed);
  models::SequenceTagger model(model_config(options));
  options.data.seed = options.training.seed;
  options.training.gates.tokens = options.data.tokens;
  train::NeedleObjective objective(model, options.data, options.training.batch, options.held_out);
  prepare_folder(options.training, model->config);
  const TrainingOutcome outcome = run_training("train needle", *model, objective, options.training);

  const fs::path folder = options.training.output;
  json summary{{"patterns", options.patterns},
               {"tokens", options.data.tokens},
               {"test_tokens", options.test_tokens},
               {"distance", options.data.distance},
               {"keys_read", budget(options, options.test_tokens)},
               {"validation", to_json(objective.evaluate())},
               {"test", to_json(objective.test(options.test_tokens))}};
  summary.update(run_figures(options.training, *model, outcome));
  write_json(folder / "summary.json", summary);
  report::write_html(folder / "report.html",
                     choosing_page("Needles in a haystack", in_words(summary), options.patterns, folder));
  print_result(options.training, summary, in_words(summary));
  return 0;
}

void declare(CLI::App& command, NeedleOptions& options) {
  const CLI::Range counts(1, 1 << 20);
  command.add_option("--patterns", options.patterns, "Causal patterns of the heads, one a head")
      ->check(pattern_list());
  command.add_option("--tokens", options.data.tokens, "Tokens of a sequence in training and validation")
      ->check(counts);
  command.add_option("--test-tokens", options.test_tokens, "Tokens of a sequence in the test")->check(counts);
  command
      .add_option("--distance", options.data.distance,
                  "Tokens from every needle to the first question, at least")
      ->check(counts);
  command.add_option("--keys", options.data.keys, "Needles of a sequence, one a key")->check(counts);
  command.add_option("--values", options.data.values, "Values that a needle may have")->check(counts);
  command.add_option("--length", options.data.length, "Tokens of a needle")->check(counts);
  command.add_option("--questions", options.data.questions, "Questions of a sequence, at its end")
      ->check(counts);
  command.add_option("--filler", options.data.filler, "Symbols of the haystack")->check(counts);
  command.add_option("--d-model", options.d_model, "Width of the model, a multiple of the heads")
      ->check(CLI::Range(1, 1 << 16));
  command.add_option("--index-dim", options.index_dim, "Channels of a dynamic head's index queries and keys")
      ->check(CLI::Range(1, 1 << 12));
  command.add_option("--held-out", options.held_out, "Sequences for validation, and as many for the test")
      ->check(counts);
  add_training_options(command, options.training);
}

}  // namespace

CLI::App* add_train_needle(CLI::App& parent, Action& action) {
  return add_command<NeedleOptions>(
      parent, "needle", "Train dynamic heads to find needles that a window of their budget cannot see",
      "iha train needle --patterns causal_dynamic:64:5*2 --output runs/needle", action, declare, run);
}

}  // namespace iha::app
