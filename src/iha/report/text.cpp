#include "iha/report/text.h"

#include "iha/io/utf8.h"

namespace iha::report {
namespace {

constexpr char32_t kReplacement = U'\uFFFD';

bool turns_direction(char32_t point) {
  return (point >= 0x202A && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069) || point == 0x200E ||
         point == 0x200F;
}

char32_t visible(char32_t point) {
  if (point == io::kNotUtf8 || turns_direction(point)) return kReplacement;
  if (point < 0x20) return 0x2400 + point;
  if (point == 0x7F) return 0x2421;
  const bool control = point >= 0x80 && point < 0xA0;
  const bool noncharacter = (point & 0xFFFE) == 0xFFFE || (point >= 0xFDD0 && point <= 0xFDEF);
  return control || noncharacter ? kReplacement : point;
}

}  // namespace

std::string visible_text(std::string_view text, bool keep_lines) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const char32_t point = io::next_code_point(text);
    const bool kept = keep_lines && (point == '\n' || point == '\t');
    io::append_utf8(shown, kept ? point : visible(point));
  }
  return shown;
}

std::string token_text(std::string_view token) {
  std::string shown;
  while (!token.empty()) {
    const char32_t point = io::next_code_point(token);
    const char32_t symbol = point == ' '    ? 0x2423
                            : point == '\n' ? 0x21B5
                            : point == '\t' ? 0x21E5
                                            : visible(point);
    io::append_utf8(shown, symbol);
  }
  return shown;
}

std::string escape(std::string_view text, bool keep_lines) {
  std::string escaped;
  for (const char character : visible_text(text, keep_lines)) {
    switch (character) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += character;
    }
  }
  return escaped;
}

std::string_view first_code_points(std::string_view text, std::size_t count) {
  std::string_view rest = text;
  for (; count > 0 && !rest.empty(); --count) io::next_code_point(rest);
  return text.substr(0, text.size() - rest.size());
}

}  // namespace iha::report
