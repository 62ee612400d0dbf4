// UTF-8 as bytes that may be anything: byte-level models write text that no decoder accepts.
#pragma once

#include <string>
#include <string_view>

namespace iha::io {

inline constexpr char32_t kNotUtf8 = 0xFFFFFFFF;

// The code point that `rest` (not empty) begins with, which is taken off it; kNotUtf8, and one byte taken,
// where none begins there (stray or missing continuation bytes, overlong forms, surrogates, beyond U+10FFFF).
char32_t next_code_point(std::string_view& rest);

void append_utf8(std::string& text, char32_t code_point);

bool is_utf8(std::string_view text);
// The text with each byte that is not UTF-8 replaced by U+FFFD.
std::string repair_utf8(std::string_view text);

}  // namespace iha::io
