// Training a token tagger on relation composition: batches of the training relations by number, metrics on
// the validation relations, and on the test relations once the choices are made.
#pragma once

#include <cstdint>
#include <vector>

#include "iha/models/token_tagger.h"
#include "iha/tasks/metrics.h"
#include "iha/tasks/relation_composition.h"
#include "iha/tasks/sampling.h"
#include "iha/train/objective.h"

namespace iha::train {

class CompositionObjective : public Objective {
 public:
  // `seed` orders the training relations; which relations there are is `data.seed`'s. Throws
  // std::invalid_argument for a batch below 1.
  CompositionObjective(models::TokenTagger model, const tasks::RelationCompositionOptions& data,
                       int64_t batch, uint64_t seed);

  Loss loss(int64_t batch) override;
  // accuracy (over valid cells), exact_match, majority (the better constant answer's accuracy), loss.
  std::vector<Metric> evaluate() override { return measure(splits_.validation); }
  // The same on the test relations.
  std::vector<Metric> test() { return measure(splits_.test); }

 private:
  std::vector<Metric> measure(const std::vector<tasks::Relation>& relations);

  models::TokenTagger model_;
  int64_t factors_;
  int64_t batch_;
  tasks::RelationSplits splits_;
  tasks::ShuffledIndices order_;
};

}  // namespace iha::train
