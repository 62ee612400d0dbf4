// Errors of the torch-free part: one kind of message, "<operator>: <found>, <expected>", thrown as
// std::invalid_argument. Not for programming mistakes inside kernels; those are asserted.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace iha {

// The parts written one after the other, as operator<< prints them.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return std::move(stream).str();
}

// Throws std::invalid_argument with text(parts...).
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw std::invalid_argument(text(parts...));
}

// Throws std::invalid_argument with text(parts...) unless `condition` holds.
template <class... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) fail(parts...);
}

}  // namespace iha
