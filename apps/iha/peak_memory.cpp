// See peak_memory.h.
#include "peak_memory.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <fstream>
#include <string>

namespace iha::app {
namespace {

// A line "VmRSS:   1234 kB" of /proc/self/status, in bytes.
std::optional<int64_t> status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return std::nullopt;
}

// Sets the peak (VmHWM) to what is resident now.
bool reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << 5 << std::flush;
  return static_cast<bool>(file);
}

}  // namespace

std::optional<int64_t> extra_memory_of(const std::function<void()>& run) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  if (!reset_peak()) return std::nullopt;
  const auto before = status_bytes("VmRSS");
  run();
  const auto peak = status_bytes("VmHWM");
  if (!before || !peak) return std::nullopt;
  return std::max<int64_t>(0, *peak - *before);
}

}  // namespace iha::app
