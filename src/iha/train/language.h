// Training a language model on the bytes of a text: random windows of the training part by number, metrics on
// the whole held-out part.
#pragma once

#include <cstdint>
#include <vector>

#include "iha/models/language_model.h"
#include "iha/tasks/byte_text.h"
#include "iha/tasks/sampling.h"
#include "iha/train/objective.h"

namespace iha::train {

class LanguageObjective : public Objective {
 public:
  // Windows of the model's context length, `batch` of them a batch; `seed` places them. Throws
  // std::invalid_argument for a batch below 1 and a text shorter than a window.
  LanguageObjective(models::LanguageModel model, tasks::ByteText text, int64_t batch, uint64_t seed);

  Loss loss(int64_t batch) override;
  // bits_per_byte, accuracy (of the most probable next byte).
  std::vector<Metric> evaluate() override;
  const tasks::ByteText& text() const { return text_; }

 private:
  models::LanguageModel model_;
  tasks::ByteText text_;
  int64_t batch_;
  tasks::RandomStarts starts_;
  std::vector<tasks::TextBatch> held_out_;
};

}  // namespace iha::train
