// The lines of `iha bench --json` as a table for people.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "iha/report/table.h"

namespace iha::app {

// One row a line. Columns that no line fills are left out. Throws nlohmann::json::exception where a line
// lacks a field.
report::Table bench_table(const nlohmann::json& lines);

}  // namespace iha::app
