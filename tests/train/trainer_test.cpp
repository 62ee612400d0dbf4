#include "iha/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "iha/nn/tensor_file.h"
#include "iha/train/random_state.h"
#include "tests/io/scratch.h"
#include "tests/train/support.h"

namespace iha::train {
namespace {

using nn::NamedTensors;
using testing::ElementsAre;
using testing::HasSubstr;

// Losses from a list, each of one parameter: d loss / d parameter = 1.
class ListedObjective : public Objective {
 public:
  struct Entry {
    double mean;
    int64_t tokens;
  };
  ListedObjective(torch::Tensor parameter, std::vector<Entry> entries)
      : parameter_(std::move(parameter)), entries_(std::move(entries)) {}
  Loss loss(int64_t batch) override {
    const Entry& entry = entries_.at(static_cast<std::size_t>(batch));
    return {(parameter_ - parameter_.detach()).sum() + entry.mean, entry.tokens};
  }
  std::vector<Metric> evaluate() override { return {}; }

 private:
  torch::Tensor parameter_;
  std::vector<Entry> entries_;
};

TrainerSettings settings_of(int64_t steps) {
  TrainerSettings settings;
  settings.schedule = {.peak = 0.01, .steps = steps, .warmup = 2};
  settings.adamw.weight_decay = 0.1;
  return settings;
}

SmallNet net_with_seed(uint64_t seed) {
  torch::manual_seed(seed);
  return SmallNet();
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(Accumulation, WeighsBatchesByTokens) {
  SmallNet net;
  ListedObjective objective(net->unused, {{4.0, 1}, {2.0, 3}});
  TrainerSettings settings = settings_of(1);
  settings.accumulate = 2;
  const StepReport report = Trainer(*net, objective, settings).step();
  EXPECT_DOUBLE_EQ(report.loss, 2.5);  // (4 + 3 * 2) / 4, not the mean of means 3
  EXPECT_EQ(report.tokens, 4);
  // Every loss has the gradient 1 a component, and so has their weighted mean: norm sqrt(3).
  EXPECT_NEAR(report.gradient_norm, std::sqrt(3.0), 1e-6);
}

TEST(Accumulation, EqualsOneLargeBatch) {
  // The same 22 predictions, as two batches of 11 in one step or as their mean in one.
  SmallNet apart = net_with_seed(3), together = net_with_seed(3);
  apart->eval();
  SmallObjective two(apart);
  struct Joined : SmallObjective {
    using SmallObjective::SmallObjective;
    Loss loss(int64_t) override {
      const Loss first = SmallObjective::loss(0), second = SmallObjective::loss(1);
      return {(first.mean + second.mean) / 2, 22};
    }
  } one(together);
  apart->dropout->options.p(0.0);
  together->dropout->options.p(0.0);
  TrainerSettings settings = settings_of(1);
  Trainer(*together, one, settings).step();
  settings.accumulate = 2;
  Trainer(*apart, two, settings).step();
  EXPECT_TRUE(torch::allclose(apart->linear->weight.grad(), together->linear->weight.grad(), 1e-5, 1e-7));
}

TEST(Accumulation, SkipsAStepInWhichNothingCounts) {
  SmallNet net;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ListedObjective objective(net->unused, {{nan, 0}, {nan, 0}, {nan, 0}, {2.0, 3}});
  TrainerSettings settings = settings_of(2);
  settings.accumulate = 2;
  Trainer trainer(*net, objective, settings);
  const auto before = net->linear->weight.detach().clone();
  const auto unused = net->unused.detach().clone();
  const StepReport skipped = trainer.step();
  EXPECT_TRUE(skipped.skipped);
  EXPECT_TRUE(same_bits(net->linear->weight, before));
  EXPECT_TRUE(same_bits(net->unused, unused));
  const StepReport counted = trainer.step();  // one of its two batches counts
  EXPECT_FALSE(counted.skipped);
  EXPECT_DOUBLE_EQ(counted.loss, 2.0);
  EXPECT_FALSE(same_bits(net->unused, unused));
}

TEST(Step, TakesBatchesByNumberAndTheRateOfTheSchedule) {
  SmallNet net = net_with_seed(1);
  SmallObjective objective(net);
  TrainerSettings settings = settings_of(4);
  settings.accumulate = 2;
  Trainer trainer(*net, objective, settings);
  EXPECT_DOUBLE_EQ(trainer.step().rate, 0.005);
  EXPECT_DOUBLE_EQ(trainer.step().rate, 0.01);
  EXPECT_THAT(objective.batches, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(trainer.state().batch, 4);
}

TEST(Step, LowersTheLoss) {
  SmallNet net = net_with_seed(5);
  struct Fixed : SmallObjective {
    using SmallObjective::SmallObjective;
    Loss loss(int64_t) override { return SmallObjective::loss(0); }
  } objective(net);
  TrainerSettings settings = settings_of(200);
  settings.schedule.peak = 0.05;
  Trainer trainer(*net, objective, settings);
  const double first = trainer.step().loss;
  double last = 0;
  for (int i = 0; i < 150; ++i) last = trainer.step().loss;
  EXPECT_LT(last, 0.7 * first);
}

TEST(Step, NamesTheStepOfALossThatIsNotFiniteAndKeepsTheCheckpoint) {
  const io::Scratch scratch;
  SmallNet net;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ListedObjective objective(net->unused, {{1.0, 1}, {1.0, 1}, {nan, 1}});
  TrainerSettings settings = settings_of(5);
  settings.checkpoint_every = 1;
  Trainer trainer(*net, objective, settings, scratch.path());
  const std::string message = message_of([&] { trainer.run(); });
  EXPECT_THAT(message, HasSubstr("the loss of step 3 is nan"));
  EXPECT_THAT(message, HasSubstr("step-0000000002"));
  EXPECT_EQ(trainer.checkpoints().latest(), scratch.path() / "step-0000000002");
  SmallNet other;
  Trainer again(*other, objective, settings, scratch.path());
  EXPECT_TRUE(again.resume());
  EXPECT_EQ(again.state().step, 2);
}

TEST(Step, RefusesAGradientThatIsNotFinite) {
  SmallNet net;
  struct Infinite : SmallObjective {
    using SmallObjective::SmallObjective;
    SmallNet net{nullptr};
    // sqrt has the slope inf at 0.
    Loss loss(int64_t) override { return {torch::sqrt(net->unused - net->unused.detach()).sum(), 1}; }
  } objective(net);
  objective.net = net;
  Trainer trainer(*net, objective, settings_of(2));
  const auto before = net->unused.detach().clone();
  EXPECT_THAT(message_of([&] { trainer.step(); }), HasSubstr("the gradient's norm of step 1"));
  EXPECT_TRUE(same_bits(net->unused, before));
  EXPECT_EQ(trainer.state().step, 0);
}

TEST(Evaluate, MovesNeitherTheGeneratorNorTheMode) {
  SmallNet net = net_with_seed(2);
  SmallObjective objective(net);
  objective.on_evaluate = [&]() -> std::vector<Metric> {
    EXPECT_FALSE(net->is_training());
    EXPECT_FALSE(at::GradMode::is_enabled());
    return {{"noise", torch::rand({1}).item<double>(), false}};
  };
  Trainer trainer(*net, objective, settings_of(1));
  const auto before = random_state();
  trainer.evaluate();
  EXPECT_TRUE(same_bits(random_state(), before));
  EXPECT_TRUE(net->is_training());
}

TEST(Run, DoesNotDependOnHowOftenItEvaluates) {
  const auto weights_after = [](int64_t every) {
    SmallNet net = net_with_seed(4);
    SmallObjective objective(net);
    objective.on_evaluate = [] {
      return std::vector<Metric>{{"noise", torch::rand({1}).item<double>(), false}};
    };
    TrainerSettings settings = settings_of(6);
    settings.evaluate_every = every;
    Trainer(*net, objective, settings).run();
    return net->linear->weight.detach().clone();
  };
  EXPECT_TRUE(same_bits(weights_after(0), weights_after(1)));
}

// The metric of each evaluation in turn.
std::function<std::vector<Metric>()> listed(std::vector<double> values, bool higher) {
  return [values, higher, at = std::size_t{0}]() mutable {
    return std::vector<Metric>{{"value", values.at(at++), higher}};
  };
}

TEST(Run, StopsWithoutANewBestAndKeepsTheBestCheckpoint) {
  const io::Scratch scratch;
  SmallNet net = net_with_seed(6);
  SmallObjective objective(net);
  objective.on_evaluate = listed({3.0, 1.0, 2.0, 1.0, 5.0, 0.0}, /*higher=*/false);
  TrainerSettings settings = settings_of(20);
  settings.evaluate_every = 2;
  settings.patience = 3;
  Trainer trainer(*net, objective, settings, scratch.path());
  std::vector<bool> best;
  const TrainingResult result = trainer.run(
      {.on_step = {}, .on_evaluation = [&](const EvaluationReport& report) { best.push_back(report.best); }});
  EXPECT_THAT(best, ElementsAre(true, true, false, false, false));  // an equal value is no new best
  EXPECT_TRUE(result.stopped_early);
  EXPECT_EQ(result.steps, 10);
  EXPECT_EQ(trainer.checkpoints().best(), scratch.path() / "step-0000000004");
  EXPECT_EQ(trainer.checkpoints().latest(), scratch.path() / "step-0000000010");

  // A run that ran out of patience stays stopped.
  SmallNet other;
  SmallObjective again(other);
  Trainer resumed(*other, again, settings, scratch.path());
  ASSERT_TRUE(resumed.resume());
  EXPECT_TRUE(resumed.run().stopped_early);
  EXPECT_TRUE(again.batches.empty());
}

TEST(Run, TakesTheHigherMetricWhereHigherIsBetter) {
  const io::Scratch scratch;
  SmallNet net = net_with_seed(6);
  SmallObjective objective(net);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  objective.on_evaluate = listed({nan, 0.5, 0.7, 0.6}, /*higher=*/true);
  TrainerSettings settings = settings_of(4);
  settings.evaluate_every = 1;
  Trainer trainer(*net, objective, settings, scratch.path());
  trainer.run();
  EXPECT_EQ(trainer.checkpoints().best(), scratch.path() / "step-0000000003");
}

// ---- Resuming ----

struct Course {
  std::vector<double> losses;
  NamedTensors parameters, first_moments, second_moments;
  torch::Tensor generator;
};

Course course_of(Trainer& trainer, SmallNet& net, int64_t steps) {
  Course course;
  for (int64_t i = 0; i < steps; ++i) course.losses.push_back(trainer.step().loss);
  for (const auto& [name, parameter] : trainable_parameters(*net)) {
    course.parameters.emplace_back(name, parameter.detach().clone());
    const auto found = trainer.optimizer().state().find(parameter.unsafeGetTensorImpl());
    if (found == trainer.optimizer().state().end()) continue;
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(*found->second);
    course.first_moments.emplace_back(name, state.exp_avg().clone());
    course.second_moments.emplace_back(name, state.exp_avg_sq().clone());
  }
  course.generator = random_state();
  return course;
}

void expect_same(const NamedTensors& left, const NamedTensors& right) {
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].first, right[i].first);
    EXPECT_TRUE(same_bits(left[i].second, right[i].second)) << left[i].first;
  }
}

TEST(Resume, GoesOnBitForBitWithDropout) {
  TrainerSettings settings = settings_of(10);
  settings.accumulate = 2;
  SmallNet whole = net_with_seed(7);
  SmallObjective whole_objective(whole);
  Trainer uninterrupted(*whole, whole_objective, settings);
  std::vector<double> losses;
  for (int i = 0; i < 5; ++i) losses.push_back(uninterrupted.step().loss);
  const Course expected = course_of(uninterrupted, whole, 5);

  const io::Scratch scratch;
  SmallNet half = net_with_seed(7);
  SmallObjective half_objective(half);
  {
    Trainer first(*half, half_objective, settings, scratch.path());
    for (int i = 0; i < 5; ++i) EXPECT_EQ(first.step().loss, losses[static_cast<std::size_t>(i)]);
    first.save_checkpoint();
  }
  SmallNet rest = net_with_seed(12345);  // other weights, another generator: all must come from the files
  torch::rand({17});
  SmallObjective rest_objective(rest);
  Trainer second(*rest, rest_objective, settings, scratch.path());
  ASSERT_TRUE(second.resume());
  const Course actual = course_of(second, rest, 5);

  EXPECT_EQ(actual.losses, expected.losses);
  expect_same(actual.parameters, expected.parameters);
  expect_same(actual.first_moments, expected.first_moments);
  expect_same(actual.second_moments, expected.second_moments);
  EXPECT_TRUE(same_bits(actual.generator, expected.generator));
  EXPECT_THAT(rest_objective.batches, ElementsAre(10, 11, 12, 13, 14, 15, 16, 17, 18, 19));
}

TEST(Resume, HasNothingToDoWithoutACheckpoint) {
  const io::Scratch scratch;
  SmallNet net;
  SmallObjective objective(net);
  EXPECT_FALSE(Trainer(*net, objective, settings_of(3), scratch.path()).resume());
  EXPECT_FALSE(Trainer(*net, objective, settings_of(3)).resume());
}

TEST(Resume, RefusesOtherSettings) {
  const io::Scratch scratch;
  SmallNet net;
  SmallObjective objective(net);
  Trainer(*net, objective, settings_of(3), scratch.path()).run();
  TrainerSettings other = settings_of(3);
  other.clip = 0.5;
  Trainer trainer(*net, objective, other, scratch.path());
  EXPECT_THAT(message_of([&] { trainer.resume(); }), HasSubstr("clip 1, "));
}

TEST(Settings, AreCheckedBeforeAnythingRuns) {
  SmallNet net;
  SmallObjective objective(net);
  TrainerSettings settings = settings_of(3);
  settings.accumulate = 0;
  EXPECT_THAT(message_of([&] { Trainer(*net, objective, settings); }), HasSubstr("0 batches a step"));
  settings = settings_of(3);
  settings.clip = -1;
  EXPECT_THAT(message_of([&] { Trainer(*net, objective, settings); }), HasSubstr("-1"));
  settings = settings_of(3);
  settings.adamw.beta2 = 1;
  EXPECT_THAT(message_of([&] { Trainer(*net, objective, settings); }), HasSubstr("beta"));
}

}  // namespace
}  // namespace iha::train
