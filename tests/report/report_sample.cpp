// Writes a page with every kind of block, of made-up figures, for the tests in Python and for looking at:
//   report_sample OUT.html
#include <cmath>
#include <functional>
#include <iostream>
#include <string>

#include "iha/core/philox.h"
#include "iha/patterns/parse.h"
#include "iha/report/format.h"
#include "iha/report/report.h"

namespace iha::report {
namespace {

constexpr std::string_view kText = "def open(path):\n    return io.open(path)\n";

LineChart learning_curves() {
  LineChart chart{.title = "Bits per byte while training",
                  .caption = "Held-out text. The band is the spread over three seeds; lower is better.",
                  .x_label = "step",
                  .y_label = "bits per byte",
                  .series = {}};
  PhiloxStream random(1);
  for (int kind = 0; kind < 8; ++kind) {
    Series series{"mixer " + std::to_string(kind), {}, {}};
    for (int step = 1; step <= 2000; step += kind == 0 ? 1 : 50) {
      series.x.push_back(step);
      series.y.push_back(1.6 + 0.1 * kind + 6 * std::exp(-step / (150.0 + 60 * kind)) +
                         (kind == 0 ? 0.03 * random.next_normal() : 0));
      if (kind == 2) series.spread.push_back(0.15);
    }
    if (kind == 3) series.y[20] = std::nan("");
    chart.series.push_back(std::move(series));
  }
  return chart;
}

DotChart accuracies() {
  return {.title = "Cell accuracy by mixer",
          .caption = "Mean over three seeds; the bar is one standard deviation on each side.",
          .value_label = "share of valid cells that are right",
          .dots = {{"plain heads", 0.919, 0.010, "", false},
                   {"plain, 8 heads", 0.946, 0.004, "", false},
                   {"plain, LayerNorm & residual", 1.0, 0.0, "", false},
                   {"averaged pseudo-heads", 0.944, 0.024, "", false},
                   {"interleaved heads", 0.981, 0.006, "", true}},
          .min = {},
          .max = {},
          .reference = 0.868,
          .reference_label = "always answering the more frequent value"};
}

Table comparison() {
  return {"Mixers side by side",
          "Same data, same steps. FLOPs count the forward pass of one example.",
          {{"mixer", Align::kLeft},
           {"parameters"},
           {"accuracy", Align::kRight, "%"},
           {"exact", Align::kRight, "%"},
           {"time a step", Align::kRight, "ms"},
           {"FLOPs"}},
          {{"plain heads", count(16770), "91.9 ± 1.0", "18", "4.5", si(1.2e6)},
           {"averaged pseudo-heads <P = 4>", count(16962), "94.4 ± 2.4", "32", "17.0", si(19.3e6)},
           {"interleaved heads", count(17026), "98.1 ± 0.6", "66", "24.0", si(19.3e6)}},
          {2}};
}

HeatMap mixing() {
  HeatMap map{
      .title = "Mixing of queries in layer 0",
      .caption = "alpha_q: how much of each source head goes into each pseudo-head; groups are heads.",
      .row_label = "source head",
      .column_label = "pseudo-head",
      .rows = {},
      .columns = {},
      .values = {},
      .row_count = 4,
      .column_count = 16,
      .group = 4};
  PhiloxStream random(3);
  for (std::size_t i = 0; i < 64; ++i)
    map.values.push_back((i / 16 == i % 16 / 4 ? 1 : 0) + 0.3 * random.next_normal());
  for (int h = 0; h < 4; ++h) {
    for (int p = 0; p < 4; ++p) map.columns.push_back(std::to_string(h) + "." + std::to_string(p));
  }
  return map;
}

HeatMap shares() {
  return {.title = "Share of weight by distance",
          .caption = "",
          .row_label = "head",
          .column_label = "tokens back",
          .rows = {"near", "strided", "full"},
          .columns = {"0", "1-4", "5-16", "17+"},
          .values = {0.4, 0.5, 0.1, 0, 0.2, 0.2, 0.3, 0.3, 0.1, 0.1, 0.2, 0.6},
          .row_count = 3,
          .column_count = 4};
}

// Made-up weights within what a head sees that prefer near tokens and, of texts, equal ones; [P, tokens, P].
HeadWeights weights_of(const std::function<double(int64_t, int64_t)>& openness, int64_t tokens,
                       int64_t pseudo_heads) {
  WeightSummary summary(tokens, pseudo_heads);
  std::vector<float> row(static_cast<std::size_t>(pseudo_heads * tokens * pseudo_heads));
  for (int64_t i = 0; i < tokens; ++i) {
    for (int64_t p = 0; p < pseudo_heads; ++p) {
      float* weights = row.data() + p * tokens * pseudo_heads;
      double sum = 0;
      for (int64_t at = 0; at < tokens * pseudo_heads; ++at) {
        const int64_t j = at / pseudo_heads, r = at % pseudo_heads;
        const double near = std::abs(static_cast<double>(i - j)) / static_cast<double>(8 * (1 + p + 2 * r));
        const double equal = kText[i % kText.size()] == kText[j % kText.size()] ? 2.0 : 0.0;
        weights[at] = static_cast<float>(openness(i, j) * std::exp(equal - near));
        sum += static_cast<double>(weights[at]);
      }
      for (int64_t at = 0; at < tokens * pseudo_heads && sum > 0; ++at)
        weights[at] /= static_cast<float>(sum);
    }
    summary.add(i, row);
  }
  return summary.take();
}

ViewedHead head_of(const std::string& name, int64_t tokens, int64_t pseudo_heads) {
  ViewedHead head{.text = name, .pattern = parse_pattern(name)};
  head.weights = weights_of([&](int64_t i, int64_t j) { return visible(head.pattern, i, j) ? 1.0 : 0.0; },
                            tokens, pseudo_heads);
  return head;
}

// A head that has half decided for near tokens.
ViewedHead learned_head(int64_t tokens) {
  ViewedHead head{.text = "learned(causal|causal_sliding:3|causal_strided:8)", .pattern = causal()};
  head.gates = {{causal(), 0.125}, {causal_sliding(3), 0.625}, {causal_strided(8), 0.25}};
  head.weights = weights_of(
      [&](int64_t i, int64_t j) {
        double sum = 0;
        for (const ViewedMode& mode : head.gates) sum += visible(mode.pattern, i, j) ? mode.gate : 0.0;
        return sum;
      },
      tokens, 1);
  return head;
}

// A head that chose the first block and the one before the last, where they have ended.
ViewedHead dynamic_head(int64_t tokens, int64_t block) {
  ViewedHead head{.text = "causal_dynamic:" + std::to_string(block) + ":2", .pattern = causal()};
  ChosenBlocks chosen{.block = block, .most = 2, .blocks = {}, .weights = {}};
  for (int64_t i = 0; i < tokens; ++i) {
    const auto own = static_cast<int32_t>(i / block);
    chosen.blocks.push_back(own > 0 ? 0 : -1);
    chosen.weights.push_back(0.75F);
    chosen.blocks.push_back(own > 2 ? own - 2 : -1);
    chosen.weights.push_back(0.5F);
  }
  head.weights = weights_of(
      [&](int64_t i, int64_t j) {
        if (j > i) return 0.0;
        if (j / block == i / block) return 1.0;
        for (int64_t k = 2 * i; k < 2 * i + 2; ++k) {
          if (chosen.blocks[k] == j / block) return static_cast<double>(chosen.weights[k]);
        }
        return 0.0;
      },
      tokens, 1);
  head.chosen = std::move(chosen);
  return head;
}

ViewedLayer priced(ViewedLayer layer, int64_t tokens) {
  add_costs(layer,
            {.tokens = tokens,
             .head_dim = 32,
             .pseudo_heads = layer.pseudo_heads,
             .interleaved = layer.interleaved,
             .flat = layer.flat},
            static_cast<int64_t>(layer.heads.size()));
  return layer;
}

// A short text, every weight: one layer of all families, one of pseudo-heads.
Viewer short_viewer() {
  Viewer viewer{
      .title = "A short text", .caption = "Made-up weights.", .token_count = kText.size(), .layers = {}};
  for (const char byte : kText) viewer.tokens.emplace_back(1, byte);
  viewer.query = viewer.token_count - 1;
  ViewedLayer plain{.name = "layer 0", .heads = {}};
  for (const std::string name : {"causal_sliding:8", "causal_strided:4", "causal", "global+first:1",
                                 "causal_every:3+first:2", "causal_chunked:16", "sliding:6"})
    plain.heads.push_back(head_of(name, viewer.token_count, 1));
  plain.heads.push_back(learned_head(viewer.token_count));
  plain.heads.push_back(dynamic_head(viewer.token_count, 8));
  viewer.layers.push_back(priced(std::move(plain), viewer.token_count));
  viewer.layers.back().cost.own.seconds = 0.00123;
  viewer.layers.back().cost.causal.seconds = 0.002;
  viewer.layers.back().cost.global.seconds = 0.004;
  ViewedLayer pseudo{.name = "layer 1", .pseudo_heads = 2, .heads = {}, .mixing = {mixing()}};
  for (const std::string name : {"causal", "causal_sliding:4"})
    pseudo.heads.push_back(head_of(name, viewer.token_count, 2));
  viewer.layers.push_back(priced(std::move(pseudo), viewer.token_count));
  return viewer;
}

// A long one, in blocks.
Viewer long_viewer() {
  Viewer viewer{.title = "A long text", .caption = "", .token_count = 600, .query = 300, .layers = {}};
  for (int64_t i = 0; i < viewer.token_count; ++i) viewer.tokens.emplace_back(1, kText[i % kText.size()]);
  ViewedLayer layer{.name = "layer 0", .heads = {}};
  for (const std::string name : {"causal", "sliding:20", "causal_strided:50"})
    layer.heads.push_back(head_of(name, viewer.token_count, 1));
  layer.heads.push_back(learned_head(viewer.token_count));
  layer.heads.push_back(dynamic_head(viewer.token_count, 50));
  viewer.layers.push_back(priced(std::move(layer), viewer.token_count));
  return viewer;
}

// Odd tokens, and a head of which only the pattern is known.
Viewer words() {
  Viewer viewer{.title = "Words as tokens",
                .caption = "",
                .token_count = 7,
                .tokens = {"The", " key", "s", " <b>", "\x01", "\xFF", " that are very long"},
                .query = 6,
                .layers = {}};
  viewer.layers.push_back(
      priced({.name = "a layer of \"words\" & more", .heads = {{.text = "causal", .pattern = causal()}}}, 7));
  return viewer;
}

Page sample() {
  return {.title = "Heads that differ, heads that talk <each other>",
          .lead =
              "A page of made-up figures that shows every kind of block & escapes \"everything\": the "
              "learning curves, the comparison, each head on real text.",
          .figures = {{"0.981", "cell accuracy, interleaved heads", "plain heads: 0.919"},
                      {"1.93", "bits per byte", "byte bigrams 3.61, gzip 2.37"},
                      {"58 s", "training time", "two cores"}},
          .sections = {{"Language model",
                        {Paragraph{"One layer, four heads, each with its own pattern."}, learning_curves(),
                         CodeBlock{"Generated text",
                                   "def f(x):\n\treturn x < 3 & x\x01\xFF\n" + std::string(150, 'x')}}},
                       {"Heads on real text", {short_viewer(), long_viewer(), words()}},
                       {"Relation composition", {accuracies(), comparison(), mixing(), shares()}},
                       {"What this does and does not show",
                        {BulletList{{"With equal heads, interleaved heads win.",
                                     "At equal compute they do not: <see the table>."}},
                         CodeBlock{"", "iha compare compose --seeds 3"}}}},
          .footer = "iha 0.1.0\nmade by report_sample"};
}

}  // namespace
}  // namespace iha::report

int main(int count, char** arguments) try {
  if (count != 2) {
    std::cerr << "usage: report_sample OUT.html\n";
    return 2;
  }
  iha::report::write_html(arguments[1], iha::report::sample());
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
