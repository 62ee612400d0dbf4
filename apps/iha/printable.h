// Text from models and files, made fit for JSON and terminals.
#pragma once

#include <string>

namespace iha::app {

// Printable ASCII, blanks and line ends as they are, other bytes as \xNN.
inline std::string printable(const std::string& text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte >= 0x20 && byte < 0x7f) || c == '\n' || c == '\t';
    shown += plain ? std::string(1, c) : std::string{'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return shown;
}

}  // namespace iha::app
