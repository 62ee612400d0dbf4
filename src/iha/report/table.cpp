#include "iha/report/table.h"

#include <algorithm>
#include <array>

#include "iha/core/error.h"
#include "iha/io/utf8.h"
#include "iha/report/text.h"

namespace iha::report {
namespace {

struct Range {
  char32_t first, last;
};

template <std::size_t N>
bool in_any(const std::array<Range, N>& ranges, char32_t point) {
  return std::ranges::any_of(
      ranges, [point](const Range& range) { return range.first <= point && point <= range.last; });
}

// The blocks of Unicode that terminals draw over the character before, or not at all.
constexpr std::array<Range, 6> kNoWidth = {{{0x0300, 0x036F},
                                            {0x1AB0, 0x1AFF},
                                            {0x200B, 0x200F},
                                            {0x20D0, 0x20FF},
                                            {0xFE00, 0xFE0F},
                                            {0xFE20, 0xFE2F}}};
// Hangul, Chinese, Japanese, full-width forms, pictographs.
constexpr std::array<Range, 8> kTwoWide = {{{0x1100, 0x115F},
                                            {0x2E80, 0x303E},
                                            {0x3041, 0xA4CF},
                                            {0xAC00, 0xD7A3},
                                            {0xF900, 0xFAFF},
                                            {0xFE30, 0xFE6F},
                                            {0xFF00, 0xFF60},
                                            {0x1F300, 0x1FAFF}}};
constexpr Range kMoreChinese{0x20000, 0x3FFFD};

std::size_t width_of(char32_t point) {
  if (in_any(kNoWidth, point)) return 0;
  const bool wide = in_any(kTwoWide, point) || (point >= kMoreChinese.first && point <= kMoreChinese.last);
  return wide ? 2 : 1;
}

std::string padded(const std::string& cell, std::size_t width, Align align) {
  const std::string blanks(width - std::min(width, display_width(cell)), ' ');
  return align == Align::kLeft ? cell + blanks : blanks + cell;
}

// One line of cells, without blanks at its end.
std::string line_of(const std::vector<std::string>& cells, const std::vector<Column>& columns,
                    const std::vector<std::size_t>& widths, std::string_view margin) {
  std::string line(margin);
  for (std::size_t c = 0; c < cells.size(); ++c) {
    if (c > 0) line += "  ";
    line += padded(cells[c], widths[c], columns[c].align);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

}  // namespace

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) width += width_of(io::next_code_point(text));
  return width;
}

std::string to_text(const Table& table) {
  std::vector<std::string> names, units;
  for (const Column& column : table.columns) {
    names.push_back(visible_text(column.name));
    units.push_back(visible_text(column.unit));
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& row : table.rows) {
    check(row.size() == table.columns.size(), "report: table '", table.title, "' has a row of ", row.size(),
          " cells, expected ", table.columns.size());
    std::vector<std::string>& cells = rows.emplace_back();
    for (const std::string& cell : row) cells.push_back(visible_text(cell));
  }

  const bool has_units = std::ranges::any_of(units, [](const std::string& unit) { return !unit.empty(); });
  std::vector<std::size_t> widths(table.columns.size());
  const auto widen = [&widths](const std::vector<std::string>& cells) {
    for (std::size_t c = 0; c < cells.size(); ++c) widths[c] = std::max(widths[c], display_width(cells[c]));
  };
  widen(names);
  widen(units);
  for (const auto& cells : rows) widen(cells);

  const std::string margin = table.emphasis.empty() ? "" : "  ";
  std::string text = visible_text(table.title);
  if (!text.empty()) text += "\n\n";
  text += line_of(names, table.columns, widths, margin);
  if (has_units) text += line_of(units, table.columns, widths, margin);
  std::vector<std::string> rules;
  for (const std::size_t width : widths) rules.emplace_back(width, '-');
  text += line_of(rules, table.columns, widths, margin);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const bool set_off = std::ranges::find(table.emphasis, r) != table.emphasis.end();
    text += line_of(rows[r], table.columns, widths, set_off ? "* " : margin);
  }
  if (!table.caption.empty()) text.append("\n").append(visible_text(table.caption)).append("\n");
  return text;
}

}  // namespace iha::report
