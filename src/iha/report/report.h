// A report as one self-contained HTML page, from plain structs: no network, no fonts from elsewhere, no
// script but the viewer's; readable on a phone and in dark mode. All text is plain text and is escaped;
// markup comes from here alone. Not here: what the figures mean (the caller's paragraphs) and where they come
// from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "iha/report/heat_map.h"
#include "iha/report/table.h"
#include "iha/report/viewer.h"

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

using Block = std::variant<Paragraph, BulletList, CodeBlock, Table, LineChart, DotChart, HeatMap, Viewer>;

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
