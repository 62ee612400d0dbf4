// See run_report.h.
#include "run_report.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "iha/models/language_model.h"
#include "iha/report/format.h"
#include "iha/train/checkpoint.h"
#include "iha/train/log.h"
#include "training_run.h"
#include "viewed_model.h"

namespace iha::app {

namespace {

namespace fs = std::filesystem;

std::string title_of(const std::string& curve) {
  std::string title = curve == "loss" ? "training loss" : curve;
  for (char& c : title) c = c == '_' ? ' ' : c;
  return title;
}

report::LineChart chart_of(const std::string& curve) {
  report::LineChart chart;
  chart.title = title_of(curve);
  chart.x_label = "step";
  chart.y_label = title_of(curve);
  return chart;
}

// The parts of a name between dots: `layers.0.alpha_q` ends in `alpha_q`.
std::string leaf(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

std::vector<std::string> numbered(const std::string& what, int64_t count) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(what + " " + std::to_string(i));
  return names;
}

// Rows are the first axis, columns the others in order, a rule after every P columns.
report::HeatMap map_of(const std::string& name, const torch::Tensor& weights) {
  const torch::Tensor values = weights.detach().to(at::kDouble).flatten(1).contiguous();
  const bool collapse = leaf(name) == "collapse";
  report::HeatMap map;
  map.title = name;
  map.caption = collapse ? "How the parts of all pseudo-heads make each head's output."
                         : "How the heads (rows) make each pseudo-head (columns, by head).";
  map.row_label = collapse ? "head of the output" : "source head";
  map.column_label = collapse && weights.dim() == 2 ? "pseudo-head" : "head, pseudo-head";
  map.rows = numbered("head", values.size(0));
  map.row_count = static_cast<std::size_t>(values.size(0));
  map.column_count = static_cast<std::size_t>(values.size(1));
  map.group = weights.dim() == 3 ? static_cast<int>(weights.size(2)) : 0;
  map.values.assign(values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel());
  return map;
}

struct MeanCurve {
  std::map<double, std::vector<double>> values;  // by step
  report::Series series(const std::string& name) const {
    report::Series result{.name = name, .x = {}, .y = {}};
    for (const auto& [step, at] : values) {
      const auto count = static_cast<double>(at.size());
      double mean = 0, squares = 0;
      for (const double value : at) mean += value / count;
      for (const double value : at) squares += (value - mean) * (value - mean);
      result.x.push_back(step);
      result.y.push_back(mean);
      result.spread.push_back(count > 1 ? std::sqrt(squares / (count - 1)) : 0.0);
    }
    return result;
  }
};

// The losses of single batches jump; over this many records the eye sees the course.
constexpr std::size_t kMostPoints = 100;

// Means of neighbouring records where there are more than kMostPoints.
train::Curve thinned(const train::Curve& curve) {
  const std::size_t stride = (curve.steps.size() + kMostPoints - 1) / kMostPoints;
  if (stride <= 1) return curve;
  train::Curve result{curve.name, {}, {}};
  for (std::size_t i = 0; i + stride <= curve.steps.size(); i += stride) {
    double mean = 0;
    for (std::size_t j = 0; j < stride; ++j) mean += curve.values[i + j] / static_cast<double>(stride);
    result.steps.push_back(curve.steps[i + stride - 1]);
    result.values.push_back(mean);
  }
  return result;
}

// The gates of every learned head over the run of `folder`, one chart a head with a line a mode; none where
// no head is learned.
std::vector<report::Block> gate_curves(const fs::path& folder) {
  std::vector<report::Block> blocks;
  for (const train::GateCurves& head : train::read_gates(folder)) {
    report::LineChart chart;
    chart.title = "gates of " + head.head;
    chart.x_label = "step";
    chart.y_label = "gate";
    chart.y_min = 0.0;
    chart.y_max = 1.0;
    for (const train::Curve& mode : head.modes) {
      chart.series.push_back({.name = mode.name, .x = mode.steps, .y = mode.values});
    }
    blocks.emplace_back(std::move(chart));
  }
  return blocks;
}

}  // namespace

std::vector<report::Block> learning_curves(const std::vector<std::pair<std::string, fs::path>>& runs) {
  std::vector<RunGroup> groups;
  for (const auto& [name, folder] : runs) groups.push_back({name, {folder}});
  return mean_curves(groups);
}

std::vector<report::Block> mean_curves(const std::vector<RunGroup>& groups) {
  std::vector<std::string> order;
  std::map<std::string, report::LineChart> charts;
  for (const RunGroup& group : groups) {
    std::map<std::string, MeanCurve> means;
    for (const fs::path& folder : group.folders) {
      for (const train::Curve& whole : train::read_curves(folder)) {
        const train::Curve curve = thinned(whole);
        if (charts.emplace(curve.name, chart_of(curve.name)).second) order.push_back(curve.name);
        for (std::size_t i = 0; i < curve.steps.size(); ++i) {
          means[curve.name].values[curve.steps[i]].push_back(curve.values[i]);
        }
      }
    }
    for (const auto& [name, mean] : means) charts.at(name).series.push_back(mean.series(group.name));
  }
  std::vector<report::Block> blocks;
  for (const std::string& name : order) {
    if (name != "validation_majority" && !charts.at(name).series.empty())
      blocks.emplace_back(charts.at(name));
  }
  return blocks;
}

report::Page choosing_page(const std::string& title, const std::string& lead, const std::string& name,
                           const fs::path& folder) {
  report::Page page;
  page.title = title;
  page.lead = lead;
  page.sections.push_back({"How it learned", learning_curves({{name, folder}})});
  if (auto gates = gate_curves(folder); !gates.empty()) {
    page.sections.push_back({"What each head chose", std::move(gates)});
  }
  return page;
}

std::vector<report::HeatMap> mixing_maps(const torch::nn::Module& module) {
  std::vector<report::HeatMap> maps;
  for (const auto& item : module.named_parameters()) {
    const std::string last = leaf(item.key());
    const bool mixing = last == "alpha_q" || last == "alpha_k" || last == "alpha_v" || last == "collapse";
    if (mixing) maps.push_back(map_of(item.key(), item.value()));
  }
  return maps;
}

std::vector<report::Section> language_sections(const fs::path& folder) {
  const nlohmann::json summary = read_json(folder / "summary.json");
  models::LanguageModel model(read_json(folder / "model.json").get<models::LanguageModelConfig>());
  train::load_model(folder / "model.safetensors", *model);
  model->eval();
  const auto number = [&](const char* name) { return summary.at(name).get<double>(); };
  const auto bits = [&](const char* name) { return report::fixed(number(name), 3); };

  report::Table table;
  table.caption =
      "Bits a byte on the same held-out bytes; less is better. The bigram model counts the training bytes, "
      "gzip knows the held-out bytes alone.";
  table.columns = {{"model", report::Align::kLeft}, {"bits a byte"}};
  table.rows = {{"this model", bits("bits_per_byte")},
                {"byte bigrams", bits("bigram_bits_per_byte")},
                {"gzip, level 9", bits("gzip_bits_per_byte")}};
  table.emphasis = {0};
  const report::Paragraph data{"Trained for " + report::duration(number("seconds")) + " on " +
                               report::bytes(number("training_bytes")) + " of " +
                               std::to_string(summary.at("files").get<int64_t>()) + " files; " +
                               report::count(summary.at("held_out_bytes").get<int64_t>()) +
                               " bytes at the end were held out. The model has " +
                               report::count(summary.at("parameters").get<int64_t>()) +
                               " parameters. So small a model after so short a training shows that heads of "
                               "different patterns train together, "
                               "not how good a language model they make."};

  std::vector<report::Block> learned = learning_curves({{"language model", folder}});
  learned.insert(learned.begin(), {data, table});
  report::Viewer viewer =
      view_language(model, summary.at("shown").get<std::string>(), {.layers = {}, .time = true});
  viewer.title = "Every head on held-out text";
  std::vector<report::Section> sections{
      {"Language model: how it learned", std::move(learned)},
      {"Language model: a sample",
       {report::CodeBlock{"prompt, from the held-out text", summary.at("prompt").get<std::string>()},
        report::CodeBlock{"what the model goes on with", summary.at("sample").get<std::string>()}}},
      {"Language model: where each head looks", {std::move(viewer)}}};
  if (auto gates = gate_curves(folder); !gates.empty()) {
    sections.push_back({"Language model: gates of learned heads", std::move(gates)});
  }
  return sections;
}

}  // namespace iha::app
