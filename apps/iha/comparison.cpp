// See comparison.h.
#include "comparison.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "iha/core/error.h"
#include "iha/report/format.h"
#include "iha/train/progress.h"
#include "processes.h"

namespace iha::app {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Run {
  std::string name;
  fs::path folder;
  std::vector<std::string> arguments;
};

Run run_of(const Comparison& comparison, const Contender& contender, double rate, int64_t seed,
           const std::string& name, const fs::path& parent) {
  Run run{name, parent / name, comparison.train};
  run.arguments.insert(run.arguments.end(), comparison.shared.begin(), comparison.shared.end());
  run.arguments.insert(run.arguments.end(), contender.arguments.begin(), contender.arguments.end());
  for (const std::string& each : {text("--rate=", rate), text("--seed=", seed),
                                  text("--output=", run.folder.string()), std::string("--threads=1")}) {
    run.arguments.push_back(each);
  }
  run.arguments.emplace_back(comparison.resume ? "--resume" : "--overwrite");
  return run;
}

// The last step that the run has recorded, from the last whole line of its log.
int64_t last_step(const fs::path& folder) {
  constexpr std::streamoff kTail = 1024;  // several lines
  std::ifstream stream(folder / "train.jsonl", std::ios::binary);
  stream.seekg(0, std::ios::end);
  if (!stream) return 0;
  stream.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(stream.tellg()) - kTail));
  std::ostringstream content;
  content << stream.rdbuf();
  const std::string tail = content.str();
  const std::string key = "{\"step\": ";
  const std::size_t place = tail.rfind(key, tail.rfind('\n'));
  if (place == std::string::npos) return 0;
  int64_t step = 0;
  std::from_chars(tail.data() + place + key.size(), tail.data() + tail.size(), step);
  return step;
}

int64_t steps_of(const Comparison& comparison) {
  const std::string key = "--steps=";
  for (const std::string& each : comparison.shared) {
    if (each.rfind(key, 0) == 0) return std::stoll(each.substr(key.size()));
  }
  return 0;
}

void train_all(const std::string& title, const Comparison& comparison, const ComparisonOptions& options,
               const std::vector<Run>& runs) {
  std::vector<Job> jobs;
  std::vector<fs::path> folders;
  for (const Run& run : runs) {
    if (comparison.resume && fs::exists(run.folder / "summary.json")) continue;
    jobs.push_back({run.name, run.arguments, run.folder.parent_path() / (run.name + ".txt")});
    folders.push_back(run.folder);
  }
  const int64_t steps = steps_of(comparison);
  const auto cores = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  train::ProgressBar bar(std::cerr, train::terminal_width(STDERR_FILENO), title, 0,
                         steps * static_cast<int64_t>(jobs.size()));
  run_jobs(jobs, static_cast<int>(options.jobs > 0 ? options.jobs : cores),
           [&](const std::vector<JobState>& states) {
             int64_t done = 0, ended = 0;
             std::string running;
             for (std::size_t i = 0; i < states.size(); ++i) {
               if (states[i] == JobState::kDone) ++ended;
               if (states[i] == JobState::kRunning) running += " " + jobs[i].name;
               if (states[i] != JobState::kWaiting)
                 done += states[i] == JobState::kDone ? steps : last_step(folders[i]);
             }
             bar.update(done, text(ended, "/", states.size(), " runs ", running));
           });
}

double number(const json& value) {
  return value.is_number() ? value.get<double>() : NAN;
}

std::vector<double> rates_of(const std::string& list) {
  std::vector<double> rates;
  std::istringstream stream(list);
  for (std::string each; std::getline(stream, each, ',');) {
    double rate = 0;
    const auto [end, error] = std::from_chars(each.data(), each.data() + each.size(), rate);
    check(error == std::errc() && end == each.data() + each.size() && rate > 0, "--sweep: found `", each,
          "`, expected rates above 0 separated by commas");
    rates.push_back(rate);
  }
  return rates;
}

std::vector<std::string> cells_of(const Comparison& comparison, const Row& row) {
  std::vector<std::string> cells{row.contender.name};
  for (const Metric& metric : comparison.metrics) {
    const Spread spread = row.of(comparison.part, metric.name);
    cells.push_back(report::with_spread(spread.mean, spread.deviation, 3));
  }
  cells.push_back(report::significant(row.contender.rate, 2));
  cells.push_back(report::count(std::llround(row.mean_of("parameters"))));
  cells.push_back(report::significant(row.mean_of("flops_per_step") / 1e9, 3));
  cells.push_back(report::significant(row.mean_of("seconds_per_step") * 1e3, 3));
  return cells;
}

}  // namespace

void add_comparison_options(CLI::App& command, ComparisonOptions& options) {
  command.add_option("--seeds", options.seeds, "Runs of each, with seeds of their own")
      ->check(CLI::Range(1, 1000));
  command.add_option("--first-seed", options.first_seed, "The first of these seeds")
      ->check(CLI::Range(0, 1 << 30));
  command.add_option("--jobs", options.jobs, "Runs at a time, one thread each; 0: one a core")
      ->check(CLI::Range(0, 1024));
  command.add_option(
      "--sweep", options.sweep,
      "Rates separated by commas; each kind then takes the one that does best on validation data");
  command.add_option("--sweep-seeds", options.sweep_seeds, "Runs of each at each rate of the sweep")
      ->check(CLI::Range(1, 1000));
}

Spread spread_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  Spread spread;
  for (const double value : values) spread.mean += value / count;
  if (values.size() < 2) return spread;
  for (const double value : values)
    spread.deviation += (value - spread.mean) * (value - spread.mean) / (count - 1);
  spread.deviation = std::sqrt(spread.deviation);
  return spread;
}

Spread Row::of(const std::string& part, const std::string& metric) const {
  std::vector<double> values;
  for (const json& summary : summaries) values.push_back(number(summary.at(part).at(metric)));
  return spread_of(values);
}

double Row::mean_of(const std::string& field) const {
  std::vector<double> values;
  for (const json& summary : summaries) values.push_back(number(summary.at(field)));
  return spread_of(values).mean;
}

std::vector<SweepEntry> sweep_rates(Comparison& comparison, const ComparisonOptions& options) {
  const std::vector<double> rates = rates_of(options.sweep);
  if (rates.empty()) return {};
  const auto name_of = [](const Contender& contender, double rate, int64_t seed) {
    return text(contender.name, "-rate", rate, "-seed", seed);
  };
  const fs::path folder = comparison.folder / "sweep";
  // Seeds of their own, so that no figure of the comparison is of a run that chose its rate.
  constexpr int64_t kFirstSeed = 1000;
  std::vector<Run> runs;
  for (const Contender& contender : comparison.contenders) {
    for (const double rate : rates) {
      for (int64_t seed = kFirstSeed; seed < kFirstSeed + options.sweep_seeds; ++seed) {
        runs.push_back(run_of(comparison, contender, rate, seed, name_of(contender, rate, seed), folder));
      }
    }
  }
  train_all("sweep", comparison, options, runs);

  const Metric& metric = comparison.metrics.front();
  std::vector<SweepEntry> entries;
  for (Contender& contender : comparison.contenders) {
    const std::size_t first = entries.size();
    for (const double rate : rates) {
      std::vector<double> values;
      for (int64_t seed = kFirstSeed; seed < kFirstSeed + options.sweep_seeds; ++seed) {
        const json summary = read_json(folder / name_of(contender, rate, seed) / "summary.json");
        values.push_back(number(summary.at("validation").at(metric.name)));
      }
      entries.push_back({contender.name, rate, spread_of(values), false});
    }
    const auto best = std::max_element(entries.begin() + static_cast<std::ptrdiff_t>(first), entries.end(),
                                       [&](const auto& left, const auto& right) {
                                         return metric.higher_is_better
                                                    ? left.validation.mean < right.validation.mean
                                                    : left.validation.mean > right.validation.mean;
                                       });
    best->chosen = true;
    contender.rate = best->rate;
  }
  return entries;
}

std::vector<Row> run_comparison(const Comparison& comparison, const ComparisonOptions& options) {
  std::vector<Run> runs;
  std::vector<Row> rows;
  for (const Contender& contender : comparison.contenders) {
    Row& row = rows.emplace_back();
    row.contender = contender;
    for (int64_t seed = options.first_seed; seed < options.first_seed + options.seeds; ++seed) {
      runs.push_back(run_of(comparison, contender, contender.rate, seed, text(contender.name, "-seed", seed),
                            comparison.folder / "runs"));
      row.folders.push_back(runs.back().folder);
    }
  }
  train_all("compare", comparison, options, runs);
  for (Row& row : rows) {
    for (const fs::path& folder : row.folders) row.summaries.push_back(read_json(folder / "summary.json"));
  }
  return rows;
}

report::Table table_of(const Comparison& comparison, const std::vector<Row>& rows) {
  report::Table table;
  table.columns = {{"mixer", report::Align::kLeft}};
  for (const Metric& metric : comparison.metrics) table.columns.push_back({metric.title});
  table.columns.insert(table.columns.end(), {{"rate"},
                                             {"parameters"},
                                             {"a step", report::Align::kRight, "GFLOP"},
                                             {"a step", report::Align::kRight, "ms"}});
  for (const Row& row : rows) table.rows.push_back(cells_of(comparison, row));
  return table;
}

report::Table sweep_table(const std::vector<SweepEntry>& entries, const Metric& metric) {
  report::Table table;
  table.title = "Learning rates";
  table.caption = "Validation data chose the rate of each kind (marked); the figures above are of test data.";
  table.columns = {{"mixer", report::Align::kLeft}, {"rate"}, {metric.title + ", validation"}};
  for (const SweepEntry& entry : entries) {
    if (entry.chosen) table.emphasis.push_back(table.rows.size());
    table.rows.push_back({entry.contender, report::significant(entry.rate, 2),
                          report::with_spread(entry.validation.mean, entry.validation.deviation, 3)});
  }
  return table;
}

std::vector<report::Block> curves_of(const std::vector<Row>& rows) {
  std::vector<RunGroup> groups;
  for (const Row& row : rows) groups.push_back({row.contender.name, row.folders});
  return mean_curves(groups);
}

}  // namespace iha::app
