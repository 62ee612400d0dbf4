// A table of ready-made cells, and its plain-text form for terminals. Its HTML form is made by report.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace iha::report {

enum class Align : uint8_t { kLeft, kRight };

struct Column {
  std::string name;
  Align align = Align::kRight;  // numbers; text wants kLeft
  std::string unit = {};        // written below the name: "ms", "%", ...
};

struct Table {
  std::string title;    // may be empty
  std::string caption;  // one plain sentence below; may be empty
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // [rows][columns]
  std::vector<std::size_t> emphasis = {};      // rows to set off
};

// The table with columns aligned by display width, a rule under the names and two spaces between columns;
// emphasised rows begin with `*`. Lines end in '\n' without blanks before it. Control bytes in cells are
// shown, not sent. Throws std::invalid_argument where a row has not one cell a column.
std::string to_text(const Table& table);

// Terminal columns that UTF-8 `text` takes: code points, without combining marks, wide East Asian characters
// counted 2.
std::size_t display_width(std::string_view text);

}  // namespace iha::report
