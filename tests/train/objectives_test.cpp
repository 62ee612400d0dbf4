#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "iha/train/composition.h"
#include "iha/train/language.h"
#include "iha/train/random_state.h"
#include "tests/train/support.h"

namespace iha::train {
namespace {

double value_of(const std::vector<Metric>& metrics, const std::string& name) {
  for (const Metric& metric : metrics) {
    if (metric.name == name) return metric.value;
  }
  ADD_FAILURE() << "no metric " << name;
  return 0;
}

void set_to_zero(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) parameter.zero_();
}

tasks::RelationCompositionOptions few_relations() {
  auto options = tasks::RelationCompositionOptions::binary();  // sides 6 to 10: batches are padded
  options.train = 40;
  options.validation = 20;
  options.test = 20;
  return options;
}

models::TokenTagger small_tagger() {
  models::TokenTaggerConfig config;
  config.max_side = 10;
  config.d_model = 8;
  config.layers[0].heads = 2;
  return models::TokenTagger(config);
}

TEST(CompositionObjective, ABatchesNumberDecidesItsContent) {
  models::TokenTagger model = small_tagger();
  CompositionObjective one(model, few_relations(), 4, 1), other(model, few_relations(), 4, 1);
  const double third = one.loss(3).mean.item<double>();
  for (int64_t batch = 0; batch < 3; ++batch) other.loss(batch);
  EXPECT_EQ(other.loss(3).mean.item<double>(), third);
  EXPECT_NE(other.loss(4).mean.item<double>(), third);
  CompositionObjective differently_ordered(model, few_relations(), 4, 2);
  EXPECT_NE(differently_ordered.loss(3).mean.item<double>(), third);
}

TEST(CompositionObjective, NothingOfItMovesTorchsGenerator) {
  models::TokenTagger model = small_tagger();
  const auto before = random_state();
  CompositionObjective objective(model, few_relations(), 4, 1);
  objective.loss(0);
  objective.evaluate();
  objective.test();
  EXPECT_TRUE(same_bits(random_state(), before));
}

TEST(CompositionObjective, CountsCellsOfRelationsNotOfPadding) {
  models::TokenTagger model = small_tagger();
  set_to_zero(*model);  // logits 0: a loss of log 2 in every cell
  CompositionObjective objective(model, few_relations(), 4, 1);
  const Loss loss = objective.loss(0);
  EXPECT_NEAR(loss.mean.item<double>(), std::log(2.0), 1e-6);
  EXPECT_GE(loss.tokens, 4 * 36);
  EXPECT_LE(loss.tokens, 4 * 100);
  int64_t epoch = 0;
  for (int64_t batch = 0; batch < 10; ++batch) epoch += objective.loss(batch).tokens;
  int64_t cells = 0;
  for (const auto& relation : tasks::draw_relations(few_relations()).train)
    cells += relation.side * relation.side;
  EXPECT_EQ(epoch, cells);  // 10 batches of 4 are all 40 relations, once each
}

TEST(CompositionObjective, MeasuresAConstantAnswerAsWhatItIs) {
  models::TokenTagger model = small_tagger();
  set_to_zero(*model);  // a logit of 0 answers "not related"
  CompositionObjective objective(model, few_relations(), 4, 1);
  const auto metrics = objective.evaluate();
  EXPECT_EQ(metrics.front().name, "accuracy");
  const double majority = value_of(metrics, "majority"), accuracy = value_of(metrics, "accuracy");
  EXPECT_TRUE(accuracy == majority || std::abs(accuracy - (1 - majority)) < 1e-12)
      << accuracy << " " << majority;
  EXPECT_NE(value_of(objective.test(), "accuracy"), accuracy);  // other relations
}

TEST(CompositionObjective, RefusesAnEmptyBatch) {
  models::TokenTagger model = small_tagger();
  EXPECT_THROW(CompositionObjective(model, few_relations(), 0, 1), std::invalid_argument);
}

models::LanguageModel small_language_model(bool tied = true) {
  models::LanguageModelConfig config;
  config.d_model = 8;
  config.context = 16;
  config.tied = tied;
  models::MixerConfig mixer;
  mixer.heads = 2;
  mixer.patterns = causal();
  config.layers = {mixer};
  return models::LanguageModel(config);
}

tasks::ByteText some_text() {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i) + "\n";
  return tasks::split_text(text, 0.25);
}

TEST(LanguageObjective, ABatchesNumberDecidesItsContent) {
  models::LanguageModel model = small_language_model();
  LanguageObjective one(model, some_text(), 3, 5), other(model, some_text(), 3, 5);
  const double third = one.loss(3).mean.item<double>();
  for (int64_t batch = 0; batch < 3; ++batch) other.loss(batch);
  EXPECT_EQ(other.loss(3).mean.item<double>(), third);
  EXPECT_NE(other.loss(4).mean.item<double>(), third);
  EXPECT_EQ(one.loss(0).tokens, 3 * 16);
}

TEST(LanguageObjective, NothingOfItMovesTorchsGenerator) {
  models::LanguageModel model = small_language_model();
  const auto before = random_state();
  LanguageObjective objective(model, some_text(), 3, 5);
  objective.loss(0);
  objective.evaluate();
  EXPECT_TRUE(same_bits(random_state(), before));
}

TEST(LanguageObjective, AModelThatKnowsNothingNeeds8BitsAByte) {
  models::LanguageModel model = small_language_model();
  set_to_zero(*model);
  LanguageObjective objective(model, some_text(), 3, 5);
  const auto metrics = objective.evaluate();
  EXPECT_EQ(metrics.front().name, "bits_per_byte");
  EXPECT_FALSE(metrics.front().higher_is_better);
  EXPECT_NEAR(metrics.front().value, 8.0, 1e-5);
}

TEST(LanguageObjective, RefusesAnEmptyBatchAndATextShorterThanAWindow) {
  models::LanguageModel model = small_language_model();
  EXPECT_THROW(LanguageObjective(model, some_text(), 0, 5), std::invalid_argument);
  EXPECT_THROW(LanguageObjective(model, {"short", "text", {}}, 1, 5), std::invalid_argument);
}

}  // namespace
}  // namespace iha::train
