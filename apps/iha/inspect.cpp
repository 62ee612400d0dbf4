// `iha inspect`: what a list of patterns costs, head by head, and what it looks like.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "iha/core/error.h"
#include "iha/patterns/parse.h"
#include "iha/report/format.h"
#include "iha/report/picture.h"
#include "iha/report/report.h"
#include "iha/report/table.h"
#include "iha/schedule/coverage.h"
#include "iha/schedule/layer_cost.h"

namespace iha::app {

namespace {

constexpr int64_t kTerminal = 80;          // columns where standard output is no terminal
constexpr int64_t kPicture = 32;           // columns of a picture, at most
constexpr std::size_t kViewedHeads = 128;  // a page shows no more heads than this

struct InspectOptions {
  std::string patterns;
  int64_t heads = 0;
  int64_t tokens = 4096;
  int64_t head_dim = 64;
  int64_t pseudo_heads = 1;
  std::string layout = "interleaved";
  std::string order = "flat";
  std::string html;
  bool json = false;
};

// Neighbouring heads of one pattern.
struct Run {
  std::size_t first = 0;
  std::size_t count = 0;
  HeadCost cost;  // of one of them
};

std::vector<Run> runs_of(const LayerCost& cost) {
  std::vector<Run> runs;
  for (std::size_t head = 0; head < cost.heads.size(); ++head) {
    if (runs.empty() || runs.back().cost.pattern != cost.heads[head].pattern) {
      runs.push_back({head, 0, cost.heads[head]});
    }
    ++runs.back().count;
  }
  return runs;
}

std::vector<Pattern> distinct(const LayerCost& cost) {
  std::vector<Pattern> patterns;
  for (const HeadCost& head : cost.heads) {
    if (std::find(patterns.begin(), patterns.end(), head.pattern) == patterns.end()) {
      patterns.push_back(head.pattern);
    }
  }
  return patterns;
}

std::string heads_text(const Run& run) {
  return run.count == 1 ? text(run.first) : text(run.first, "-", run.first + run.count - 1);
}

report::Table table_of(const LayerCost& cost, const InspectOptions& options) {
  report::Table table{.title = text("Self-attention of ", report::count(options.tokens),
                                    " tokens, head dimension ", options.head_dim, ", ", options.pseudo_heads,
                                    options.pseudo_heads == 1 ? " pseudo-head" : " pseudo-heads"),
                      .caption = "Forward FLOPs of attention alone: 4 x pairs x head dimension.",
                      .columns = {{"heads", report::Align::kLeft},
                                  {"pattern", report::Align::kLeft},
                                  {"a query sees", report::Align::kLeft},
                                  {"pairs", report::Align::kRight, "a head"},
                                  {"of dense"},
                                  {"FLOPs", report::Align::kRight, "a head"}},
                      .rows = {}};
  for (const Run& run : runs_of(cost)) {
    table.rows.push_back({heads_text(run), to_text(run.cost.pattern), report::describe(run.cost.pattern),
                          report::count(run.cost.pairs), report::percent(run.cost.share_of_dense, 2),
                          report::si(run.cost.flops)});
  }
  return table;
}

report::Table sums_of(const LayerCost& cost, const InspectOptions& options) {
  const auto row = [&](const char* name, int64_t pairs, double times) {
    return std::vector<std::string>{
        name, report::count(pairs),
        report::si(4.0 * static_cast<double>(pairs) * static_cast<double>(options.head_dim)),
        report::fixed(times, 3)};
  };
  return {.title = text("The layer: ", cost.heads.size(), cost.heads.size() == 1 ? " head" : " heads"),
          .caption = {},
          .columns = {{"layer", report::Align::kLeft}, {"pairs"}, {"FLOPs"}, {"this layer is"}},
          .rows = {row("these patterns", cost.pairs, 1),
                   row("all heads causal", cost.all_causal_pairs, cost.against_all_causal()),
                   row("all heads global", cost.all_global_pairs, cost.against_all_global())}};
}

// What the sums mean, in one sentence.
std::string verdict(const LayerCost& cost) {
  const double causal_ratio = cost.against_all_causal();
  const std::string than_global =
      text(report::fixed(cost.against_all_global(), 3), " times the work of an all-global one.");
  if (cost.pairs == cost.all_causal_pairs)
    return "This layer does the work of an all-causal one, " + than_global;
  if (cost.pairs < cost.all_causal_pairs) {
    return text("This layer does ", report::fixed(causal_ratio, 3), " times the work of an all-causal one, ",
                than_global);
  }
  return text("No saving against plain causal heads: this layer does ", report::fixed(causal_ratio, 3),
              " times the work of an all-causal one, ", than_global);
}

int64_t terminal_columns() {
  winsize size{};
  const bool known =
      isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kTerminal;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Pictures of the patterns with their names above, as many beside each other as fit in `columns`.
std::string pictures(const std::vector<Pattern>& patterns, int64_t tokens, int64_t columns) {
  constexpr std::size_t kGap = 2;
  const int64_t most = std::clamp<int64_t>(columns, 8, kPicture);
  std::vector<std::vector<std::string>> blocks;
  std::size_t width = 0;
  for (const Pattern& pattern : patterns) {
    std::vector<std::string>& block =
        blocks.emplace_back(lines_of(report::ascii_picture(pattern, tokens, most)));
    std::string name = to_text(pattern);
    if (name.size() > static_cast<std::size_t>(most)) name = name.substr(0, most - 3) + "...";
    block.insert(block.begin(), name);
    for (const std::string& line : block) width = std::max(width, line.size());
  }
  const std::size_t beside = std::max<std::size_t>(1, (columns + kGap) / (width + kGap));
  std::string result;
  for (std::size_t begin = 0; begin < blocks.size(); begin += beside) {
    const std::size_t end = std::min(blocks.size(), begin + beside);
    result += '\n';
    for (std::size_t row = 0; row < blocks[begin].size(); ++row) {
      std::string line;
      for (std::size_t k = begin; k < end; ++k) {
        line.resize(k == begin ? 0 : (k - begin) * (width + kGap), ' ');
        line += blocks[k][row];
      }
      result += line + '\n';
    }
  }
  return result;
}

std::string legend(const InspectOptions& options) {
  const Coverage cells = coverage(global(), options.tokens, kPicture);
  return text("Rows are queries, columns keys",
              cells.block == 1 ? "" : text(", ", cells.block, " tokens a cell"),
              ": # all pairs of tokens visible, + some, . none.");
}

nlohmann::json to_json(const LayerCost& cost, const InspectOptions& options) {
  nlohmann::json heads = nlohmann::json::array();
  for (std::size_t head = 0; head < cost.heads.size(); ++head) {
    const HeadCost& each = cost.heads[head];
    heads.push_back({{"head", head},
                     {"pattern", to_text(each.pattern)},
                     {"pairs", each.pairs},
                     {"share_of_dense", each.share_of_dense},
                     {"flops", each.flops}});
  }
  return {{"tokens", options.tokens},
          {"head_dim", options.head_dim},
          {"pseudo_heads", options.pseudo_heads},
          {"layout", options.layout},
          {"order", options.order},
          {"heads", heads},
          {"pairs", cost.pairs},
          {"flops", cost.flops},
          {"all_causal_pairs", cost.all_causal_pairs},
          {"all_global_pairs", cost.all_global_pairs},
          {"against_all_causal", cost.against_all_causal()},
          {"against_all_global", cost.against_all_global()}};
}

report::Viewer viewer_of(const LayerCost& cost, const LayerShape& shape) {
  report::Viewer viewer{
      .title = {}, .caption = {}, .token_count = shape.tokens, .query = shape.tokens / 2, .layers = {}};
  if (cost.heads.size() > kViewedHeads)
    viewer.caption = text("The first ", kViewedHeads, " of ", cost.heads.size(), " heads.");
  report::ViewedLayer layer{.name = "this layer",
                            .pseudo_heads = shape.pseudo_heads,
                            .interleaved = shape.interleaved,
                            .flat = shape.flat,
                            .heads = {}};
  for (const HeadCost& head : cost.heads) {
    report::ViewedHead viewed{.text = to_text(head.pattern), .pattern = head.pattern};
    // A learned head begins with equal gates.
    for (const Pattern& candidate : head.pattern.candidates) {
      viewed.gates.push_back({candidate, 1.0 / static_cast<double>(head.pattern.candidates.size())});
    }
    layer.heads.push_back(std::move(viewed));
  }
  add_costs(layer, shape, static_cast<int64_t>(layer.heads.size()));
  layer.heads.resize(std::min(layer.heads.size(), kViewedHeads));
  viewer.layers.push_back(std::move(layer));
  return viewer;
}

report::Page page_of(const LayerCost& cost, const InspectOptions& options, const LayerShape& shape) {
  return {.title = "Patterns: " + options.patterns,
          .lead = verdict(cost),
          .figures = {{report::fixed(cost.against_all_causal(), 3), "times the work of causal heads", ""},
                      {report::fixed(cost.against_all_global(), 3), "times the work of global heads", ""}},
          .sections = {{"Which head looks where", {viewer_of(cost, shape)}},
                       {"All heads", {table_of(cost, options), sums_of(cost, options)}}},
          .footer = text("iha inspect ", options.patterns, " --tokens ", options.tokens)};
}

int run(const InspectOptions& options) {
  const PatternList list = parse_patterns(options.patterns);
  const auto named = static_cast<int64_t>(list.entries().size());
  const int64_t heads = options.heads == 0 ? named : options.heads;
  const LayerShape shape{.tokens = options.tokens,
                         .head_dim = options.head_dim,
                         .pseudo_heads = options.pseudo_heads,
                         .interleaved = options.layout == "interleaved",
                         .flat = options.order == "flat"};
  const LayerCost cost = layer_cost(list.expand(heads, "iha inspect"), shape);
  if (!options.html.empty()) report::write_html(options.html, page_of(cost, options, shape));
  if (options.json) {
    std::cout << to_json(cost, options).dump(2) << '\n';
    return 0;
  }
  std::cout << report::to_text(table_of(cost, options)) << '\n'
            << report::to_text(sums_of(cost, options)) << '\n'
            << verdict(cost) << '\n'
            << pictures(distinct(cost), options.tokens, terminal_columns()) << '\n'
            << legend(options) << '\n';
  if (!options.html.empty()) std::cout << "Wrote " << options.html << '\n';
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  add_command<InspectOptions>(
      app, "inspect", "What a list of patterns costs, head by head, and what it looks like",
      "iha inspect causal*4,sliding:256*4,global*4 --tokens 4096 --head-dim 64", action,
      [](CLI::App& command, InspectOptions& options) {
        command
            .add_option("patterns", options.patterns,
                        "Patterns of the heads, as in causal*4,2xsliding:64+first:4")
            ->required()
            ->check(pattern_list());
        command
            .add_option("--heads", options.heads,
                        "Heads of the layer, where one pattern serves all; 0: as many as the list names")
            ->check(CLI::Range(int64_t{0}, PatternList::kMaxHeads));
        command.add_option("--tokens", options.tokens, "Tokens of the sequence")
            ->check(CLI::Range(int64_t{1}, int64_t{1} << 22));
        command.add_option("--head-dim", options.head_dim, "Channels of a head")
            ->check(CLI::Range(int64_t{1}, int64_t{65536}));
        command.add_option("--pseudo-heads", options.pseudo_heads, "Pseudo-heads a head, P")
            ->check(CLI::Range(int64_t{1}, int64_t{256}));
        command.add_option("--layout", options.layout, "How pseudo-heads lie: all see all, or each its own")
            ->check(CLI::IsMember({"interleaved", "parallel"}));
        command
            .add_option("--order", options.order, "Whether causal order goes by pseudo-tokens or by tokens")
            ->check(CLI::IsMember({"flat", "token"}));
        command.add_option("--html", options.html,
                           "Also write a page to this file, in which one steps through the heads");
        command.add_flag("--json", options.json, "Print one JSON object instead of tables and pictures");
      },
      run);
}

}  // namespace iha::app
