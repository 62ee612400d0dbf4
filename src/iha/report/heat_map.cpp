// Matrices of numbers as HTML tables: every cell shows its number, and its colour how large it is.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "iha/core/error.h"
#include "iha/report/blocks.h"
#include "iha/report/format.h"
#include "iha/report/text.h"

namespace iha::report {
namespace {

void check_sizes(const HeatMap& map) {
  check(map.values.size() == map.row_count * map.column_count, "report: heat map '", map.title, "' has ",
        map.values.size(), " values, expected ", map.row_count, " * ", map.column_count);
  check(map.rows.empty() || map.rows.size() == map.row_count, "report: heat map '", map.title, "' has ",
        map.rows.size(), " row names, expected ", map.row_count);
  check(map.columns.empty() || map.columns.size() == map.column_count, "report: heat map '", map.title,
        "' has ", map.columns.size(), " column names, expected ", map.column_count);
}

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

std::string name_at(const std::vector<std::string>& names, std::size_t index) {
  return names.empty() ? fmt::format("{}", index) : escape(names[index]);
}

std::string_view rule_before(const HeatMap& map, std::size_t column) {
  const auto group = static_cast<std::size_t>(std::max(map.group, 0));
  return group > 0 && column > 0 && column % group == 0 ? " rule" : "";
}

std::string draw_cell(const HeatMap& map, std::size_t row, std::size_t column, double largest) {
  const double value = map.values[row * map.column_count + column];
  const double strength = std::isfinite(value) && largest > 0 ? std::abs(value) / largest : 0;
  return fmt::format(R"(<td class="{}{}" style="--a:{:.2f}" title="{} {}, {} {}: {}">{}</td>)",
                     value < 0 ? "minus" : "plus", rule_before(map, column), strength, escape(map.row_label),
                     name_at(map.rows, row), escape(map.column_label), name_at(map.columns, column),
                     significant(value, 4), fixed(value, 2));
}

}  // namespace

std::string to_html(const HeatMap& map) {
  check_sizes(map);
  const double largest = largest_of(map.values);
  std::string table = fmt::format(
      R"(<table class="heat"><thead><tr><td></td><th scope="col" colspan="{}">{}</th></tr><tr><th scope="col">{}</th>)",
      std::max<std::size_t>(map.column_count, 1), escape(map.column_label), escape(map.row_label));
  for (std::size_t c = 0; c < map.column_count; ++c) {
    table +=
        fmt::format(R"(<th scope="col" class="n{}">{}</th>)", rule_before(map, c), name_at(map.columns, c));
  }
  table += "</tr></thead><tbody>";
  for (std::size_t r = 0; r < map.row_count; ++r) {
    table += fmt::format(R"(<tr><th scope="row">{}</th>)", name_at(map.rows, r));
    for (std::size_t c = 0; c < map.column_count; ++c) table += draw_cell(map, r, c, largest);
    table += "</tr>";
  }
  table += "</tbody></table>";
  const bool negative = std::ranges::any_of(map.values, [](double value) { return value < 0; });
  const std::string scale =
      fmt::format(R"(<p class="scale-key"><span>{}</span><i class="{}"></i><span>{}</span></p>)",
                  negative ? significant(-largest, 2) : "0", negative ? "diverging" : "sequential",
                  significant(largest, 2));
  return "<figure>" + heading(map.title) + scrolling(map.title, table) + scale + caption(map.caption) +
         "</figure>";
}

}  // namespace iha::report
