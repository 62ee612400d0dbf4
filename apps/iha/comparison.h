// A comparison: several kinds of model, several seeds of each, trained by `iha train` as processes side by
// side, and what comes of it. Not here: which kinds and data (compare_compose.cpp, compare_lm.cpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "iha/report/report.h"
#include "iha/report/table.h"
#include "run_report.h"
#include "training_run.h"

namespace iha::app {

struct ComparisonOptions {
  int64_t seeds = 3;
  int64_t first_seed = 0;
  int64_t jobs = 0;  // 0: one a core
  std::string sweep;
  int64_t sweep_seeds = 1;
};

// --seeds, --first-seed, --jobs, --sweep, --sweep-seeds.
void add_comparison_options(CLI::App& command, ComparisonOptions& options);

// One kind of model in it.
struct Contender {
  std::string name;
  std::vector<std::string> arguments;  // of `iha train`: what makes it this kind
  double rate = 0;
};

struct Metric {
  std::string name;   // in the summary's part
  std::string title;  // of the table's columns
  bool higher_is_better = true;
};

struct Comparison {
  std::vector<std::string> train;   // {"train", "compose"}
  std::vector<std::string> shared;  // arguments of every run
  std::vector<Contender> contenders;
  std::vector<Metric> metrics;  // the first decides a sweep
  std::string part;             // of a run's summary that holds the figures: "test"
  std::filesystem::path folder;
  bool resume = false;  // runs that have a summary are not run again, others go on
};

struct Spread {
  double mean = 0;
  double deviation = 0;  // of a sample; 0 for one value
};
Spread spread_of(const std::vector<double>& values);

struct Row {
  Contender contender;
  std::vector<nlohmann::json> summaries;       // one a seed
  std::vector<std::filesystem::path> folders;  // the same
  Spread of(const std::string& part, const std::string& metric) const;
  double mean_of(const std::string& field) const;  // a number that every summary has
};

struct SweepEntry {
  std::string contender;
  double rate = 0;
  Spread validation;
  bool chosen = false;
};

// Trains every contender at every rate of `--sweep` and sets each contender's rate to the one that does best
// on validation data. Nothing without --sweep.
std::vector<SweepEntry> sweep_rates(Comparison& comparison, const ComparisonOptions& options);

// Trains every contender with every seed.
std::vector<Row> run_comparison(const Comparison& comparison, const ComparisonOptions& options);

report::Table table_of(const Comparison& comparison, const std::vector<Row>& rows);
report::Table sweep_table(const std::vector<SweepEntry>& entries, const Metric& metric);
std::vector<report::Block> curves_of(const std::vector<Row>& rows);

}  // namespace iha::app
