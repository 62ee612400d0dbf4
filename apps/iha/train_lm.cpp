// `iha train lm`: one language model on the bytes of a text.
#include <nlohmann/json.hpp>

#include "iha/core/error.h"
#include "iha/patterns/parse.h"
#include "iha/report/format.h"
#include "iha/report/report.h"
#include "iha/train/language.h"
#include "language_options.h"
#include "printable.h"
#include "run_report.h"
#include "train_commands.h"

namespace iha::app {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// What the pictures of heads show: long enough for windows and strides, short enough to read.
constexpr std::size_t kShownBytes = 96;

struct LmOptions : LanguageOptions {
  std::string mixer_name = "modes";
  std::string model_file;
  int64_t sample = 400;
  double temperature = 0.7;
};

models::LanguageModelConfig model_config(const LmOptions& options) {
  if (!options.model_file.empty()) return read_json(options.model_file).get<models::LanguageModelConfig>();
  models::LanguageModelConfig config = options.model;
  config.tied = !options.untied;
  models::MixerConfig mixer = options.mixer;
  mixer.dropout = config.dropout;
  // `paper` and the kinds of one pattern read causal heads; the others have a pattern a head.
  mixer.patterns = options.mixer_name == "plain" || options.mixer_name == "paper"
                       ? PatternList(causal())
                       : parse_patterns(options.patterns);
  if (options.pseudo_heads > 0) mixer.pseudo_heads = options.pseudo_heads;
  if (!options.rope.empty()) mixer.rope = options.rope;
  config.layers = models::layer_schedule(options.mixer_name, options.layers, config.context, mixer);
  return config;
}

torch::Tensor bytes_of(std::string_view text) {
  std::vector<int64_t> bytes;
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return torch::tensor(bytes, at::kLong);
}

// The first whole lines of the held-out text beyond `skip` bytes.
std::string lines_of(const std::string& text, std::size_t skip, std::size_t bytes) {
  std::size_t begin = text.find('\n', std::min(skip, text.size()));
  begin = begin == std::string::npos ? 0 : begin + 1;
  return text.substr(begin, bytes);
}

std::string sample_of(models::LanguageModel model, const LmOptions& options, const std::string& prompt) {
  models::SamplingOptions sampling;
  sampling.tokens = options.sample;
  sampling.temperature = options.temperature;
  sampling.seed = options.training.seed;
  const torch::Tensor generated = model->generate(bytes_of(prompt), sampling);
  std::string text;
  for (int64_t i = 0; i < generated.size(0); ++i) text += static_cast<char>(generated[i].item<int64_t>());
  return text;
}

std::string in_words(const json& summary) {
  const auto bits = [&](const char* name) { return report::fixed(summary.at(name).get<double>(), 3); };
  return text("bits a byte on ", report::count(summary.at("held_out_bytes").get<int64_t>()),
              " held-out bytes: ", bits("bits_per_byte"), " (a byte-bigram model ",
              bits("bigram_bits_per_byte"), ", gzip ", bits("gzip_bits_per_byte"), "); ",
              report::count(summary.at("parameters").get<int64_t>()), " parameters, ",
              report::duration(summary.at("seconds_per_step").get<double>()), " a step\nA sample:\n",
              summary.at("sample").get<std::string>(), "\n");
}

json summary_of(const LmOptions& options, models::LanguageModel model, train::LanguageObjective& objective,
                const TrainingOutcome& outcome) {
  const tasks::ByteText& text = objective.text();
  const json validation = to_json(objective.evaluate());
  const std::string prompt = lines_of(text.validation, text.validation.size() / 3, 64);
  json summary{
      {"mixer", options.mixer_name},
      {"flops_per_step", training_flops(model->flops(model->config.context).total(), options.training)},
      {"files", text.files.size()},
      {"training_bytes", text.train.size()},
      {"held_out_bytes", text.validation.size()},
      {"validation", validation},
      {"bits_per_byte", validation.at("bits_per_byte")},
      {"bigram_bits_per_byte", tasks::bigram_bits_per_byte(text.train, text.validation)},
      {"gzip_bits_per_byte", tasks::gzip_bits_per_byte(text.validation)},
      {"prompt", printable(prompt)},
      {"sample", printable(sample_of(model, options, prompt))},
      {"shown", printable(lines_of(text.validation, text.validation.size() / 2, kShownBytes))}};
  summary.update(run_figures(options.training, *model, outcome));
  return summary;
}

int run(const LmOptions& given) {
  LmOptions options = given;
  torch::manual_seed(options.training.seed);
  models::LanguageModel model(model_config(options));
  train::LanguageObjective objective(model, tasks::read_text(options.text), options.training.batch,
                                     options.training.seed);
  options.training.gates.tokens = model->config.context;
  prepare_folder(options.training, model->config);
  const TrainingOutcome outcome = run_training("train lm", *model, objective, options.training);

  const fs::path folder = options.training.output;
  const json summary = summary_of(options, model, objective, outcome);
  write_json(folder / "summary.json", summary);
  report::Page page;
  page.title = "A language model whose heads differ";
  page.lead = "Trained on the bytes of " + std::to_string(objective.text().files.size()) + " files.";
  page.sections = language_sections(folder);
  report::write_html(folder / "report.html", page);
  save_hardened(options.training, model);
  print_result(options.training, summary, in_words(summary));
  return 0;
}

void declare(CLI::App& command, LmOptions& options) {
  std::vector<std::string> mixers = models::mixer_kinds();
  mixers.emplace_back("paper");
  command
      .add_option("--mixer", options.mixer_name,
                  "How heads attend: one kind for all layers, or the paper's schedule of local interleaved "
                  "layers to one "
                  "plain layer")
      ->check(CLI::IsMember(mixers));
  command
      .add_option("--model", options.model_file, "A model.json, instead of --mixer and the model's options")
      ->check(CLI::ExistingFile);
  command.add_option("--sample", options.sample, "Bytes to generate at the end")
      ->check(CLI::Range(0, 1 << 20));
  command.add_option("--temperature", options.temperature, "Of the sample; 0: always the most probable byte")
      ->check(CLI::Range(0.0, 100.0));
  options.training.output = "runs/lm";
  add_language_options(command, options);
}

}  // namespace

LanguageOptions::LanguageOptions() {
  text.extensions = {".py"};
  text.max_bytes = 20 << 20;
  text.max_validation_bytes = 128 << 10;
  model.d_model = 96;
  model.context = 128;
  mixer.heads = 4;
  training.batch = 16;
  training.trainer.schedule = {.peak = 3e-3, .steps = 1000, .warmup = 50, .floor = 0.05};
  training.trainer.adamw.weight_decay = 0.1;
  training.trainer.adamw.beta2 = 0.95;
  training.trainer.evaluate_every = 250;
}

void add_language_options(CLI::App& command, LanguageOptions& options) {
  command
      .add_option("--text", options.text.paths,
                  "Files, or folders read recursively; several are separated by commas")
      ->delimiter(',')
      ->required();
  command
      .add_option("--extensions", options.text.extensions,
                  "Of files in folders, with the dot, separated by commas; an empty one takes every file")
      ->delimiter(',')
      ->default_str(".py");
  command.add_option("--max-bytes", options.text.max_bytes, "Read no more bytes than this; 0: everything")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  command
      .add_option("--validation", options.text.validation, "Share of the bytes that is held out, at the end")
      ->check(CLI::Range(0.0, 0.9));
  command
      .add_option("--max-validation-bytes", options.text.max_validation_bytes,
                  "Hold out no more than this; 0: no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  command
      .add_option("--patterns", options.patterns,
                  "Patterns of the heads in every layer (`plain` and `paper` have their own)")
      ->check(pattern_list());
  command.add_option("--layers", options.layers, "Transformer blocks")->check(CLI::Range(1, 1 << 10));
  command.add_option("--heads", options.mixer.heads, "Heads a layer")->check(CLI::Range(1, 1 << 10));
  command
      .add_option("--pseudo-heads", options.pseudo_heads, "Pseudo-heads a head; 0: the mixer's own choice")
      ->check(CLI::Range(0, 1 << 8));
  command.add_option("--d-model", options.model.d_model, "Width of the model")->check(CLI::Range(1, 1 << 16));
  command.add_option("--context", options.model.context, "Bytes the model reads at a time")
      ->check(CLI::Range(1, 1 << 20));
  command
      .add_option("--rope", options.rope,
                  "Rotary positions: none, token or virtual; empty: the mixer's own choice")
      ->check(CLI::IsMember({"", "none", "token", "virtual"}));
  command.add_flag("--untied", options.untied, "Give the read-out weights of its own, not the embedding's");
  command
      .add_option("--dropout", options.model.dropout,
                  "On residual branches and attention weights, in training")
      ->check(CLI::Range(0.0, 1.0));
  add_training_options(command, options.training);
}

CLI::App* add_train_lm(CLI::App& parent, Action& action) {
  return add_command<LmOptions>(parent, "lm", "Train a language model on the bytes of files",
                                "iha train lm --text /usr/lib/python3.11 --steps 1000 --output runs/lm",
                                action, declare, run);
}

}  // namespace iha::app
