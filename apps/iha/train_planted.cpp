// `iha train planted`: learned heads that must find the patterns a task was made of.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "iha/core/error.h"
#include "iha/patterns/parse.h"
#include "iha/report/format.h"
#include "iha/report/report.h"
#include "iha/train/planted_modes.h"
#include "run_report.h"
#include "train_commands.h"

namespace iha::app {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct PlantedOptions {
  PlantedOptions();

  tasks::PlantedModesOptions data;
  std::string patterns = "learned(global|causal_sliding:1|strided:8|sliding:8)*3";
  int64_t d_model = 48;
  double gate_noise = 0.5;
  int64_t held_out = 256;
  TrainingOptions training;
};

PlantedOptions::PlantedOptions() {
  training.output = "runs/planted";
  training.batch = 16;
  training.trainer.schedule = {.peak = 1e-2, .steps = 1000, .warmup = 20, .floor = 0.1};
  training.trainer.evaluate_every = 100;
  training.gates.temperature = 2.0;
  training.gates.final_temperature = 0.2;
  training.gates.cost = 0.005;
}

models::SequenceTaggerConfig model_config(const PlantedOptions& options) {
  models::SequenceTaggerConfig config;
  config.vocabulary = tasks::kPlantedSymbols;
  config.outputs = static_cast<int64_t>(tasks::kPlantedTags.size());
  config.d_model = options.d_model;
  models::MixerConfig& mixer = config.layers[0];
  mixer.kind = "modes";
  mixer.patterns = parse_patterns(options.patterns);
  mixer.heads = static_cast<int64_t>(mixer.patterns.entries().size());
  if (most_candidates(mixer.patterns.entries()) > 0) mixer.gate_noise = options.gate_noise;
  return config;
}

// The patterns that the task needs, and whether the heads of `model` are these, in any order.
std::vector<Pattern> planted_patterns(const PlantedOptions& options) {
  return {causal_sliding(1), strided(options.data.step), global()};
}
bool found(const PlantedOptions& options, const models::SequenceTagger& model) {
  const std::vector<Pattern> heads = model->config.layers[0].patterns.entries();
  const std::vector<Pattern> planted = planted_patterns(options);
  return std::ranges::is_permutation(heads, planted);
}

json gates_json(const std::vector<train::HeadGates>& heads) {
  json list = json::array();
  for (const train::HeadGates& head : heads) {
    json gates = json::object();
    for (std::size_t m = 0; m < head.modes.size(); ++m) gates[head.modes[m]] = head.gates[m];
    list.push_back({{"head", head.name}, {"gates", gates}});
  }
  return list;
}

std::string in_words(const json& summary) {
  const auto accuracy = [&](const char* which) {
    return report::fixed(summary.at(which).at("accuracy").get<double>(), 4);
  };
  std::string words = text("accuracy ", accuracy("test"));
  if (summary.contains("hardened")) {
    words +=
        text(", hardened ", accuracy("hardened"), "; heads chose ", summary.at("chosen").get<std::string>(),
             ", the planted modes ", summary.at("found").get<bool>() ? "found" : "not found");
  }
  return text(words, "; ", report::count(summary.at("parameters").get<int64_t>()), " parameters, ",
              report::duration(summary.at("seconds_per_step").get<double>()), " a step\n");
}

int run(const PlantedOptions& given) {
  PlantedOptions options = given;
  torch::manual_seed(options.training.seed);
  models::SequenceTagger model(model_config(options));
  options.data.seed = options.training.seed;
  options.training.gates.tokens = options.data.tokens;
  train::PlantedModesObjective objective(model, options.data, options.training.batch, options.held_out);
  prepare_folder(options.training, model->config);
  const TrainingOutcome outcome = run_training("train planted", *model, objective, options.training);

  const fs::path folder = options.training.output;
  json summary{{"patterns", options.patterns},
               {"gate_cost", options.training.gates.cost},
               {"validation", to_json(objective.evaluate())},
               {"test", to_json(objective.test())},
               {"gates", gates_json(train::gates_of(*model))}};
  summary.update(run_figures(options.training, *model, outcome));
  if (save_hardened(options.training, model)) {
    summary["chosen"] = to_text(model->config.layers[0].patterns);
    summary["found"] = found(options, model);
    summary["hardened"] = to_json(objective.test());
  }
  write_json(folder / "summary.json", summary);
  report::write_html(folder / "report.html", choosing_page("Heads that find their patterns",
                                                           in_words(summary), "planted modes", folder));
  print_result(options.training, summary, in_words(summary));
  return 0;
}

void declare(CLI::App& command, PlantedOptions& options) {
  command.add_option("--patterns", options.patterns, "Patterns of the heads, one a head")
      ->check(pattern_list());
  command.add_option("--tokens", options.data.tokens, "Tokens of a sequence")->check(CLI::Range(9, 1 << 16));
  command.add_option("--step", options.data.step, "The distances that one tag needs are its multiples")
      ->check(CLI::Range(1, 1 << 12));
  command.add_option("--d-model", options.d_model, "Width of the model, a multiple of the heads")
      ->check(CLI::Range(1, 1 << 16));
  command
      .add_option("--gate-noise", options.gate_noise, "Gumbel noise on learned heads' logits, in training")
      ->check(CLI::Range(0.0, 100.0));
  command.add_option("--held-out", options.held_out, "Sequences for validation, and as many for the test")
      ->check(CLI::Range(1, 1 << 20));
  add_training_options(command, options.training);
}

}  // namespace

CLI::App* add_train_planted(CLI::App& parent, Action& action) {
  return add_command<PlantedOptions>(
      parent, "planted", "Train learned heads on a task that needs three known patterns",
      "iha train planted --seed 1 --output runs/planted", action, declare, run);
}

}  // namespace iha::app
