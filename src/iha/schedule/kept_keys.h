// What a decoder must keep of the past. For caches and costs.
#pragma once

#include <cstdint>

#include "iha/patterns/pattern.h"

namespace iha {

// How many of the first `tokens` keys a query at position tokens - 1 or later may still see: those whose keys
// and values a decoder keeps after `tokens` tokens. Exact for every pattern that has a name, else an upper
// bound. O(1). Throws std::invalid_argument if tokens < 0.
int64_t kept_keys(const Pattern& pattern, int64_t tokens);

}  // namespace iha
