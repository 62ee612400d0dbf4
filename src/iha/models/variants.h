// The taggers that the comparison on relation composition sets side by side: which question each answers, its
// configuration, and the learning rate that a sweep on the validation split chose for it.
#pragma once

#include <string>
#include <vector>

#include "iha/models/token_tagger.h"

namespace iha::models {

struct CompositionVariant {
  std::string name;   // as typed: `--variants plain,interleaved`
  std::string about;  // one sentence for tables and help
  TokenTaggerConfig config;
  double learning_rate = 0.003;
};

struct CompositionScale {
  int64_t max_side = 5;
  int64_t d_model = 64;
  int64_t heads = 4;
  int64_t pseudo_heads = 4;
};

// In the order of the table: plain, plain_8, plain_8_free, plain_residual_norm, plain_equal_compute, mixed,
// averaged, interleaved. Every variant is one layer deep. `plain_equal_compute` has as many heads of
// interleaved's width as fit into interleaved's forward FLOPs at max_side^2 tokens (more heads are what plain
// heads gain most by; the rest of the model is the same).
std::vector<CompositionVariant> composition_variants(const CompositionScale& scale = {});

// One of them. Throws c10::ValueError listing the names.
CompositionVariant composition_variant(const std::string& name, const CompositionScale& scale = {});

}  // namespace iha::models
