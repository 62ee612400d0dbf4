// A report as one self-contained HTML page, from plain structs: no network, no script, no fonts from
// elsewhere; readable on a phone and in dark mode. All text is plain text and is escaped; markup comes from
// here alone. Not here: what the figures mean (the caller's paragraphs) and where they come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "iha/patterns/pattern.h"
#include "iha/report/table.h"

namespace iha::report {

struct Paragraph {
  std::string text;
};

struct BulletList {
  std::vector<std::string> items;
};

// Commands, generated samples: kept line for line in a fixed-width face; control bytes are shown as symbols.
struct CodeBlock {
  std::string title;  // may be empty
  std::string text;
};

struct Series {
  std::string name;
  std::vector<double> x, y;         // of one length; points that are not finite break the line
  std::vector<double> spread = {};  // half height of a band around y; empty: none
};

// Learning curves and the like.
struct LineChart {
  std::string title, caption;
  std::string x_label, y_label;
  std::vector<Series> series;
  bool log_x = false, log_y = false;             // points at or below 0 are left out
  std::optional<double> y_min = {}, y_max = {};  // default: from the data
};

struct Dot {
  std::string name;
  double value = 0;
  double spread = 0;      // half length of the error bar
  std::string note = {};  // beside it, e.g. "3 seeds"
  bool emphasis = false;
};

// One value a row with its error bar: comparisons.
struct DotChart {
  std::string title, caption;
  std::string value_label;
  std::vector<Dot> dots;
  std::optional<double> min = {}, max = {};
  std::optional<double> reference = {};  // a vertical line, e.g. the majority rate
  std::string reference_label = {};
  int digits = 3;
};

// A matrix of numbers; a diverging scale (blue, white, red) around 0 where some value is negative, else a
// sequential one.
struct HeatMap {
  std::string title, caption;
  std::string row_label, column_label;     // what rows and columns are
  std::vector<std::string> rows, columns;  // names; empty: numbered from 0
  std::vector<double> values;              // [rows * columns], row-major
  std::size_t row_count = 0, column_count = 0;
  int group = 0;  // a thin rule after every `group` columns; 0: none
};

// One head on a text: its pattern and where it looked.
struct HeadOnText {
  std::string name;  // "layer 0, head 2"
  Pattern pattern;
  std::vector<double> weights;  // [tokens * tokens], row = query; each row sums to 1 (or 0)
  std::string note = {};        // one plain sentence, e.g. what it looks at
};

// Heads side by side on the same tokens: for each its pattern, its weights as a matrix with the tokens on
// both axes, and the text shaded by what one query saw.
struct HeadsOnText {
  std::string title, caption;
  std::vector<std::string> tokens;  // as shown; blanks, line ends and control bytes become symbols
  std::vector<HeadOnText> heads;
  std::size_t query = 0;  // the token whose row shades the text
};

using Block =
    std::variant<Paragraph, BulletList, CodeBlock, Table, LineChart, DotChart, HeatMap, HeadsOnText>;

struct Section {
  std::string title;
  std::vector<Block> blocks;
};

// A figure of the lead: "0.981" / "cell accuracy, interleaved heads" / "plain heads: 0.919".
struct KeyFigure {
  std::string value, label, note;
};

struct Page {
  std::string title;
  std::string lead;  // two or three sentences
  std::vector<KeyFigure> figures;
  std::vector<Section> sections;
  std::string footer;  // versions, date, command
};

// Throws std::invalid_argument, naming the block, where sizes within it do not fit.
std::string to_html(const Page& page);
// The same into a file, atomically.
void write_html(const std::filesystem::path& path, const Page& page);

}  // namespace iha::report
