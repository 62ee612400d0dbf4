// Patterns for exhaustive tests: every mode at small and odd parameters, with and without first tokens, and
// combinations of window, step and chunk that only C++ can write.
#pragma once

#include <vector>

#include "iha/patterns/pattern.h"

namespace iha::testing {

inline std::vector<Pattern> named_bases() {
  std::vector<Pattern> bases{global(), causal()};
  for (const int64_t tokens : {0, 1, 2, 3, 7, 16, 39, 40, 41}) {
    bases.push_back(sliding(tokens));
    bases.push_back(causal_sliding(tokens));
  }
  bases.insert(bases.end(), {window(0, 3), window(3, 0), window(2, 5), window(7, 1), window(0, 41),
                             window(Pattern::kUnbounded, 3), window(5, Pattern::kUnbounded)});
  for (const int64_t tokens : {1, 2, 3, 5, 8, 40, 41}) {
    bases.insert(bases.end(), {strided(tokens), causal_strided(tokens), every(tokens), causal_every(tokens),
                               chunked(tokens), causal_chunked(tokens)});
  }
  return bases;
}

inline std::vector<Pattern> joined_bases() {
  std::vector<Pattern> bases;
  for (const Step step : {Step::kNone, Step::kRelative, Step::kAbsolute}) {
    for (const int64_t every : {2, 5}) {
      for (const int64_t chunk : {0, 3, 9}) {
        for (const int64_t left : {1, 4}) {
          for (const int64_t right : {0, 2, 6}) {
            bases.push_back(
                {.left = left, .right = right, .step = step, .every = every, .chunk = chunk, .first = 0});
          }
        }
      }
    }
  }
  return bases;
}

inline std::vector<Pattern> learned_patterns() {
  return {
      learned({sliding(3)}),
      learned({global(), sliding(2), strided(8)}),
      learned({causal(), causal_sliding(4)}),
      learned({causal_strided(6), causal_strided(4)}),
      learned({strided(6), every(4), chunked(9)}),
      learned({causal_every(5), causal_strided(3), causal_sliding(1).with_first(4)}),
      learned({every(40), strided(41), every(3).with_first(2)}),
      learned({window(0, 3), causal_chunked(7)}),
      learned({every(2), every(3), every(5), strided(4), strided(6), strided(9), chunked(3), window(1, 7)})};
}

inline std::vector<Pattern> all_patterns() {
  std::vector<Pattern> patterns = learned_patterns();
  patterns.insert(patterns.end(), {dynamic(4, 2), causal_dynamic(7, 1)});
  for (const auto& bases : {named_bases(), joined_bases()}) {
    for (const Pattern& base : bases) {
      for (const int64_t first : {0, 1, 4, 50}) patterns.push_back(base.with_first(first));
    }
  }
  return patterns;
}

}  // namespace iha::testing
