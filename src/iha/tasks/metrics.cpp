#include "iha/tasks/metrics.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "iha/models/loss.h"

namespace iha::tasks {
namespace {

double ratio(double part, int64_t whole) {
  return whole > 0 ? part / static_cast<double>(whole) : std::numeric_limits<double>::quiet_NaN();
}

double ratio(int64_t part, int64_t whole) {
  return ratio(static_cast<double>(part), whole);
}

// log(1 + exp(x)) without overflow.
double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

}  // namespace

TagCounts& TagCounts::operator+=(const TagCounts& other) {
  valid += other.valid;
  correct += other.correct;
  positive += other.positive;
  sequences += other.sequences;
  exact += other.exact;
  loss_sum += other.loss_sum;
  return *this;
}

double TagCounts::accuracy() const {
  return ratio(correct, valid);
}
double TagCounts::exact_match() const {
  return ratio(exact, sequences);
}
double TagCounts::majority() const {
  return ratio(std::max(positive, valid - positive), valid);
}
double TagCounts::loss() const {
  return ratio(loss_sum, valid);
}

TagCounts count_tags(const torch::Tensor& logits, const torch::Tensor& targets,
                     const torch::Tensor& lengths) {
  TORCH_CHECK_VALUE(logits.dim() == 2 && logits.sizes() == targets.sizes(), "iha::tasks::count_tags: logits ",
                    logits.sizes(), " and targets ", targets.sizes(), ", expected both [B, N]");
  const int64_t batch = logits.size(0), tokens = logits.size(1);
  const torch::Tensor ends = lengths.defined() ? lengths : torch::full({batch}, tokens, torch::kInt64);
  // The check of the lengths; the counting is a plain loop, in one order on any number of threads.
  const torch::Tensor valid = models::valid_tokens(ends, tokens).cpu();
  TORCH_CHECK_VALUE(valid.size(0) == batch, "iha::tasks::count_tags: ", valid.size(0), " lengths, expected ",
                    batch);
  const torch::Tensor logits64 = logits.detach().to(torch::kCPU, torch::kFloat64);
  const torch::Tensor targets64 = targets.to(torch::kCPU, torch::kFloat64);
  const auto is_valid = valid.accessor<bool, 2>();
  const auto logit = logits64.accessor<double, 2>(), target = targets64.accessor<double, 2>();
  TagCounts counts;
  for (int64_t b = 0; b < batch; ++b) {
    TagCounts row;
    for (int64_t n = 0; n < tokens; ++n) {
      if (!is_valid[b][n]) continue;
      const double x = logit[b][n];
      const bool truth = target[b][n] > 0.5;
      ++row.valid;
      row.positive += truth;
      row.correct += !std::isnan(x) && (x > 0) == truth;
      row.loss_sum += truth ? softplus(-x) : softplus(x);
    }
    row.sequences = row.valid > 0;
    row.exact = row.valid > 0 && row.correct == row.valid;
    counts += row;
  }
  return counts;
}

TextCounts& TextCounts::operator+=(const TextCounts& other) {
  tokens += other.tokens;
  correct += other.correct;
  loss_sum += other.loss_sum;
  return *this;
}

double TextCounts::accuracy() const {
  return ratio(correct, tokens);
}
double TextCounts::loss() const {
  return ratio(loss_sum, tokens);
}
double TextCounts::bits_per_byte() const {
  return loss() / std::numbers::ln2;
}

TextCounts count_text(const torch::Tensor& logits, const torch::Tensor& targets) {
  TORCH_CHECK_VALUE(logits.dim() == 3 && targets.dim() == 2 && logits.sizes().slice(0, 2) == targets.sizes(),
                    "iha::tasks::count_text: logits ", logits.sizes(), " and targets ", targets.sizes(),
                    ", expected [B, N, V] and [B, N]");
  const torch::Tensor counted = targets.ne(models::kIgnore);
  const torch::Tensor scores = logits.detach().index({counted});  // [counted tokens, V]
  const torch::Tensor answers = targets.index({counted});
  const torch::Tensor log_probabilities =
      scores.to(torch::kFloat32).log_softmax(-1).gather(1, answers.unsqueeze(1));
  const torch::Tensor losses = log_probabilities.flatten().to(torch::kCPU, torch::kFloat64).contiguous();
  TextCounts counts;
  counts.tokens = losses.numel();
  const auto* loss = losses.data_ptr<double>();
  for (int64_t n = 0; n < counts.tokens; ++n) counts.loss_sum -= loss[n];
  if (counts.tokens > 0) counts.correct = scores.argmax(-1).eq(answers).sum().item<int64_t>();
  return counts;
}

}  // namespace iha::tasks
