// Watches `operator new` of the whole test program.
#pragma once

#include <atomic>
#include <cstddef>

namespace iha {

// Bytes of the largest block asked for since it was last set to 0.
inline std::atomic<std::size_t> largest_allocation{0};

}  // namespace iha
