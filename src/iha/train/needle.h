// Training a sequence tagger on needles in a haystack: batches by number, metrics on held-out sequences of
// the training's length or another.
#pragma once

#include <cstdint>
#include <vector>

#include "iha/models/sequence_tagger.h"
#include "iha/tasks/needle.h"
#include "iha/train/objective.h"

namespace iha::train {

class NeedleObjective : public Objective {
 public:
  // The model reads data.symbols() symbols and has an output a value. `held_out` sequences each for
  // validation and test. Throws std::invalid_argument for counts below 1.
  NeedleObjective(models::SequenceTagger model, const tasks::NeedleOptions& data, int64_t batch,
                  int64_t held_out);

  Loss loss(int64_t batch) override;
  // accuracy (of the most probable value), chance, loss.
  std::vector<Metric> evaluate() override { return measure(tasks::Split::kValidation, data_.tokens); }
  // The same on test sequences of `tokens` tokens.
  std::vector<Metric> test(int64_t tokens) { return measure(tasks::Split::kTest, tokens); }

 private:
  std::vector<Metric> measure(tasks::Split split, int64_t tokens);

  models::SequenceTagger model_;
  tasks::NeedleOptions data_;
  int64_t batch_, held_out_;
};

}  // namespace iha::train
