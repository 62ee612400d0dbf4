#include "iha/schedule/kept_keys.h"

#include <algorithm>

#include "iha/core/error.h"
#include "iha/patterns/arithmetic.h"

namespace iha {

int64_t kept_keys(const Pattern& pattern, int64_t tokens) {
  check(tokens >= 0, "iha::kept_keys: ", tokens, " tokens, expected at least 0");
  if (tokens == 0) return 0;
  const int64_t last = tokens - 1;
  const bool relative = pattern.step == Step::kRelative, absolute = pattern.step == Step::kAbsolute;
  // A later query of the right residue sees a key while some multiple of the step is within the window.
  const int64_t left = relative ? pattern.left / pattern.every * pattern.every : pattern.left;
  int64_t begin = left >= last ? 0 : last - left;
  if (pattern.chunk > 0) begin = std::max(begin, last / pattern.chunk * pattern.chunk);
  const int64_t step = absolute ? pattern.every : 1;
  const int64_t first = std::min(pattern.first, tokens);
  // First tokens, and what the base keeps beyond them.
  begin = std::max(begin, first);
  return first + (begin < tokens ? multiples_in(begin, tokens, step) : 0);
}

}  // namespace iha
