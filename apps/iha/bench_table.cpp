// See bench_table.h.
#include "bench_table.h"

#include <nlohmann/json.hpp>

#include "iha/core/error.h"
#include "iha/report/format.h"

namespace iha::app {
namespace {

using nlohmann::json;

// A cell of a field that may be absent or null.
template <class Format>
std::string cell(const json& line, const char* field, const Format& format) {
  const auto found = line.find(field);
  return found == line.end() || found->is_null() ? std::string() : format(found->get<double>());
}

// Drops the columns that hold nothing.
void drop_empty_columns(report::Table& table) {
  for (std::size_t column = table.columns.size(); column-- > 0;) {
    bool empty = true;
    for (const auto& row : table.rows) empty &= row[column].empty();
    if (!empty || table.rows.empty()) continue;
    table.columns.erase(table.columns.begin() + static_cast<std::ptrdiff_t>(column));
    for (auto& row : table.rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
}

}  // namespace

report::Table bench_table(const json& lines) {
  report::Table table{.title = "Attention",
                      .caption =
                          "Medians of turns in one run. Peak: multiply-adds measured before each line; of "
                          "reading: keys and values, read once, against the memory's bandwidth measured "
                          "likewise. Memory: the most that a call takes beyond its inputs, its result and a "
                          "mask included. Error: largest difference from the work's last line, over its "
                          "largest value.",
                      .columns = {{"work", report::Align::kLeft},
                                  {"dtype", report::Align::kLeft},
                                  {"path", report::Align::kLeft},
                                  {"time"},
                                  {"GFLOP/s"},
                                  {"of peak"},
                                  {"GB/s"},
                                  {"of reading"},
                                  {"memory"},
                                  {"iha is", report::Align::kRight, "times as fast"},
                                  {"error"}},
                      .rows = {}};
  if (!lines.empty()) {
    table.title = text("Attention on ", lines[0].at("threads").get<int>(), " threads, ",
                       lines[0].at("instruction_set").get<std::string>());
  }
  for (const json& line : lines) {
    const double flops = line.at("flops_per_second").get<double>();
    const auto path = line.at("path").get<std::string>();
    table.rows.push_back({line.at("work").get<std::string>(), line.at("dtype").get<std::string>(), path,
                          report::duration(line.at("seconds").get<double>()), report::fixed(flops * 1e-9, 0),
                          report::percent(flops / line.at("peak_flops_per_second").get<double>(), 0),
                          cell(line, "key_value_bytes_per_second",
                               [](double value) { return report::fixed(value * 1e-9, 1); }),
                          cell(line, "read_bytes_per_second",
                               [&](double value) {
                                 const double read = line.at("key_value_bytes_per_second").get<double>();
                                 return report::percent(read / value, 0);
                               }),
                          cell(line, "extra_bytes", report::bytes),
                          path == "iha" ? "" : report::fixed(line.at("seconds_over_iha").get<double>(), 2),
                          cell(line, "error", [](double value) { return report::significant(value, 2); })});
  }
  drop_empty_columns(table);
  return table;
}

}  // namespace iha::app
