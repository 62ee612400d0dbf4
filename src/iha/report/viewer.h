// The viewer: a page's block in which one steps through the layers and heads of a model, or of a list of
// patterns, and sees for each what it may see, where its weight went and what it costs. Plain structs; the
// script and the style of the page lie in viewer/. Not here: computing weights (ops/), pages (report.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "iha/patterns/pattern.h"
#include "iha/report/heat_map.h"
#include "iha/report/weight_summary.h"
#include "iha/schedule/layer_cost.h"

namespace iha::report {

// What attention costs, of one head or one layer, forward.
struct ViewedCost {
  int64_t pairs = 0;                   // of pseudo-tokens
  double flops = 0;                    // 4 * pairs * head dimension
  double weight_bytes = 0;             // what the matrix of weights would take; the engine never stores it
  double cache_bytes = 0;              // keys and values that later queries can still see
  std::optional<double> seconds = {};  // measured
};

// The same for what it is compared with.
struct ViewedCosts {
  ViewedCost own, causal, global;  // were the head (all heads of the layer) causal, global
};

// One candidate of a learned head and its share.
struct ViewedMode {
  Pattern pattern;
  double gate = 0;
};

// The blocks that each query of a dynamic head chose beside its own.
struct ChosenBlocks {
  int64_t block = 1;                // tokens a block
  int64_t most = 0;                 // blocks that a query may choose
  std::vector<int32_t> blocks;      // [tokens * most]; -1: none
  std::vector<float> weights = {};  // [tokens * most], of the blocks
};

struct ViewedHead {
  std::string text;  // its pattern as one types it
  // What it may see; of a learned or dynamic head what it might see at all.
  Pattern pattern;
  std::vector<ViewedMode> gates = {};       // learned heads
  std::optional<ChosenBlocks> chosen = {};  // dynamic heads
  std::optional<HeadWeights> weights = {};  // absent: only patterns are shown
  ViewedCosts cost = {};
};

struct ViewedLayer {
  std::string name;  // "layer 0"
  int64_t pseudo_heads = 1;
  bool interleaved = true;  // false: the parallel layout
  bool flat = true;         // false: token order
  std::vector<ViewedHead> heads;
  std::vector<HeatMap> mixing = {};  // of pseudo-heads and their collapse
  ViewedCosts cost = {};
};

struct Viewer {
  std::string title, caption;
  int64_t token_count = 0;
  std::vector<std::string> tokens = {};  // as shown; empty: numbered
  int64_t query = 0;                     // shown at first
  std::vector<ViewedLayer> layers;
};

// Fills in the costs of the layer and its heads. `shape` is that of self-attention on the viewer's tokens,
// key head h / (heads / kv_heads) serves head h, and a number takes `bytes_per_value`. Throws
// std::invalid_argument where kv_heads do not divide the heads.
void add_costs(ViewedLayer& layer, const LayerShape& shape, int64_t kv_heads, int64_t bytes_per_value = 4);

}  // namespace iha::report
