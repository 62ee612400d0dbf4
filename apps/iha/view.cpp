// `iha view`: where each head of a trained model looks, on real input, as a page.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "command.h"
#include "iha/core/error.h"
#include "iha/io/atomic_file.h"
#include "iha/report/format.h"
#include "iha/report/report.h"
#include "iha/train/checkpoint.h"
#include "training_run.h"
#include "viewed_model.h"

namespace iha::app {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct ViewOptions {
  std::string model;
  std::string text;
  std::string file;
  int64_t tokens = 0;
  ViewingOptions viewing;
  std::string html;
  std::string bertviz;
};

// The input as given: --text, else --file, else empty.
std::string input_of(const ViewOptions& options) {
  if (!options.text.empty() || options.file.empty()) return options.text;
  return io::read_text(options.file);
}

template <class Model>
Model load(const fs::path& folder, const json& config) {
  Model model(config.get<std::decay_t<decltype(Model(nullptr)->config)>>());
  train::load_model(folder / "model.safetensors", *model);
  model->eval();
  return model;
}

report::Viewer view_text(const ViewOptions& options, const json& config) {
  auto model = load<models::LanguageModel>(options.model, config);
  std::string text = input_of(options);
  const fs::path summary = fs::path(options.model) / "summary.json";
  if (text.empty() && fs::exists(summary)) text = read_json(summary).value("shown", "");
  check(!text.empty(), "iha view: no input, expected --text or --file");
  const int64_t most = options.tokens > 0 ? options.tokens : model->config.context;
  return view_language(model, text.substr(0, static_cast<std::size_t>(most)), options.viewing);
}

report::Viewer view_cells(const ViewOptions& options, const json& config) {
  auto model = load<models::TokenTagger>(options.model, config);
  std::string cells;
  for (const char c : input_of(options)) {
    if (c != ' ' && c != '\n') cells += c;
  }
  return view_grid(model, cells.empty() ? relation_for(model) : cells, options.viewing);
}

report::Page page_of(const ViewOptions& options, report::Viewer viewer) {
  std::size_t heads = 0;
  for (const report::ViewedLayer& layer : viewer.layers) heads += layer.heads.size();
  const std::string lead =
      text(fs::path(options.model).lexically_normal().string(), ": ", viewer.layers.size(),
           viewer.layers.size() == 1 ? " layer" : " layers", " with ", heads, heads == 1 ? " head" : " heads",
           " in all, on ", report::count(viewer.token_count), " tokens.");
  std::string title = std::exchange(viewer.title, {});  // of the section instead
  return {.title = "Where each head looks",
          .lead = lead,
          .figures = {},
          .sections = {{std::move(title), {std::move(viewer)}}},
          .footer = text("iha view ", options.model)};
}

int run(const ViewOptions& options) {
  const json config = read_json(fs::path(options.model) / "model.json");
  check(config.is_object() && (config.contains("vocabulary") || config.contains("max_side")), options.model,
        ": model.json is of neither a language model nor a tagger");
  report::Viewer viewer =
      config.contains("vocabulary") ? view_text(options, config) : view_cells(options, config);
  if (!options.bertviz.empty()) {
    io::replace_file(options.bertviz, to_bertviz(viewer));
    std::cout << "Wrote " << options.bertviz << '\n';
  }
  const bool by_default = options.html.empty() && options.bertviz.empty();
  const fs::path page = by_default ? fs::path(options.model) / "view.html" : fs::path(options.html);
  if (!page.empty()) {
    report::write_html(page, page_of(options, std::move(viewer)));
    std::cout << "Wrote " << page.string() << ", " << report::bytes(static_cast<double>(fs::file_size(page)))
              << '\n';
  }
  return 0;
}

void declare(CLI::App& command, ViewOptions& options) {
  command.add_option("model", options.model, "Folder of a run, as iha train leaves it")
      ->required()
      ->check(CLI::ExistingDirectory);
  CLI::Option* text =
      command.add_option("--text", options.text,
                         "The input: a text for a language model (default: the one of its report), the cells "
                         "of a grid for a tagger, as 0110... (default: a relation)");
  command.add_option("--file", options.file, "A file that holds the input")
      ->check(CLI::ExistingFile)
      ->excludes(text);
  command
      .add_option("--tokens", options.tokens,
                  "Read no more tokens of the text than this; 0: as many as the model was trained on")
      ->check(CLI::Range(int64_t{0}, report::kMostTokens));
  command.add_option("--layers", options.viewing.layers, "Layers to show, separated by commas; none: all")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--time", options.viewing.time,
                   "Measure each layer, and beside it the same with causal and with global heads");
  command.add_option(
      "--html", options.html,
      "The page to write; by default view.html in the run's folder, unless --bertviz is given");
  command.add_option("--bertviz", options.bertviz,
                     "Weights and tokens as JSON, for BertViz (docs/viewer.md)");
}

}  // namespace

void add_view(CLI::App& app, Action& action) {
  add_command<ViewOptions>(app, "view", "Where each head of a trained model looks, as a page to step through",
                           "iha view runs/lm --text 'def open(path):' --html view.html", action, declare,
                           run);
}

}  // namespace iha::app
