// See needle.h.
#include "iha/train/needle.h"

#include <algorithm>

#include "iha/core/error.h"
#include "iha/models/loss.h"
#include "iha/tasks/metrics.h"

namespace iha::train {

NeedleObjective::NeedleObjective(models::SequenceTagger model, const tasks::NeedleOptions& data,
                                 int64_t batch, int64_t held_out)
    : model_(std::move(model)), data_(data), batch_(batch), held_out_(held_out) {
  iha::check(batch >= 1 && held_out >= 1, "iha train: ", batch, " sequences a batch and ", held_out,
             " held out, expected 1 or more of each");
}

Loss NeedleObjective::loss(int64_t batch) {
  const tasks::NeedleBatch drawn = tasks::needle_batch(data_, tasks::Split::kTrain, batch, batch_);
  const models::LossSum sum = models::next_token_loss(model_->forward(drawn.symbols), drawn.values);
  return {sum.sum / std::max<int64_t>(sum.count, 1), sum.count};
}

std::vector<Metric> NeedleObjective::measure(tasks::Split split, int64_t tokens) {
  const torch::NoGradGuard no_grad;
  tasks::NeedleOptions data = data_;
  data.tokens = tokens;
  tasks::TextCounts counts;
  for (int64_t first = 0, number = 0; first < held_out_; first += batch_, ++number) {
    const auto drawn = tasks::needle_batch(data, split, number, std::min(batch_, held_out_ - first));
    counts += tasks::count_text(model_->forward(drawn.symbols), drawn.values);
  }
  return {{"accuracy", counts.accuracy(), true},
          {"chance", 1.0 / static_cast<double>(data.values), true},
          {"loss", counts.loss(), false}};
}

}  // namespace iha::train
