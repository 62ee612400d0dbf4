// The options of `iha train lm` that `iha compare lm` shares: text, model and training.
#pragma once

#include <cstdint>
#include <string>

#include "iha/models/language_model.h"
#include "iha/models/mixer.h"
#include "iha/tasks/byte_text.h"
#include "training_run.h"

namespace iha::app {

struct LanguageOptions {
  LanguageOptions();  // a small model that trains in about a minute on two cores

  tasks::ByteTextOptions text;
  models::LanguageModelConfig model;
  models::MixerConfig mixer;
  std::string patterns = "causal_sliding:16,causal_sliding:64,causal_strided:8,causal";
  int64_t layers = 2;
  int64_t pseudo_heads = 0;  // 0: the mixer's own choice
  bool untied = false;
  std::string rope;  // empty: the mixer's own choice
  TrainingOptions training;
};

void add_language_options(CLI::App& command, LanguageOptions& options);

}  // namespace iha::app
