// `iha train compose`: one model on relation composition.
#include <nlohmann/json.hpp>

#include "composition_options.h"
#include "iha/core/error.h"
#include "iha/report/format.h"
#include "iha/report/report.h"
#include "iha/train/composition.h"
#include "run_report.h"
#include "train_commands.h"

namespace iha::app {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct ComposeOptions : CompositionOptions {
  std::string variant = "interleaved";
  std::string model;
};

models::TokenTaggerConfig model_config(const ComposeOptions& options) {
  if (options.model.empty())
    return models::composition_variant(options.variant, options.resolved_scale()).config;
  return read_json(options.model).get<models::TokenTaggerConfig>();
}

double figure(const json& metrics, const char* name) {
  return metrics.at(name).is_null() ? NAN : metrics.at(name).get<double>();
}

std::string in_words(const json& summary) {
  const json& test = summary.at("test");
  return text(summary.at("mixer").get<std::string>(), ": accuracy ",
              report::fixed(figure(test, "accuracy"), 4), " (the better constant answer ",
              report::fixed(figure(test, "majority"), 4), "), exact match ",
              report::fixed(figure(test, "exact_match"), 4), " on test relations; ",
              report::count(summary.at("parameters").get<int64_t>()), " parameters, ",
              report::duration(summary.at("seconds_per_step").get<double>()), " a step\n");
}

report::Page page_of(const ComposeOptions& options, const models::TokenTagger& model, const json& summary) {
  report::Page page;
  page.title = "Relation composition: " + options.variant;
  page.lead = in_words(summary);
  page.sections.push_back({"How it learned", learning_curves({{options.variant, options.training.output}})});
  if (const auto maps = mixing_maps(*model); !maps.empty())
    page.sections.push_back({"Mixing weights", {maps.begin(), maps.end()}});
  return page;
}

int run(const ComposeOptions& given) {
  ComposeOptions options = given;
  train::RateSchedule& schedule = options.training.trainer.schedule;
  if (schedule.peak == 0) {
    schedule.peak = models::composition_variant(options.variant, options.resolved_scale()).learning_rate;
  }
  torch::manual_seed(options.training.seed);
  models::TokenTagger model(model_config(options));
  train::CompositionObjective objective(model, options.resolved_data(), options.training.batch,
                                        options.training.seed);
  options.training.gates.tokens = options.resolved_data().max_side * options.resolved_data().max_side;
  prepare_folder(options.training, model->config);
  const TrainingOutcome outcome = run_training("train compose", *model, objective, options.training);

  const int64_t side = options.resolved_data().max_side;
  json summary{{"mixer", options.model.empty() ? options.variant : options.model},
               {"flops_per_step", training_flops(model->flops(side * side).total(), options.training)},
               {"validation", to_json(objective.evaluate())},
               {"test", to_json(objective.test())}};
  summary.update(run_figures(options.training, *model, outcome));
  write_json(fs::path(options.training.output) / "summary.json", summary);
  report::write_html(fs::path(options.training.output) / "report.html", page_of(options, model, summary));
  print_result(options.training, summary, in_words(summary));
  return 0;
}

void declare(CLI::App& command, ComposeOptions& options) {
  std::vector<std::string> names;
  for (const auto& variant : models::composition_variants()) names.push_back(variant.name);
  command.add_option("--variant", options.variant, "Which model of the comparison")
      ->check(CLI::IsMember(names));
  command.add_option("--model", options.model, "A model.json, instead of --variant and its scale")
      ->check(CLI::ExistingFile);
  options.training.output = "runs/compose";
  add_composition_options(command, options);
}

}  // namespace

CompositionOptions::CompositionOptions() : data(tasks::RelationCompositionOptions::small()) {
  training.trainer.schedule = {.peak = 0, .steps = 2000, .warmup = 100};
  training.trainer.evaluate_every = 200;
}

tasks::RelationCompositionOptions CompositionOptions::resolved_data() const {
  auto resolved = task == "small"    ? tasks::RelationCompositionOptions::small()
                  : task == "binary" ? tasks::RelationCompositionOptions::binary()
                                     : tasks::RelationCompositionOptions::ternary();
  resolved.train = data.train;
  resolved.validation = data.validation;
  resolved.test = data.test;
  resolved.seed = data.seed;
  return resolved;
}

models::CompositionScale CompositionOptions::resolved_scale() const {
  models::CompositionScale resolved = scale;
  resolved.max_side = resolved_data().max_side;
  return resolved;
}

void add_composition_options(CLI::App& command, CompositionOptions& options) {
  const CLI::Range counts(1, 1 << 24);
  command
      .add_option("--task", options.task,
                  "R o R on 5 elements (small) or on 6 to 10 (binary), R o R o R on 5 to 8 (ternary)")
      ->check(CLI::IsMember({"small", "binary", "ternary"}));
  command.add_option("--train-relations", options.data.train, "Relations to train on")->check(counts);
  command
      .add_option("--validation-relations", options.data.validation, "Relations that choose the best weights")
      ->check(counts);
  command.add_option("--test-relations", options.data.test, "Relations that the figures are of")
      ->check(counts);
  command.add_option("--data-seed", options.data.seed, "Seed of the relations")
      ->check(CLI::Range(0, 1 << 30));
  command.add_option("--d-model", options.scale.d_model, "Width of the model")->check(CLI::Range(1, 1 << 16));
  command.add_option("--heads", options.scale.heads, "Heads (the variants with 8 heads have 8)")
      ->check(CLI::Range(1, 1 << 10));
  command.add_option("--pseudo-heads", options.scale.pseudo_heads, "Pseudo-heads a head")
      ->check(CLI::Range(1, 1 << 8));
  add_training_options(command, options.training, "; 0: the variant's own, chosen by a sweep");
}

CLI::App* add_train_compose(CLI::App& parent, Action& action) {
  return add_command<ComposeOptions>(
      parent, "compose", "Train a model to compose relations (given R, tell R o R)",
      "iha train compose --variant interleaved --seed 1 --output runs/interleaved", action, declare, run);
}

}  // namespace iha::app
