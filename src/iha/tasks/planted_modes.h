// A task whose right patterns are known: tags of every token that need one head to look at the previous
// token, one at distances that are multiples of a step, and one globally. Symbols say nothing about places,
// so for a model without positions a pattern is the only way to any of the three. Sequences by number; no
// training.
//
// A token holds a bit a and two marks b and c, each absent, 0 or 1; its symbol is a + 2 (b + 3 c). Bits are
// uniform. One token of every residue class of positions mod `step` has a mark b, kGlobalMarks tokens of the
// sequence have a mark c, at uniform places. The tags of token n:
//   previous   a of token n - 1 (of itself where n = 0)
//   strided    the mark b of its own residue class
//   global     what most of the marks c say
// Of marks c a class or a window holds one or two: a head that sees all of the sequence but weighs near
// tokens more counts those twice and errs, so that no mixture of cheaper patterns with a little of `global`
// will do.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>

#include "iha/tasks/sampling.h"

namespace iha::tasks {

struct PlantedModesOptions {
  int64_t tokens = 64;
  int64_t step = 8;
  uint64_t seed = 0;
};

inline constexpr int64_t kPlantedSymbols = 18;
inline constexpr int64_t kGlobalMarks = 9;  // odd: no ties
inline constexpr std::array kPlantedTags = {"previous", "strided", "global"};

struct PlantedBatch {
  torch::Tensor symbols;  // int64 [B, N]
  torch::Tensor tags;     // float32 [B, N, 3] of 0 or 1
};
// Batch `number` of `batch` sequences: the options' seed, split and number alone decide it. Throws
// std::invalid_argument for fewer tokens than a step or kGlobalMarks, a step or a batch below 1.
PlantedBatch planted_batch(const PlantedModesOptions& options, Split split, int64_t number, int64_t batch);

}  // namespace iha::tasks
