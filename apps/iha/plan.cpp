// `iha plan`: the paper's schedule of local interleaved and ordinary layers for given sizes.
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "iha/core/error.h"
#include "iha/patterns/parse.h"
#include "iha/report/format.h"
#include "iha/report/table.h"
#include "iha/schedule/paper_schedule.h"

namespace iha::app {

namespace {

struct PlanOptions {
  PaperModel model{.tokens = 4096, .pseudo_heads = 4, .heads = 12, .kv_heads = 0, .layers = 20};
  std::string dtype = "bfloat16";
  bool json = false;
};

report::Table layers_table(const PaperSchedule& plan, const PaperModel& model) {
  report::Table table{.title = text("The paper's schedule: ", report::count(model.tokens), " tokens, ",
                                    model.pseudo_heads, " pseudo-heads, W = N/(2 P^2) = ", plan.window),
                      .caption = "Every fifth layer is ordinary. The paper counts N^2 for it, causal or not.",
                      .columns = {{"layers", report::Align::kLeft},
                                  {"count"},
                                  {"pattern", report::Align::kLeft},
                                  {"P"},
                                  {"pairs", report::Align::kRight, "a head"},
                                  {"paper counts", report::Align::kRight, "a head"},
                                  {"FLOPs", report::Align::kRight, "a layer"}},
                      .rows = {}};
  const auto add = [&](const char* name, const PlannedLayer& layer) {
    table.rows.push_back({name, text(layer.layers), to_text(layer.pattern), text(layer.pseudo_heads),
                          report::count(layer.pairs), report::si(layer.paper_pairs, 4),
                          report::si(layer.flops)});
  };
  add("local", plan.local);
  add("ordinary", plan.ordinary);
  return table;
}

report::Table bytes_table(const PaperSchedule& plan, const PlanOptions& options) {
  report::Table table{
      .title = text("Bytes of one layer and one sequence in ", options.dtype),
      .caption = "Unfused: the layer made of torch operations, with P copies of Q, K, V and an NP x NP mask.",
      .columns = {{"layers", report::Align::kLeft}, {"KV cache"}, {"kept for backward"}, {"unfused"}},
      .rows = {}};
  const auto add = [&](const char* name, const PlannedLayer& layer) {
    table.rows.push_back({name, report::bytes(layer.cache_bytes), report::bytes(layer.saved_bytes),
                          report::bytes(layer.unfused_bytes)});
  };
  add("local", plan.local);
  add("ordinary", plan.ordinary);
  return table;
}

report::Table models_table(const PaperSchedule& plan, const PaperModel& model) {
  const double everywhere = plan.everywhere_flops / plan.plain_flops;
  const auto squared = static_cast<double>(model.pseudo_heads * model.pseudo_heads);
  return {.title = text("The model: ", model.layers, " layers of ", model.heads, " heads, head dimension ",
                        model.head_dim),
          .caption = "Forward FLOPs of attention alone, one sequence; exact: against all layers ordinary.",
          .columns = {{"model", report::Align::kLeft}, {"FLOPs"}, {"exact"}, {"paper counts"}, {"KV cache"}},
          .rows = {{"this schedule", report::si(plan.flops), report::fixed(plan.share_of_plain, 3),
                    report::fixed(plan.paper_share, 3), report::bytes(plan.cache_bytes)},
                   {"all layers ordinary", report::si(plan.plain_flops), report::fixed(1, 3),
                    report::fixed(1, 3), report::bytes(plan.plain_cache_bytes)},
                   {"interleaved, no window", report::si(plan.everywhere_flops), report::fixed(everywhere, 3),
                    report::fixed(squared, 3), report::bytes(plan.plain_cache_bytes)}}};
}

std::string verdict(const PaperSchedule& plan) {
  return text("The paper counts ", report::fixed(plan.paper_share, 3),
              " of plain attention because it counts N^2 for a plain layer; a causal layer computes half of "
              "that, and "
              "against it the schedule does ",
              report::fixed(plan.share_of_plain, 3), " of the work.");
}

nlohmann::json to_json(const PlannedLayer& layer) {
  return {{"pattern", to_text(layer.pattern)},
          {"pseudo_heads", layer.pseudo_heads},
          {"layers", layer.layers},
          {"pairs", layer.pairs},
          {"paper_pairs", layer.paper_pairs},
          {"flops", layer.flops},
          {"cache_bytes", layer.cache_bytes},
          {"saved_bytes", layer.saved_bytes},
          {"unfused_bytes", layer.unfused_bytes}};
}

nlohmann::json to_json(const PaperSchedule& plan, const PlanOptions& options) {
  return {{"tokens", options.model.tokens},
          {"pseudo_heads", options.model.pseudo_heads},
          {"heads", options.model.heads},
          {"kv_heads", options.model.kv_heads == 0 ? options.model.heads : options.model.kv_heads},
          {"layers", options.model.layers},
          {"head_dim", options.model.head_dim},
          {"dtype", options.dtype},
          {"window", plan.window},
          {"local", to_json(plan.local)},
          {"ordinary", to_json(plan.ordinary)},
          {"flops", plan.flops},
          {"plain_flops", plan.plain_flops},
          {"everywhere_flops", plan.everywhere_flops},
          {"share_of_plain", plan.share_of_plain},
          {"paper_share", plan.paper_share},
          {"cache_bytes", plan.cache_bytes},
          {"plain_cache_bytes", plan.plain_cache_bytes},
          {"warnings", plan.warnings}};
}

int run(const PlanOptions& options) {
  PaperModel model = options.model;
  model.bytes_per_value = options.dtype == "float32" ? 4 : 2;
  const PaperSchedule plan = paper_schedule(model);
  if (options.json) {
    std::cout << to_json(plan, options).dump(2) << '\n';
    return 0;
  }
  std::cout << report::to_text(layers_table(plan, model)) << '\n'
            << report::to_text(bytes_table(plan, options)) << '\n'
            << report::to_text(models_table(plan, model)) << '\n'
            << verdict(plan) << '\n';
  for (const std::string& warning : plan.warnings) std::cout << "Warning: " << warning << ".\n";
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  add_command<PlanOptions>(
      app, "plan", "The paper's schedule for given sizes: windows, FLOPs, bytes, warnings",
      "iha plan --tokens 8192 --pseudo-heads 4 --heads 16 --layers 20", action,
      [](CLI::App& command, PlanOptions& options) {
        const auto size = [&](const char* name, int64_t& value, int64_t least, int64_t most,
                              const char* sentence) {
          command.add_option(name, value, sentence)->check(CLI::Range(least, most));
        };
        size("--tokens", options.model.tokens, 1, int64_t{1} << 22, "Tokens of a sequence, N");
        size("--pseudo-heads", options.model.pseudo_heads, 1, 256,
             "Pseudo-heads a head of the local layers, P");
        size("--heads", options.model.heads, 1, 65536, "Heads of a layer");
        size("--kv-heads", options.model.kv_heads, 0, 65536, "Key heads of a layer; 0: as many as heads");
        size("--layers", options.model.layers, 1, 100000, "Layers of the model");
        size("--head-dim", options.model.head_dim, 1, 65536, "Channels of a head");
        command.add_option("--dtype", options.dtype, "Type of the values that bytes are counted for")
            ->check(CLI::IsMember({"bfloat16", "float16", "float32"}));
        command.add_flag("--json", options.json, "Print one JSON object instead of tables");
      },
      run);
}

}  // namespace iha::app
