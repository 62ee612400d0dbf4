// What the engine makes of heads that choose, before it computes: which panels have one region, what weights
// of 0 leave, which queries meet which block; and the primitives that weights need.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "iha/kernels/cpu/chosen.h"
#include "iha/kernels/cpu/query_tile.h"
#include "tests/kernels/cpu_call.h"

namespace iha::cpu {
namespace {

Call weighted_call(int64_t tokens, const char* patterns, int64_t heads, const std::vector<double>& modes) {
  Call call;
  Problem& p = call.problem;
  p.batch = 1;
  p.query_heads = p.key_heads = heads;
  p.queries = p.keys = tokens;
  p.head_dim = p.value_dim = 16;
  p.scale = 0.25;
  p.patterns = parse_patterns(patterns).expand(heads);
  p.query_offset = {0};
  PhiloxStream random(1);
  fill_call(call, random, false, false, false, false);
  for (size_t i = 0; i < modes.size(); ++i) call.mode_weights.set(static_cast<int64_t>(i), modes[i]);
  return call;
}

// Panels that groups of rows meet: with one region, and with regions pair by pair.
struct Met {
  int64_t uniform = 0, mixed = 0, hidden_bits = 0;
};
Met met_by(const Plan& plan, const Slice& slice) {
  const Scope scope = plan.scope(0, slice);
  const int64_t rows = plan.primitives.group_rows;
  Met met;
  QueryTile tile;
  GroupPanels panels;
  for (int64_t token = 0; token < slice.queries.count; token += tile_tokens(plan, slice)) {
    tile.fill(plan, scope, slice, 0, 0, token,
              std::min(token + tile_tokens(plan, slice), slice.queries.count));
    for (const PanelRange& range : visible_panels(tile)) {
      for (int64_t block = range.begin; block < range.end; block += kBlockPanels) {
        const int64_t end = std::min(block + kBlockPanels, range.end);
        const bool all = panels.take_all(tile, scope, block, end);
        for (int64_t row = 0; row < tile.rows(); row += rows) {
          if (!all) panels.find(tile, scope, row, std::min(rows, tile.rows() - row), block, end);
          for (int slot = 0; slot < panels.count; ++slot) {
            ++(panels.layers[slot].empty() ? met.uniform : met.mixed);
            met.hidden_bits += panels.partial[slot] ? 1 : 0;
          }
        }
      }
    }
  }
  return met;
}

TEST(CpuWeights, PanelsOfOneRegionNeedNoWorkAPair) {
  const Call call = weighted_call(1024, "learned(global|sliding:64)", 1, {0.5, 2});
  const core::AttentionInputs inputs = call.inputs();
  for (const Isa isa : supported_isas()) {
    const Plan plan(call.problem, inputs, isa);
    ASSERT_EQ(plan.slices(0).size(), 1u);
    const int64_t groups =
        (1024 + 127) / 128 * ((128 + plan.primitives.group_rows - 1) / plan.primitives.group_rows);
    const Met met = met_by(plan, plan.slices(0)[0]);
    EXPECT_EQ(met.uniform + met.mixed, groups * 32);
    EXPECT_LE(met.mixed, groups * 4);  // two ends of a window, on the edge of two panels at most
    EXPECT_GE(met.mixed, groups);
    EXPECT_EQ(met.hidden_bits, 0);
  }
}

TEST(CpuWeights, CandidatesOfWeightZeroCostNothing) {
  const char* patterns = "learned(global|sliding:64|causal_sliding:64)";
  const Call window = weighted_call(1024, patterns, 1, {0, 2, 1});
  const core::AttentionInputs inputs = window.inputs();
  for (const Isa isa : supported_isas()) {
    const Plan plan(window.problem, inputs, isa), training(window.problem, inputs, isa, true);
    const int64_t groups =
        (1024 + 127) / 128 * ((128 + plan.primitives.group_rows - 1) / plan.primitives.group_rows);
    for (const Plan* own : {&plan, &training}) {
      const Met met = met_by(*own, own->slices(0)[0]);
      EXPECT_LE(met.uniform + met.mixed, groups * 6);  // 129 + 7 keys
    }
  }
}

// One candidate that is left is the head itself: its classes, one weight for all, in training too.
TEST(CpuWeights, ADecidedHeadIsItsCandidate) {
  const char* patterns = "learned(global|sliding:64|strided:8)";
  const Call call = weighted_call(512, patterns, 2, {0, 0, 4, 0, 1e-39, 0});
  const core::AttentionInputs inputs = call.inputs();
  const Plan plan(call.problem, inputs, Isa::kPortable), training(call.problem, inputs, Isa::kPortable, true);
  ASSERT_EQ(plan.slices(0).size(), 9u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(plan.slices(0)[i].pattern, strided(8));
    EXPECT_EQ(plan.slices(0)[i].regions, nullptr);
    EXPECT_EQ(plan.slices(0)[i].log2_weight, 2.0f);
    EXPECT_EQ(training.slices(0)[i].keys.count, 64);
  }
  EXPECT_EQ(plan.slices(0)[8].keys.count, 0);  // sees nothing
  EXPECT_EQ(met_by(plan, plan.slices(0)[8]).uniform, 0);
  // Steps of 4 and 6 share classes of 2; another step, or first tokens, share none.
  const auto classes = [&](const char* list, const std::vector<double>& weights) {
    const Call own = weighted_call(480, list, 1, weights);
    const core::AttentionInputs arrays = own.inputs();
    return Plan(own.problem, arrays, Isa::kPortable).slices(0).size();
  };
  EXPECT_EQ(classes("learned(strided:4|causal_strided:6|global)", {1, 1, 0}), 2u);
  EXPECT_EQ(classes("learned(strided:4|every:4)", {1, 1}), 1u);
  EXPECT_EQ(classes("learned(strided:4|strided:4+first:1)", {1, 1}), 1u);
  EXPECT_EQ(classes("learned(strided:4|sliding:3)", {1, 1}), 1u);
}

TEST(CpuWeights, BlocksMeetTheQueriesThatChoseThem) {
  for (const char* patterns : {"dynamic:24:2", "causal_dynamic:24:2"}) {
    Call call = weighted_call(200, patterns, 1, {});
    call.problem.key_lengths = {190};
    call.problem.query_offset = {-10};
    const core::AttentionInputs inputs = call.inputs();
    const Plan plan(call.problem, inputs, Isa::kPortable);
    ChosenQueries chosen;
    chosen.find(plan, 0, 0, 30, 170, 1, 9);
    int64_t count = 0;
    for (int64_t block = 1; block < 9; ++block) {
      std::vector<int64_t> expected;
      for (int64_t token = 30; token < 170; ++token) {
        const double weight = call.block_weights.get(token * 9 + block);
        const bool reaches = block * 24 < 190 && (patterns[0] == 'd' || block * 24 <= token - 10);
        if (weight >= kSmallestWeight && reaches) expected.push_back(token);
      }
      const auto tokens = chosen.tokens(block);
      ASSERT_EQ(std::vector<int64_t>(tokens.begin(), tokens.end()), expected)
          << patterns << " block " << block;
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(chosen.weights(block)[i],
                  static_cast<float>(call.block_weights.get(expected[i] * 9 + block)));
      }
      count += static_cast<int64_t>(expected.size());
    }
    EXPECT_EQ(chosen.count(), count);
    EXPECT_EQ(keys_of_block(call.problem, 8).count, 8);
  }
}

bool same_bits_at(const Tensor& left, const Tensor& right, int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end; ++at) {
    const double a = left.get(at), b = right.get(at);
    if (std::memcmp(&a, &b, sizeof a) != 0) return false;
  }
  return true;
}

// Other choices of one query move it to other tiles, and its neighbours in them: no bit of another query
// changes, forward or backward.
TEST(CpuWeights, AQuerysChoicesReachNoOtherQuery) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Call call = weighted_call(300, "causal_dynamic:24:2,dynamic:24:2", 2, {});
    const Problem& p = call.problem;
    call.dtype = dtype;
    PhiloxStream random(5);
    fill_call(call, random, false, false, false, false);
    for (const Isa isa : supported_isas()) {
      const Results before = run_forward(call, isa, serial());
      const GradientResults back = run_backward(call, before, isa, serial());
      for (const int64_t query : {0, 77, 299}) {
        Call changed = call;
        for (int64_t h = 0; h < 2; ++h) {
          for (int64_t block = 0; block < p.key_blocks(); ++block) {
            const int64_t at = (h * p.queries + query) * p.key_blocks() + block;
            changed.block_weights.set(at, call.block_weights.get(at) > 0.1 ? 0.0 : 0.75);
          }
        }
        const Results after = run_forward(changed, isa, serial());
        const GradientResults back_after = run_backward(changed, after, isa, serial());
        for (int64_t row = 0; row < 2 * p.queries; ++row) {
          if (row % p.queries == query) continue;
          const auto same = [&](const Tensor& left, const Tensor& right, int64_t width) {
            return same_bits_at(left, right, row * width, (row + 1) * width);
          };
          ASSERT_TRUE(same(before.parts, after.parts, p.value_dim) && same(before.lse, after.lse, 1) &&
                      same(back.query, back_after.query, p.head_dim) &&
                      same(back.block_weights, back_after.block_weights, p.key_blocks()))
              << name_of(isa) << " query " << query << " reaches row " << row;
        }
      }
    }
  }
}

// All weight on one candidate: the fixed pattern, bit for bit, also while the gradients of the other weights
// are computed.
TEST(CpuWeights, ADecidedHeadComputesWhatTheFixedPatternDoes) {
  const std::vector<std::string> candidates{"global", "causal_sliding:20", "strided:8",
                                            "causal_chunked:50+first:3"};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (size_t one = 0; one < candidates.size(); ++one) {
      Call call = weighted_call(
          200,
          text("learned(", candidates[0], "|", candidates[1], "|", candidates[2], "|", candidates[3], ")")
              .c_str(),
          1, {});
      call.dtype = dtype;
      PhiloxStream random(7);
      fill_call(call, random, false, false, false, false);
      for (size_t m = 0; m < 4; ++m) call.mode_weights.set(static_cast<int64_t>(m), m == one ? 1.0 : 0.0);
      Call fixed = call;
      fixed.problem.patterns = {parse_pattern(candidates[one])};
      fixed.mode_weights = Tensor();
      for (const Isa isa : supported_isas()) {
        const Results own = run_forward(call, isa, serial()), expected = run_forward(fixed, isa, serial());
        const GradientResults back = run_backward(call, own, isa, serial()),
                              expected_back = run_backward(fixed, own, isa, serial());  // parts alike
        EXPECT_TRUE(own.out.bytes == expected.out.bytes && own.lse.bytes == expected.lse.bytes &&
                    back.query.bytes == expected_back.query.bytes &&
                    back.key.bytes == expected_back.key.bytes &&
                    back.value.bytes == expected_back.value.bytes)
            << name_of(isa) << " " << candidates[one];
      }
    }
  }
}

TEST(CpuWeights, PrimitivesShiftAndSumWhereBitsAreSet) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Isa isa : supported_isas()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const Primitives& prim = primitives(isa, dtype);
      std::vector<float> panel(3 * 40);
      for (size_t i = 0; i < panel.size(); ++i) panel[i] = static_cast<float>(i % 13) - 5.0f;
      const std::vector<float> before = panel;
      const uint32_t bits[] = {0x80000001u, 0u, 0x0ff0ff00u};
      const float values[] = {2.0f, 3.0f, -kInfinity};
      prim.shift(panel.data(), 40, 3, bits, values);
      float sums[] = {1.0f, 0.0f, 0.0f}, all[] = {0.0f, 0.0f, 0.0f};
      prim.sum_panel(before.data(), 40, 3, bits, sums);
      prim.sum_panel(before.data(), 40, 3, nullptr, all);
      for (int i = 0; i < 3; ++i) {
        float some = i == 0 ? 1.0f : 0.0f, whole = 0.0f;
        for (int c = 0; c < 40; ++c) {
          const bool set = c < 32 && (bits[i] >> c & 1u) != 0;
          EXPECT_EQ(panel[i * 40 + c], before[i * 40 + c] + (set ? values[i] : 0.0f));
          some += set ? before[i * 40 + c] : 0.0f;
          whole += c < 32 ? before[i * 40 + c] : 0.0f;
        }
        EXPECT_EQ(sums[i], some);  // small integers: exact in any order
        EXPECT_EQ(all[i], whole);
      }
    }
  }
}

// A bias a row and panel is the same as scores that have it added: equal for powers of two.
TEST(CpuWeights, BiasesAreAddedToScores) {
  for (const Isa isa : supported_isas()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const Primitives& prim = primitives(isa, dtype);
      for (const int64_t panel_step : {0, 1}) {
        const float bias[] = {4.0f, -2.0f, 0.0f, -16.0f};
        std::vector<float> plain(2 * 64), biased(2 * 64);
        for (size_t i = 0; i < plain.size(); ++i) {
          biased[i] = static_cast<float>(i * 7 % 32) / 4;
          plain[i] = biased[i] + bias[i / 64 + i % 64 / 32 * panel_step];
        }
        std::vector<float> largest[2], sum[2], output[2];
        std::vector<float>* scores[] = {&plain, &biased};
        for (int which = 0; which < 2; ++which) {
          largest[which] = {-std::numeric_limits<float>::infinity(), 1.0f};
          sum[which] = {0.0f, 2.0f};
          output[which].assign(32, 8.0f);
          SoftmaxStep step{.rows = 2,
                           .columns = 64,
                           .scores = scores[which]->data(),
                           .score_row = 64,
                           .log2_scale = 0.5f,
                           .largest = largest[which].data(),
                           .sum = sum[which].data(),
                           .output = output[which].data(),
                           .output_row = 16,
                           .output_columns = 16,
                           .keep = nullptr,
                           .keep_row = 0};
          if (which == 1) {
            step.bias = bias;
            step.bias_row = 1;
            step.bias_panel = panel_step;
          }
          prim.softmax(step);
        }
        EXPECT_EQ(largest[0], largest[1]);
        EXPECT_EQ(sum[0], sum[1]);
        EXPECT_EQ(output[0], output[1]);
        EXPECT_EQ(std::memcmp(plain.data(), biased.data(), 64 * sizeof(float) / (prim.pairs ? 2 : 1)), 0);
      }
    }
  }
}

}  // namespace
}  // namespace iha::cpu
