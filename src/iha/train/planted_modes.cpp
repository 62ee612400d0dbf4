// See planted_modes.h.
#include "iha/train/planted_modes.h"

#include <algorithm>
#include <array>

#include "iha/core/error.h"
#include "iha/models/loss.h"
#include "iha/tasks/metrics.h"

namespace iha::train {

PlantedModesObjective::PlantedModesObjective(models::SequenceTagger model,
                                             const tasks::PlantedModesOptions& data, int64_t batch,
                                             int64_t held_out)
    : model_(std::move(model)), data_(data), batch_(batch), held_out_(held_out) {
  iha::check(batch >= 1 && held_out >= 1, "iha train: ", batch, " sequences a batch and ", held_out,
             " held out, expected 1 or more of each");
}

Loss PlantedModesObjective::loss(int64_t batch) {
  const tasks::PlantedBatch drawn = tasks::planted_batch(data_, tasks::Split::kTrain, batch, batch_);
  const models::LossSum sum =
      models::tag_loss(model_->forward(drawn.symbols).flatten(1), drawn.tags.flatten(1), {});
  return {sum.sum / std::max<int64_t>(sum.count, 1), sum.count};
}

std::vector<Metric> PlantedModesObjective::measure(tasks::Split split) {
  const torch::NoGradGuard no_grad;
  std::array<tasks::TagCounts, tasks::kPlantedTags.size()> by_tag;
  for (int64_t first = 0, number = 0; first < held_out_; first += batch_, ++number) {
    const int64_t count = std::min(batch_, held_out_ - first);
    const tasks::PlantedBatch drawn = tasks::planted_batch(data_, split, number, count);
    const torch::Tensor logits = model_->forward(drawn.symbols);
    for (size_t tag = 0; tag < by_tag.size(); ++tag) {
      const auto index = static_cast<int64_t>(tag);
      by_tag[tag] += tasks::count_tags(logits.select(2, index), drawn.tags.select(2, index), {});
    }
  }
  tasks::TagCounts all;
  for (const tasks::TagCounts& counts : by_tag) all += counts;
  std::vector<Metric> metrics{{"loss", all.loss(), false}, {"accuracy", all.accuracy(), true}};
  for (size_t tag = 0; tag < by_tag.size(); ++tag) {
    metrics.push_back({std::string("accuracy_") + tasks::kPlantedTags[tag], by_tag[tag].accuracy(), true});
  }
  return metrics;
}

}  // namespace iha::train
