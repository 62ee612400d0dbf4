// The layer schedule of Interleaved Head Attention (arXiv:2602.21371) for given sizes: four local interleaved
// layers, each with a causal window of W = N / (2 P^2) tokens, to one ordinary layer of plain causal heads.
// Counted exactly, and beside it as the paper counts. Not here: building such a model (models/).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "iha/patterns/pattern.h"

namespace iha {

struct PaperModel {
  int64_t tokens = 0;        // N
  int64_t pseudo_heads = 1;  // P of the local layers
  int64_t heads = 1;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t layers = 5;
  int64_t head_dim = 64;
  int64_t bytes_per_value = 2;  // 2: bfloat16, 4: float32
};

// One kind of layer. Bytes are of one layer and one sequence.
struct PlannedLayer {
  Pattern pattern;
  int64_t pseudo_heads = 1;
  int64_t layers = 0;  // how many of the model's layers are of this kind
  int64_t pairs = 0;   // of one head, exact (flat order)
  double paper_pairs =
      0;             // of one head as the paper counts: P^2 N W; N^2 for an ordinary layer, causal or not
  double flops = 0;  // of one layer, forward: 4 * pairs * head_dim * heads
  double cache_bytes = 0;  // keys and values a decoder keeps, before mixing: of W + 1 tokens, or of N
  double saved_bytes =
      0;  // what the forward pass keeps for the backward pass: q, k, v, the P outputs and their lse
  // The same for a layer made of torch operations: P copies of q, k, v in place of one and, where a window
  // needs it, a boolean NP x NP mask. Equal to saved_bytes for an ordinary layer.
  double unfused_bytes = 0;
};

struct PaperSchedule {
  int64_t window = 0;  // W
  PlannedLayer local;
  PlannedLayer ordinary;
  double flops = 0;                               // of the whole model
  double plain_flops = 0;                         // were all layers ordinary
  double everywhere_flops = 0;                    // were all layers interleaved and causal without a window
  double share_of_plain = 0;                      // flops / plain_flops: exact causal counts
  double paper_share = 0;                         // the same as the paper counts
  double cache_bytes = 0, plain_cache_bytes = 0;  // of the whole model
  std::vector<std::string> warnings;              // plain sentences
};

// A window below this is called too small: 32 tokens are about one sentence of English.
inline constexpr int64_t kUsefulWindow = 32;

// N / (2 P^2), rounded down. Throws std::invalid_argument where that is 0, and for N or P below 1.
int64_t paper_window(int64_t tokens, int64_t pseudo_heads);
// Every fifth layer is ordinary: 4, 9, ... of 0, 1, ...
constexpr bool is_ordinary_layer(int64_t layer) {
  return layer % 5 == 4;
}

// Throws std::invalid_argument for sizes below 1, heads that are no multiple of kv_heads, and as paper_window
// does.
PaperSchedule paper_schedule(const PaperModel& model);

}  // namespace iha
