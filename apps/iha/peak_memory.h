// How much memory a computation needs at its peak. Linux only: elsewhere there is no answer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace iha::app {

// Bytes of resident memory at the peak of `run`, beyond what the process held before: what it takes and frees
// again, and its result. Nothing where the system does not count. Memory that the process had freed but not
// given back is given back first; another thread that takes memory meanwhile is counted too.
std::optional<int64_t> extra_memory_of(const std::function<void()>& run);

}  // namespace iha::app
