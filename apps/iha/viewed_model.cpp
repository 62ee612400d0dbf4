// See viewed_model.h.
#include "viewed_model.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "iha/core/error.h"
#include "iha/patterns/parse.h"
#include "iha/tasks/relation_composition.h"
#include "printable.h"
#include "run_report.h"

namespace iha::app {

namespace {

using nlohmann::json;

// The weights of all heads, layer->weights called for few rows at a time.
std::vector<report::HeadWeights> gather(nn::InterleavedHeadAttention layer, const torch::Tensor& x) {
  const int64_t tokens = x.size(1), heads = layer->options.heads(), pseudo = *layer->options.pseudo_heads(),
                row_size = pseudo * tokens * pseudo;
  std::vector<report::WeightSummary> summaries(static_cast<std::size_t>(heads),
                                               report::WeightSummary(tokens, pseudo));
  const int64_t step = report::rows_at_a_time(heads * row_size);
  for (int64_t begin = 0; begin < tokens; begin += step) {
    const int64_t end = std::min(tokens, begin + step);
    const torch::Tensor rows = torch::arange(begin, end, at::kLong);
    // [1, H, R, P, N, P]
    const torch::Tensor weights = layer->weights(x, rows).to(at::kCPU, at::kFloat).contiguous();
    const float* data = weights.const_data_ptr<float>();
    at::parallel_for(0, heads, 1, [&](int64_t first, int64_t last) {
      for (int64_t head = first; head < last; ++head) {
        for (int64_t row = begin; row < end; ++row) {
          const float* own = data + (head * (end - begin) + row - begin) * row_size;
          summaries[static_cast<std::size_t>(head)].add(row, {own, static_cast<std::size_t>(row_size)});
        }
      }
    });
  }
  std::vector<report::HeadWeights> result;
  for (report::WeightSummary& summary : summaries) result.push_back(summary.take());
  return result;
}

// Median of five forward passes after one to warm up.
double seconds_of(nn::InterleavedHeadAttention layer, const torch::Tensor& x) {
  constexpr std::size_t kTimes = 5;
  std::vector<double> seconds;
  layer->forward(x);
  while (seconds.size() < kTimes) {
    const auto start = std::chrono::steady_clock::now();
    layer->forward(x);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::nth_element(seconds, seconds.begin() + kTimes / 2);
  return seconds[kTimes / 2];
}

void measure(report::ViewedCosts& costs, nn::InterleavedHeadAttention layer, const torch::Tensor& x) {
  const auto with = [&](const PatternList& patterns) {
    nn::InterleavedHeadAttention other(
        nn::InterleavedHeadAttentionOptions(layer->options).patterns(patterns).autoregressive(false));
    other->eval();
    return seconds_of(other, x);
  };
  costs.own.seconds = seconds_of(layer, x);
  costs.causal.seconds = with(causal());
  costs.global.seconds = with(global());
}

// The blocks of weight above 0 but a query's own, of one dynamic head's weights [tokens, blocks].
report::ChosenBlocks chosen_blocks(const Pattern& pattern, const torch::Tensor& weights) {
  report::ChosenBlocks chosen{.block = pattern.block, .most = pattern.chosen, .blocks = {}};
  const auto cells = weights.accessor<float, 2>();
  for (int64_t query = 0; query < weights.size(0); ++query) {
    const auto end = static_cast<std::size_t>((query + 1) * chosen.most);
    for (int64_t block = 0; block < weights.size(1) && chosen.blocks.size() < end; ++block) {
      if (block == query / pattern.block || cells[query][block] <= 0) continue;
      chosen.blocks.push_back(static_cast<int32_t>(block));
      chosen.weights.push_back(cells[query][block]);
    }
    chosen.blocks.resize(end, -1);
    chosen.weights.resize(end, 0.0f);
  }
  return chosen;
}

// What learned and dynamic heads chose on x.
void add_choices(std::vector<report::ViewedHead>& heads, nn::InterleavedHeadAttention layer,
                 const torch::Tensor& x) {
  if (!layer->gates.is_empty()) {
    const torch::Tensor gates = layer->gates->gates().to(at::kDouble);  // [learned, candidates]
    for (std::size_t at = 0; at < layer->gates->learned.size(); ++at) {
      report::ViewedHead& head = heads[static_cast<std::size_t>(layer->gates->learned[at])];
      const auto& candidates = head.pattern.candidates;
      for (std::size_t mode = 0; mode < candidates.size(); ++mode) {
        const torch::Tensor gate = gates[static_cast<int64_t>(at)][static_cast<int64_t>(mode)];
        head.gates.push_back({candidates[mode], gate.item<double>()});
      }
    }
  }
  if (layer->index.is_empty()) return;
  const torch::Tensor weights = layer->index->forward(x, x, {}, {})[0].to(at::kFloat).contiguous();
  for (std::size_t head = 0; head < heads.size(); ++head) {
    const Pattern& pattern = heads[head].pattern;
    if (pattern.dynamic()) heads[head].chosen = chosen_blocks(pattern, weights[static_cast<int64_t>(head)]);
  }
}

report::ViewedLayer view_layer(int64_t number, nn::InterleavedHeadAttention layer, const torch::Tensor& x,
                               const ViewingOptions& options) {
  torch::NoGradGuard no_grad;
  const nn::InterleavedHeadAttentionOptions& own = layer->options;
  report::ViewedLayer viewed{.name = text("layer ", number),
                             .pseudo_heads = *own.pseudo_heads(),
                             .interleaved = own.layout() == "interleaved",
                             .flat = own.order() == "flat",
                             .heads = {},
                             .mixing = mixing_maps(*layer)};
  const std::vector<Pattern> patterns = own.patterns().expand(own.heads());
  std::vector<report::HeadWeights> weights = gather(layer, x);
  for (std::size_t head = 0; head < patterns.size(); ++head) {
    viewed.heads.push_back(
        {.text = to_text(patterns[head]), .pattern = patterns[head], .weights = std::move(weights[head])});
  }
  add_choices(viewed.heads, layer, x);
  add_costs(viewed,
            {.tokens = x.size(1),
             .head_dim = *own.head_dim(),
             .pseudo_heads = viewed.pseudo_heads,
             .interleaved = viewed.interleaved,
             .flat = viewed.flat},
            *own.kv_heads());
  if (options.time) measure(viewed.cost, layer, x);
  return viewed;
}

// The layers asked for; `input(layer)` is what each reads.
template <class Model, class Input>
void view_layers(report::Viewer& viewer, Model& model, const Input& input, const ViewingOptions& options) {
  std::vector<int64_t> layers = options.layers;
  if (layers.empty()) {
    for (std::size_t layer = 0; layer < model->config.layers.size(); ++layer)
      layers.push_back(static_cast<int64_t>(layer));
  }
  model->eval();
  for (const int64_t layer : layers)
    viewer.layers.push_back(view_layer(layer, model->attention(layer), input(layer), options));
  viewer.query = viewer.token_count - 1;
}

}  // namespace

report::Viewer view_language(models::LanguageModel model, const std::string& text,
                             const ViewingOptions& options) {
  check(!text.empty(), "iha view: the text is empty");
  report::Viewer viewer{.title = "Every head on the text",
                        .caption = "A byte of the text is a token.",
                        .token_count = static_cast<int64_t>(text.size()),
                        .layers = {}};
  std::vector<int64_t> bytes;
  for (const char c : text) {
    bytes.push_back(static_cast<unsigned char>(c));
    viewer.tokens.emplace_back(1, c);
  }
  const torch::Tensor tokens = torch::tensor(bytes, at::kLong);
  view_layers(
      viewer, model, [&](int64_t layer) { return model->attention_input(tokens, layer); }, options);
  return viewer;
}

report::Viewer view_grid(models::TokenTagger model, const std::string& cells, const ViewingOptions& options) {
  const auto count = static_cast<int64_t>(cells.size());
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(count))));
  check(count > 0 && side * side == count && side <= model->config.max_side, "iha view: ", count,
        " cells, expected a square of at most ", model->config.max_side, " * ", model->config.max_side);
  report::Viewer viewer{.title = "Every head on the grid",
                        .caption = text("A cell of the ", side, " * ", side,
                                        " grid is a token, row by row: its name is row, column and value."),
                        .token_count = count,
                        .layers = {}};
  models::GridTokens input;
  std::vector<int64_t> values, rows, columns;
  for (int64_t at = 0; at < count; ++at) {
    const int64_t value = cells[static_cast<std::size_t>(at)] - '0';
    check(value >= 0 && value < std::min<int64_t>(10, model->config.values), "iha view: cell ", at, " is `",
          cells[static_cast<std::size_t>(at)], "`, expected a digit below ", model->config.values);
    values.push_back(value);
    rows.push_back(at / side);
    columns.push_back(at % side);
    viewer.tokens.push_back(text(at / side, ",", at % side, "=", value, at % side == side - 1 ? "\n" : " "));
  }
  torch::NoGradGuard no_grad;
  input.values = torch::tensor(values, at::kLong).unsqueeze(0);
  input.rows = torch::tensor(rows, at::kLong).unsqueeze(0);
  input.columns = torch::tensor(columns, at::kLong).unsqueeze(0);
  view_layers(
      viewer, model, [&](int64_t layer) { return model->attention_input(input, layer); }, options);
  return viewer;
}

std::string relation_for(const models::TokenTagger& model) {
  tasks::RelationCompositionOptions options;
  options.min_side = options.max_side = model->config.max_side;
  options.train = options.validation = options.test = 1;
  const tasks::RelationSplits relations = tasks::draw_relations(options);
  std::string cells;
  for (const uint8_t cell : relations.test.front().cells) cells += static_cast<char>('0' + cell);
  return cells;
}

std::string to_bertviz(const report::Viewer& viewer) {
  check(viewer.token_count <= report::kExactTokens, "iha view: ", viewer.token_count,
        " tokens for BertViz, expected at most ", report::kExactTokens);
  json attention = json::array(), tokens = json::array();
  for (const std::string& token : viewer.tokens) tokens.push_back(printable(token));
  for (const report::ViewedLayer& layer : viewer.layers) {
    json heads = json::array();
    for (const report::ViewedHead& head : layer.heads) {
      const report::Masses& masses = head.weights->masses;
      json rows = json::array();
      for (auto row = masses.values.begin(); row != masses.values.end(); row += masses.side)
        rows.push_back(std::vector<float>(row, row + masses.side));
      heads.push_back(std::move(rows));
    }
    attention.push_back(json::array({std::move(heads)}));
  }
  return json{{"tokens", std::move(tokens)}, {"attention", std::move(attention)}}.dump();
}

}  // namespace iha::app
