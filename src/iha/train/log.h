// A run's record while it grows: `train.jsonl` (one JSON object a line) and TensorBoard event files. And the
// way back: the curves of a record, for reports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "iha/io/event_file.h"
#include "iha/io/json_lines.h"
#include "iha/train/gates.h"
#include "iha/train/trainer.h"

namespace iha::train {

class RunLog {
 public:
  // Begins the record of `folder`, or goes on with it after step `resumed_at`: lines of later steps, which a
  // killed run may have left, are removed. Steps are recorded every `every` steps, evaluations always.
  RunLog(const std::filesystem::path& folder, int64_t every, int64_t resumed_at = 0);

  void step(const StepReport& report);
  void evaluation(const EvaluationReport& report);
  // The gates after `step`, where the step is recorded; without learned heads nothing.
  void gates(int64_t step, const std::vector<HeadGates>& heads);

 private:
  int64_t every_;
  io::JsonLines lines_;
  io::EventFile events_;
};

struct Curve {
  std::string name;  // "loss", or a metric's name
  std::vector<double> steps, values;
};

// The curves of `folder`'s train.jsonl, the loss first. Numbers that were not finite are left out. Throws
// std::invalid_argument naming file and line for a line that is no record.
std::vector<Curve> read_curves(const std::filesystem::path& folder);

// The gates over the steps of `folder`'s train.jsonl: of each learned head, in order, its name and a curve a
// mode. Throws as read_curves.
struct GateCurves {
  std::string head;
  std::vector<Curve> modes;
};
std::vector<GateCurves> read_gates(const std::filesystem::path& folder);

}  // namespace iha::train
