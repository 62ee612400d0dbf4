// Needles in a haystack: among random filler stand a few needles, each a key with a value, one symbol
// repeated; the last tokens ask for keys, and the tag of a question is its needle's value. All needles end at
// least `distance` tokens before the first question, so that a window of that many tokens sees none.
// Sequences by number; no training.
//
// Symbols: filler f is f; needle (k, v) is filler + k values + v; question k is filler + keys values + k.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "iha/tasks/sampling.h"

namespace iha::tasks {

struct NeedleOptions {
  int64_t tokens = 4096;
  int64_t keys = 4;    // needles of a sequence, one a key
  int64_t values = 8;  // chance is 1 / values
  int64_t filler = 16;
  int64_t length = 16;     // tokens of a needle, which begins at a multiple of it
  int64_t questions = 32;  // of uniform keys
  int64_t distance = 384;  // from the last token of any needle to the first question, at least
  uint64_t seed = 0;

  int64_t symbols() const { return filler + keys * values + keys; }
};

struct NeedleBatch {
  torch::Tensor symbols;  // int64 [B, N]
  torch::Tensor values;   // int64 [B, N]: models::kIgnore but at the questions, the last tokens
};
// Batch `number` of `batch` sequences: the options' seed, split and number alone decide it. Throws
// std::invalid_argument for counts below 1 and where needles and questions do not fit.
NeedleBatch needle_batch(const NeedleOptions& options, Split split, int64_t number, int64_t batch);

}  // namespace iha::tasks
