// Writes a page with every kind of block, of made-up figures, for the tests in Python and for looking at:
//   report_sample OUT.html
#include <cmath>
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

// Weights within the pattern that prefer equal characters and near ones.
HeadsOnText heads_on_text() {
  HeadsOnText heads{.title = "Layer 0",
                    .caption = "Rows are queries, columns keys; faint: what the pattern allows.",
                    .tokens = {},
                    .heads = {},
                    .query = 38};
  for (const char byte : kText) heads.tokens.emplace_back(1, byte);
  const auto size = static_cast<int64_t>(heads.tokens.size());
  int number = 0;
  for (const std::string name : {"causal_sliding:8", "causal_strided:4", "causal", "global+first:1",
                                 "causal_every:3+first:2", "causal_chunked:16", "sliding:6"}) {
    HeadOnText head{"head " + std::to_string(number++),
                    parse_pattern(name),
                    {},
                    number == 1 ? "Looks at the letters just before." : ""};
    for (int64_t i = 0; i < size; ++i) {
      double sum = 0;
      std::vector<double> row(static_cast<std::size_t>(size));
      for (int64_t j = 0; j < size; ++j) {
        if (!visible(head.pattern, i, j)) continue;
        row[j] = std::exp((kText[i] == kText[j] ? 2.0 : 0.0) - 0.1 * static_cast<double>(std::abs(i - j)));
        sum += row[j];
      }
      for (const double weight : row) head.weights.push_back(sum > 0 ? weight / sum : 0);
    }
    heads.heads.push_back(std::move(head));
  }
  return heads;
}

HeadsOnText words() {
  HeadsOnText heads{.title = "Words as tokens",
                    .caption = "",
                    .tokens = {"The", " key", "s", " <b>", "\x01", "\xFF", " that are very long"},
                    .heads = {},
                    .query = 6};
  heads.heads.push_back({"a head of \"words\" & more", causal(), std::vector<double>(49, 1.0 / 7), ""});
  return heads;
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
                       {"Heads on real text", {heads_on_text(), words()}},
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
