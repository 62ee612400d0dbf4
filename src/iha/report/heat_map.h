// A matrix of numbers to show.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace iha::report {

// A diverging scale (blue, white, red) around 0 where some value is negative, else a sequential one.
struct HeatMap {
  std::string title, caption;
  std::string row_label, column_label;     // what rows and columns are
  std::vector<std::string> rows, columns;  // names; empty: numbered from 0
  std::vector<double> values;              // [rows * columns], row-major
  std::size_t row_count = 0, column_count = 0;
  int group = 0;  // a thin rule after every `group` columns; 0: none
};

}  // namespace iha::report
