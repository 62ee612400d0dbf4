// See composition.h.
#include "iha/train/composition.h"

#include <algorithm>

#include "iha/core/error.h"
#include "iha/models/loss.h"

namespace iha::train {

namespace {

// Grids a forward pass of evaluation takes: large enough to be quick, small enough for P^2 m^4 scores of a
// head.
constexpr int64_t kEvaluationBatch = 256;

}  // namespace

CompositionObjective::CompositionObjective(models::TokenTagger model,
                                           const tasks::RelationCompositionOptions& data, int64_t batch,
                                           uint64_t seed)
    : model_(std::move(model)),
      factors_(data.factors),
      batch_(batch),
      splits_(tasks::draw_relations(data)),
      order_(static_cast<int64_t>(splits_.train.size()), seed) {
  iha::check(batch >= 1, "iha train: ", batch, " relations a batch, expected 1 or more");
}

Loss CompositionObjective::loss(int64_t batch) {
  order_.seek(batch * batch_);
  const tasks::RelationBatch drawn = tasks::make_batch(splits_.train, order_.next(batch_), factors_);
  const models::LossSum sum =
      models::tag_loss(model_->forward(drawn.input), drawn.targets, drawn.input.lengths);
  return {sum.sum / std::max<int64_t>(sum.count, 1), sum.count};
}

std::vector<Metric> CompositionObjective::measure(const std::vector<tasks::Relation>& relations) {
  const torch::NoGradGuard no_grad;
  tasks::TagCounts counts;
  for (int64_t first = 0; first < static_cast<int64_t>(relations.size()); first += kEvaluationBatch) {
    const tasks::RelationBatch drawn = tasks::make_batch(relations, first, kEvaluationBatch, factors_);
    counts += tasks::count_tags(model_->forward(drawn.input), drawn.targets, drawn.input.lengths);
  }
  return {{"accuracy", counts.accuracy(), true},
          {"exact_match", counts.exact_match(), true},
          {"majority", counts.majority(), true},
          {"loss", counts.loss(), false}};
}

}  // namespace iha::train
