// See log.h.
#include "iha/train/log.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "iha/core/error.h"
#include "iha/io/atomic_file.h"

namespace iha::train {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kLines = "train.jsonl";

struct Record {
  std::string line;
  Json value;
};

// The whole lines of the file; a last one without its end was cut by a kill and does not count.
std::vector<Record> read_records(const fs::path& path) {
  std::vector<Record> records;
  if (!fs::exists(path)) return records;
  const std::string content = io::read_text(path);
  std::size_t begin = 0;
  for (std::size_t end; (end = content.find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::string line = content.substr(begin, end - begin);
    Json value = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    iha::check(value.is_object() && value.contains("step") && value["step"].is_number_integer(),
               path.string(), ": line ", records.size() + 1, " is no record with a step");
    records.push_back({std::move(line), std::move(value)});
  }
  return records;
}

// Keeps what was recorded up to `step`, and gives the path back.
fs::path cut_after(const fs::path& path, int64_t step) {
  std::string kept;
  for (const Record& record : read_records(path)) {
    if (record.value["step"].get<int64_t>() <= step) kept += record.line + "\n";
  }
  fs::create_directories(path.parent_path());
  io::replace_file(path, kept);
  return path;
}

// A gate's name in a record: what follows the prefix is `head: mode`, and a mode has no blank.
constexpr std::string_view kGate = "gate ";
constexpr std::string_view kModeOf = ": ";

Curve& curve_named(std::vector<Curve>& curves, const std::string& name) {
  for (Curve& curve : curves) {
    if (curve.name == name) return curve;
  }
  return curves.emplace_back(Curve{name, {}, {}});
}

}  // namespace

RunLog::RunLog(const fs::path& folder, int64_t every, int64_t resumed_at)
    : every_(every),
      lines_(cut_after(folder / kLines, resumed_at)),
      events_(folder, resumed_at > 0 ? resumed_at + 1 : 0) {
  iha::check(every >= 1, "iha train: a record every ", every, " steps, expected 1 or more");
}

void RunLog::step(const StepReport& report) {
  if (report.skipped || report.step % every_ != 0) return;
  lines_.write({{"step", report.step},
                {"loss", report.loss},
                {"rate", report.rate},
                {"gradient_norm", report.gradient_norm},
                {"tokens", report.tokens},
                {"seconds", report.seconds}});
  events_.scalar("train/loss", report.step, report.loss);
  events_.scalar("train/rate", report.step, report.rate);
  events_.scalar("train/gradient_norm", report.step, report.gradient_norm);
}

void RunLog::evaluation(const EvaluationReport& report) {
  io::JsonRecord record{{"step", report.step}};
  for (const Metric& metric : report.metrics) {
    record.emplace_back("validation_" + metric.name, metric.value);
    events_.scalar("validation/" + metric.name, report.step, metric.value);
  }
  record.emplace_back("best", report.best);
  lines_.write(record);
}

void RunLog::gates(int64_t step, const std::vector<HeadGates>& heads) {
  if (heads.empty() || step % every_ != 0) return;
  io::JsonRecord record{{"step", step}};
  for (const HeadGates& head : heads) {
    for (std::size_t m = 0; m < head.modes.size(); ++m) {
      record.emplace_back(text(kGate, head.name, kModeOf, head.modes[m]), head.gates[m]);
      events_.scalar(text("gates/", head.name, "/", head.modes[m]), step, head.gates[m]);
    }
  }
  lines_.write(record);
}

std::vector<GateCurves> read_gates(const fs::path& folder) {
  std::vector<GateCurves> heads;
  for (const Record& record : read_records(folder / kLines)) {
    for (const auto& [name, value] : record.value.items()) {
      const std::size_t end = name.rfind(kModeOf);
      if (!name.starts_with(kGate) || end == std::string::npos || !value.is_number()) continue;
      const std::string head = name.substr(kGate.size(), end - kGate.size());
      auto found = std::ranges::find(heads, head, &GateCurves::head);
      if (found == heads.end()) found = heads.insert(heads.end(), {head, {}});
      Curve& curve = curve_named(found->modes, name.substr(end + kModeOf.size()));
      curve.steps.push_back(record.value["step"].get<double>());
      curve.values.push_back(value.get<double>());
    }
  }
  return heads;
}

std::vector<Curve> read_curves(const fs::path& folder) {
  std::vector<Curve> curves{{"loss", {}, {}}};
  for (const Record& record : read_records(folder / kLines)) {
    for (const auto& [name, value] : record.value.items()) {
      const bool drawn = name == "loss" || name.rfind("validation_", 0) == 0;
      if (!drawn || !value.is_number()) continue;
      Curve& curve = curve_named(curves, name);
      curve.steps.push_back(record.value["step"].get<double>());
      curve.values.push_back(value.get<double>());
    }
  }
  return curves;
}

}  // namespace iha::train
