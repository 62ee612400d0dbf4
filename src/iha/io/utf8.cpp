#include "iha/io/utf8.h"

#include <cstdint>

namespace iha::io {

char32_t next_code_point(std::string_view& rest) {
  const auto lead = static_cast<uint8_t>(rest.front());
  rest.remove_prefix(1);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  if (lead < 0xC2 || lead > 0xF4 || static_cast<int>(rest.size()) < more) return kNotUtf8;
  char32_t point = lead & (0x3F >> more);
  for (int i = 0; i < more; ++i) {
    const auto next = static_cast<uint8_t>(rest[i]);
    if ((next & 0xC0) != 0x80) return kNotUtf8;
    point = point << 6 | (next & 0x3F);
  }
  const bool overlong = (more == 2 && point < 0x800) || (more == 3 && point < 0x10000);
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  if (overlong || surrogate || point > 0x10FFFF) return kNotUtf8;
  rest.remove_prefix(more);
  return point;
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto put = [&text](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
    return;
  }
  const int more = code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
  const char32_t lead = more == 1 ? 0xC0 : more == 2 ? 0xE0 : 0xF0;
  put(lead | code_point >> (6 * more));
  for (int i = more - 1; i >= 0; --i) put(0x80 | (code_point >> (6 * i) & 0x3F));
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    if (next_code_point(text) == kNotUtf8) return false;
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  while (!text.empty()) {
    const char32_t point = next_code_point(text);
    append_utf8(repaired, point == kNotUtf8 ? U'\uFFFD' : point);
  }
  return repaired;
}

}  // namespace iha::io
