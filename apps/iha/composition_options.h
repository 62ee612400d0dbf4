// The options of `iha train compose` that `iha compare compose` shares: data, scale and training.
#pragma once

#include <string>

#include "iha/models/variants.h"
#include "iha/tasks/relation_composition.h"
#include "training_run.h"

namespace iha::app {

struct CompositionOptions {
  CompositionOptions();  // the quick comparison's setting

  std::string task = "small";
  tasks::RelationCompositionOptions data;  // with the sizes and the seed; the rest follows from `task`
  models::CompositionScale scale;          // max_side follows from `task`
  TrainingOptions training;

  // data and scale with what `task` decides filled in.
  tasks::RelationCompositionOptions resolved_data() const;
  models::CompositionScale resolved_scale() const;
};

void add_composition_options(CLI::App& command, CompositionOptions& options);

}  // namespace iha::app
