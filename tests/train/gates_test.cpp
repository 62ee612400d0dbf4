// Gates in training: temperatures by batch, the cost in the loss, the record, and both tasks' objectives.
#include "iha/train/gates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "iha/models/cost.h"
#include "iha/patterns/parse.h"
#include "iha/train/log.h"
#include "iha/train/needle.h"
#include "iha/train/planted_modes.h"
#include "iha/train/random_state.h"
#include "tests/io/scratch.h"
#include "tests/train/support.h"

namespace iha::train {
namespace {

models::SequenceTagger tagger(const std::string& patterns, int64_t symbols, int64_t outputs) {
  models::SequenceTaggerConfig config;
  config.vocabulary = symbols, config.outputs = outputs, config.d_model = 8;
  config.layers[0].kind = "modes";
  config.layers[0].heads = 2;
  config.layers[0].patterns = parse_patterns(patterns);
  return models::SequenceTagger(config);
}

constexpr auto kLearned = "learned(global|causal_sliding:1|strided:8)*2";

models::SequenceTagger planted_tagger() {
  return tagger(kLearned, tasks::kPlantedSymbols, 3);
}

double temperature(const models::SequenceTagger& model) {
  return model->named_buffers()["blocks.0.attention.gates.temperature"].item<double>();
}

TEST(GatedObjective, TheTemperatureFallsGeometricallyWithTheBatch) {
  models::SequenceTagger model = planted_tagger();
  PlantedModesObjective inner(model, {.tokens = 16}, 2, 4);
  GatedObjective objective(*model, inner, {.temperature = 4, .final_temperature = 0.25}, 5);
  for (const auto& [batch, expected] :
       {std::pair(0, 4.0), std::pair(4, 0.25), std::pair(2, 1.0), std::pair(1, 2.0), std::pair(9, 0.25)}) {
    objective.loss(batch);
    EXPECT_NEAR(temperature(model), expected, 1e-12) << batch;
  }
  GatedObjective single(*model, inner, {.temperature = 3}, 1);
  single.loss(0);
  EXPECT_EQ(temperature(model), 3);
}

TEST(GatedObjective, TheCostIsAddedToTheLoss) {
  models::SequenceTagger model = planted_tagger();
  PlantedModesObjective inner(model, {.tokens = 16}, 2, 4);
  GatedObjective free(*model, inner, {}, 10), dear(*model, inner, {.cost = 0.5, .tokens = 64}, 10);
  const Loss without = free.loss(3), with = dear.loss(3);
  EXPECT_EQ(with.tokens, without.tokens);
  const double share = models::expected_pair_share(*model, 64).item<double>();
  EXPECT_NEAR(with.mean.item<double>() - without.mean.item<double>(), 0.5 * share, 1e-6);
  with.mean.backward();
  EXPECT_TRUE(model->named_parameters()["blocks.0.attention.gates.logits"].grad().defined());
}

TEST(GatedObjective, WithoutLearnedHeadsIsTheInnerOne) {
  models::SequenceTagger model = tagger("global", tasks::kPlantedSymbols, 3);
  PlantedModesObjective inner(model, {.tokens = 16}, 2, 4);
  GatedObjective objective(*model, inner, {.cost = 5}, 10);
  EXPECT_EQ(objective.loss(2).mean.item<double>(), inner.loss(2).mean.item<double>());
  EXPECT_TRUE(gates_of(*model).empty());
}

TEST(GatedObjective, RefusesSettingsThatMeanNothing) {
  models::SequenceTagger model = planted_tagger();
  PlantedModesObjective inner(model, {.tokens = 16}, 2, 4);
  for (const GateSettings& settings : {GateSettings{.temperature = 0}, GateSettings{.final_temperature = 0},
                                       GateSettings{.cost = -1}, GateSettings{.tokens = 0}}) {
    EXPECT_THROW(GatedObjective(*model, inner, settings, 1), std::invalid_argument);
  }
}

// Temperature, noise and cost are all where they were.
TEST(GatedObjective, AResumedRunIsTheRunThatNeverStopped) {
  const io::Scratch scratch;
  TrainerSettings settings;
  settings.schedule = {.peak = 0.01, .steps = 6, .warmup = 2};
  models::SequenceTaggerConfig config = planted_tagger()->config;
  config.layers[0].gate_noise = 0.5;
  const auto run = [&](const std::string& folder, int64_t stop_at) {
    torch::manual_seed(3);
    for (const int64_t until : {stop_at, int64_t{6}}) {
      models::SequenceTagger model(config);
      PlantedModesObjective inner(model, {.tokens = 16}, 2, 4);
      GatedObjective objective(*model, inner, {.cost = 0.1, .tokens = 16}, 6);
      Trainer trainer(*model, objective, settings, scratch / folder);
      trainer.resume();
      while (trainer.state().step < until) trainer.step();
      trainer.save_checkpoint();
      if (until == 6) return model;
    }
    return models::SequenceTagger(nullptr);
  };
  const auto whole = run("whole", 6), resumed = run("resumed", 3);
  for (const auto& item : whole->named_parameters()) {
    EXPECT_TRUE(same_bits(item.value(), resumed->named_parameters()[item.key()])) << item.key();
  }
  EXPECT_EQ(temperature(whole), temperature(resumed));
  EXPECT_GT(whole->named_parameters()["blocks.0.attention.gates.logits"].abs().max().item<double>(), 0);
}

TEST(Gates, AreRecordedAndReadBack) {
  const io::Scratch scratch;
  models::SequenceTagger model = planted_tagger();
  const auto heads = gates_of(*model);
  ASSERT_EQ(heads.size(), 2u);
  EXPECT_EQ(heads[1].name, "blocks.0.attention, head 1");
  EXPECT_EQ(heads[1].modes, (std::vector<std::string>{"global", "causal_sliding:1", "strided:8"}));
  RunLog log(scratch.path(), 2);
  for (int64_t step = 1; step <= 4; ++step) {
    log.step({.step = step, .loss = 1.0});
    log.gates(step, heads);
  }
  const auto curves = read_gates(scratch.path());
  ASSERT_EQ(curves.size(), 2u);
  EXPECT_EQ(curves[0].head, heads[0].name);
  ASSERT_EQ(curves[0].modes.size(), 3u);
  EXPECT_EQ(curves[0].modes[1].name, "causal_sliding:1");
  EXPECT_EQ(curves[0].modes[1].steps, (std::vector<double>{2, 4}));
  EXPECT_EQ(curves[0].modes[1].values[0], heads[0].gates[1]);
  EXPECT_EQ(read_curves(scratch.path()).size(), 1u);  // the loss alone
}

TEST(PlantedModesObjective, MeasuresEveryTag) {
  models::SequenceTagger model = planted_tagger();
  const auto before = random_state();
  PlantedModesObjective objective(model, {.tokens = 16}, 4, 6);
  EXPECT_EQ(objective.loss(1).tokens, 4 * 16 * 3);
  EXPECT_EQ(objective.loss(1).mean.item<double>(), objective.loss(1).mean.item<double>());
  const auto metrics = objective.evaluate();
  ASSERT_EQ(metrics.size(), 5u);
  EXPECT_EQ(metrics[0].name, "loss");
  EXPECT_EQ(metrics[4].name, "accuracy_global");
  EXPECT_NEAR(metrics[1].value, (metrics[2].value + metrics[3].value + metrics[4].value) / 3, 1e-12);
  EXPECT_NE(objective.test()[0].value, metrics[0].value);
  EXPECT_TRUE(same_bits(random_state(), before));
  EXPECT_THROW(PlantedModesObjective(model, {}, 0, 1), std::invalid_argument);
}

TEST(NeedleObjective, CountsQuestionsAndTestsAtOtherLengths) {
  const tasks::NeedleOptions data{
      .tokens = 64, .keys = 3, .values = 4, .length = 2, .questions = 5, .distance = 24};
  models::SequenceTagger model = tagger("causal_dynamic:8:2,causal", data.symbols(), data.values);
  const auto before = random_state();
  NeedleObjective objective(model, data, 4, 6);
  const Loss loss = objective.loss(0);
  EXPECT_EQ(loss.tokens, 4 * 5);
  loss.mean.backward();
  EXPECT_GT(
      model->named_parameters()["blocks.0.attention.index.query.weight"].grad().abs().sum().item<double>(),
      0);
  const auto metrics = objective.evaluate();
  EXPECT_EQ(metrics[0].name, "accuracy");
  EXPECT_EQ(metrics[1].value, 0.25);
  EXPECT_NE(objective.test(128)[2].value, objective.test(64)[2].value);
  EXPECT_TRUE(same_bits(random_state(), before));
  EXPECT_THROW(NeedleObjective(model, data, 1, 0), std::invalid_argument);
}

}  // namespace
}  // namespace iha::train
