// The training loop: see trainer.h.
#include "iha/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "iha/core/error.h"
#include "iha/train/random_state.h"

namespace iha::train {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void check_settings(const TrainerSettings& settings) {
  check(settings.schedule);
  const AdamWSettings& adamw = settings.adamw;
  iha::check(settings.clip >= 0, "iha train: a gradient limit of ", settings.clip, ", expected 0 or more");
  iha::check(settings.accumulate >= 1, "iha train: ", settings.accumulate,
             " batches a step, expected 1 or more");
  iha::check(settings.evaluate_every >= 0 && settings.checkpoint_every >= 0 && settings.patience >= 0,
             "iha train: a negative interval or patience, expected 0 or more");
  iha::check(adamw.beta1 >= 0 && adamw.beta1 < 1 && adamw.beta2 >= 0 && adamw.beta2 < 1, "iha train: betas ",
             adamw.beta1, " and ", adamw.beta2, ", expected 0 <= beta < 1");
  iha::check(adamw.epsilon > 0 && adamw.weight_decay >= 0, "iha train: epsilon ", adamw.epsilon,
             " and weight decay ", adamw.weight_decay, ", expected more than 0, and 0 or more");
}

// What decides the course of a run, so that a resumed one cannot silently take another.
std::string in_words(const TrainerSettings& settings) {
  const RateSchedule& schedule = settings.schedule;
  const AdamWSettings& adamw = settings.adamw;
  return text("steps ", schedule.steps, ", warm-up ", schedule.warmup, ", rate ", schedule.peak,
              ", final rate ", schedule.floor, ", betas ", adamw.beta1, " ", adamw.beta2, ", epsilon ",
              adamw.epsilon, ", decay ", adamw.weight_decay, ", clip ", settings.clip, ", accumulate ",
              settings.accumulate, settings.data.empty() ? "" : ", ", settings.data);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool due(int64_t step, int64_t every) {
  return every > 0 && step % every == 0;
}

bool better(const Metric& metric, double best) {
  if (std::isnan(metric.value)) return false;
  return std::isnan(best) || (metric.higher_is_better ? metric.value > best : metric.value < best);
}

}  // namespace

Trainer::Trainer(torch::nn::Module& model, Objective& objective, TrainerSettings settings,
                 std::filesystem::path folder)
    : model_(model),
      objective_(objective),
      settings_(settings),
      keeps_checkpoints_(!folder.empty()),
      checkpoints_(std::move(folder)) {
  check_settings(settings_);
  optimizer_ = make_adamw(model_, settings_.adamw);
  state_.settings = in_words(settings_);
}

bool Trainer::resume() {
  if (!keeps_checkpoints_ || !checkpoints_.latest()) return false;
  const std::string expected = state_.settings;
  state_ = checkpoints_.load(model_, *optimizer_);
  TORCH_CHECK_VALUE(state_.settings == expected, "iha train: the checkpoint was written with ",
                    state_.settings, "; this run has ", expected);
  return true;
}

StepReport Trainer::step() {
  const auto start = std::chrono::steady_clock::now();
  StepReport report;
  report.step = state_.step + 1;
  report.rate = rate_at(settings_.schedule, state_.step);
  model_.train();
  optimizer_->zero_grad();
  double sum = 0;
  for (int64_t i = 0; i < settings_.accumulate; ++i) {
    const Loss loss = objective_.loss(state_.batch + i);
    if (loss.tokens == 0) continue;
    const auto weight = static_cast<double>(loss.tokens);
    const double mean = loss.mean.item<double>();
    refuse_unless_finite(mean, "loss");
    (loss.mean * weight).backward();
    sum += mean * weight;
    report.tokens += loss.tokens;
  }
  report.skipped = report.tokens == 0;
  if (!report.skipped) {
    const auto tokens = static_cast<double>(report.tokens);
    report.loss = sum / tokens;
    report.gradient_norm = scale_and_clip(*optimizer_, 1.0 / tokens, settings_.clip);
    refuse_unless_finite(report.gradient_norm, "gradient's norm");
    set_rate(*optimizer_, report.rate);
    optimizer_->step();
  }
  state_.batch += settings_.accumulate;
  state_.step += 1;
  report.seconds = seconds_since(start);
  return report;
}

EvaluationReport Trainer::evaluate() {
  const RandomStateGuard random_state;
  const torch::NoGradGuard no_grad;
  const bool was_training = model_.is_training();
  model_.eval();
  EvaluationReport report;
  report.step = state_.step;
  report.metrics = objective_.evaluate();
  model_.train(was_training);
  return report;
}

TrainingResult Trainer::run(const TrainerHooks& hooks) {
  TrainingResult result;
  std::vector<double> seconds;
  if (finished()) result.last = evaluate();
  while (!finished()) {
    const StepReport report = step();
    seconds.push_back(report.seconds);
    if (hooks.on_step) hooks.on_step(report);
    const bool last_step = state_.step >= settings_.schedule.steps;
    if (last_step || due(state_.step, settings_.evaluate_every)) {
      result.last = evaluate();
      result.last->best = !result.last->metrics.empty() && better(result.last->metrics.front(), state_.best);
      if (result.last->best) state_.best = result.last->metrics.front().value;
      state_.evaluations_since_best = result.last->best ? 0 : state_.evaluations_since_best + 1;
      if (hooks.on_evaluation) hooks.on_evaluation(*result.last);
      save_checkpoint(result.last->best);
    } else if (due(state_.step, settings_.checkpoint_every)) {
      save_checkpoint();
    }
  }
  result.steps = state_.step;
  result.stopped_early = state_.step < settings_.schedule.steps;
  result.seconds_per_step = median(std::move(seconds));
  return result;
}

bool Trainer::finished() const {
  const bool out_of_patience = settings_.patience > 0 && state_.evaluations_since_best >= settings_.patience;
  return out_of_patience || state_.step >= settings_.schedule.steps;
}

void Trainer::save_checkpoint(bool best) {
  if (keeps_checkpoints_) checkpoints_.save(model_, *optimizer_, state_, best);
}

void Trainer::refuse_unless_finite(double value, const char* what) const {
  if (std::isfinite(value)) return;
  const auto checkpoint = keeps_checkpoints_ ? checkpoints_.latest() : std::nullopt;
  TORCH_CHECK(false, "iha train: the ", what, " of step ", state_.step + 1, " is ", value,
              ", expected a finite number; ",
              checkpoint ? "the last checkpoint is " + checkpoint->string()
                         : std::string("there is no checkpoint yet"));
}

}  // namespace iha::train
