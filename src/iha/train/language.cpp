// See language.h.
#include "iha/train/language.h"

#include <algorithm>

#include "iha/core/error.h"
#include "iha/models/loss.h"
#include "iha/tasks/metrics.h"

namespace iha::train {

LanguageObjective::LanguageObjective(models::LanguageModel model, tasks::ByteText text, int64_t batch,
                                     uint64_t seed)
    : model_(std::move(model)),
      text_(std::move(text)),
      batch_(batch),
      starts_(tasks::window_starts(text_.train, model_->config.context), seed),
      held_out_(
          tasks::evaluation_batches(text_.validation, model_->config.context, std::max<int64_t>(batch, 1))) {
  iha::check(batch >= 1, "iha train: ", batch, " windows a batch, expected 1 or more");
}

Loss LanguageObjective::loss(int64_t batch) {
  starts_.seek(batch * batch_);
  const tasks::TextBatch windows =
      tasks::text_windows(text_.train, starts_.next(batch_), model_->config.context);
  const models::LossSum sum = models::next_token_loss(model_->forward(windows.inputs), windows.targets);
  return {sum.sum / std::max<int64_t>(sum.count, 1), sum.count};
}

std::vector<Metric> LanguageObjective::evaluate() {
  const torch::NoGradGuard no_grad;
  tasks::TextCounts counts;
  for (const tasks::TextBatch& windows : held_out_) {
    counts += tasks::count_text(model_->forward(windows.inputs), windows.targets);
  }
  return {{"bits_per_byte", counts.bits_per_byte(), false}, {"accuracy", counts.accuracy(), true}};
}

}  // namespace iha::train
