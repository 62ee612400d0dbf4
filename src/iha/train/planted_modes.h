// Training a sequence tagger on the task with planted modes: batches by number, metrics on held-out
// sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "iha/models/sequence_tagger.h"
#include "iha/tasks/planted_modes.h"
#include "iha/train/objective.h"

namespace iha::train {

class PlantedModesObjective : public Objective {
 public:
  // The model reads tasks::kPlantedSymbols symbols and has an output a tag. `held_out` sequences each for
  // validation and test. Throws std::invalid_argument for counts below 1.
  PlantedModesObjective(models::SequenceTagger model, const tasks::PlantedModesOptions& data, int64_t batch,
                        int64_t held_out);

  Loss loss(int64_t batch) override;
  // loss, accuracy (over all tags), and accuracy_<tag> of each; with gates soft or at temperature 0, as the
  // model is.
  std::vector<Metric> evaluate() override { return measure(tasks::Split::kValidation); }
  std::vector<Metric> test() { return measure(tasks::Split::kTest); }

 private:
  std::vector<Metric> measure(tasks::Split split);

  models::SequenceTagger model_;
  tasks::PlantedModesOptions data_;
  int64_t batch_, held_out_;
};

}  // namespace iha::train
