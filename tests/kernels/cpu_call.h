// One call of the operator with its data, for tests of the engine: options drawn from a seed so that a list
// of seeds is a grid over all of them, inputs in any dtype and memory order, and the oracle's answer for
// exactly those inputs.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "iha/core/dtype.h"
#include "iha/core/error.h"
#include "iha/core/philox.h"
#include "iha/kernels/attention.h"
#include "iha/kernels/cpu/engine.h"
#include "iha/kernels/reference/reference.h"
#include "iha/patterns/parse.h"
#include "tests/kernels/calls.h"

namespace iha::cpu {

// A dense tensor of any dtype whose axes lie in memory in any order.
struct Tensor {
  std::vector<int64_t> sizes;
  std::array<int64_t, 5> strides{};
  DType dtype = DType::kFloat32;
  std::vector<unsigned char> bytes;

  Tensor() = default;
  // `order`: axes from the outermost in memory to the innermost; empty: as they are. A gap is left after each
  // row.
  Tensor(std::vector<int64_t> shape, DType type, std::vector<int> order = {})
      : sizes(std::move(shape)), dtype(type) {
    if (order.empty()) {
      for (int i = 0; i < static_cast<int>(sizes.size()); ++i) order.push_back(i);
    }
    int64_t size = 1;
    for (int i = static_cast<int>(order.size()) - 1; i >= 0; --i) {
      strides[order[i]] = size;
      size *= std::max<int64_t>(1, sizes[order[i]]);
    }
    bytes.assign(size * size_of(dtype), 0xff);  // NaN in every type: what is not written is seen
  }
  bool present() const { return !sizes.empty(); }
  int64_t count() const {
    int64_t count = present() ? 1 : 0;
    for (const int64_t size : sizes) count *= size;
    return count;
  }
  int64_t offset(int64_t number) const {  // of the element with this number in row-major order
    int64_t at = 0;
    for (int i = static_cast<int>(sizes.size()) - 1; i >= 0; --i) {
      at += number % sizes[i] * strides[i];
      number /= sizes[i];
    }
    return at;
  }
  double get(int64_t number) const { return load(bytes.data(), dtype, offset(number)); }
  void set(int64_t number, double value) { store(bytes.data(), dtype, offset(number), value); }
  core::Array array() const { return {present() ? bytes.data() : nullptr, dtype, strides}; }
  core::MutableArray target() { return {present() ? bytes.data() : nullptr, dtype, strides}; }
  std::vector<double> values() const {
    std::vector<double> all(count());
    for (int64_t i = 0; i < count(); ++i) all[i] = get(i);
    return all;
  }
};

using iha::testing::data_or_null;

struct Call {
  Problem problem;
  DType dtype = DType::kFloat32;
  std::string name;
  Tensor query, key, value, alpha_q, alpha_k, alpha_v, collapse, sinks, mode_weights, block_weights;
  Tensor grad_out, grad_parts, grad_lse;

  core::AttentionInputs inputs() const {
    return {query.array(),   key.array(),      value.array(), alpha_q.array(),      alpha_k.array(),
            alpha_v.array(), collapse.array(), sinks.array(), mode_weights.array(), block_weights.array()};
  }
};

struct Results {
  Tensor out, parts, lse;
};
struct GradientResults {
  Tensor query, key, value, alpha_q, alpha_k, alpha_v, collapse, sinks, mode_weights, block_weights;
};

// Parts as the operator keeps them: float32 where gradients are small differences of large sums.
inline Results make_results(const Call& call) {
  const Problem& p = call.problem;
  const bool wide = call.sinks.present() || call.mode_weights.present() || call.block_weights.present();
  return {Tensor({p.batch, p.query_heads, p.queries, p.value_dim}, call.dtype, {0, 2, 1, 3}),
          Tensor({p.batch, p.query_heads, p.queries, p.pseudo_heads, p.value_dim},
                 wide ? DType::kFloat32 : call.dtype),
          Tensor({p.batch, p.query_heads, p.queries, p.pseudo_heads}, DType::kFloat32)};
}

inline Results run_forward(const Call& call, Isa isa, const ParallelFor& parallel) {
  Results results = make_results(call);
  forward(call.problem, call.inputs(), {results.out.target(), results.parts.target(), results.lse.target()},
          parallel, isa);
  return results;
}

inline GradientResults run_backward(const Call& call, const Results& results, Isa isa,
                                    const ParallelFor& parallel) {
  GradientResults g;
  const auto like = [](const Tensor& of) { return of.present() ? Tensor(of.sizes, of.dtype) : Tensor(); };
  g.query = Tensor(call.query.sizes, call.dtype, {0, 2, 1, 3});
  g.key = Tensor(call.key.sizes, call.dtype, {0, 2, 1, 3});
  g.value = like(call.value);
  g.alpha_q = like(call.alpha_q);
  g.alpha_k = like(call.alpha_k);
  g.alpha_v = like(call.alpha_v);
  g.collapse = like(call.collapse);
  g.sinks = like(call.sinks);
  g.mode_weights = like(call.mode_weights);
  g.block_weights = like(call.block_weights);
  backward(call.problem, call.inputs(),
           {results.parts.array(), results.lse.array(), call.grad_out.array(), call.grad_parts.array(),
            call.grad_lse.array()},
           {g.query.target(), g.key.target(), g.value.target(), g.alpha_q.target(), g.alpha_k.target(),
            g.alpha_v.target(), g.collapse.target(), g.sinks.target(), g.mode_weights.target(),
            g.block_weights.target()},
           parallel, isa);
  return g;
}

// The inputs widened to float64, kept alive for the oracle.
struct Widened {
  explicit Widened(const Call& c)
      : query(c.query.values()),
        key(c.key.values()),
        value(c.value.values()),
        alpha_q(c.alpha_q.values()),
        alpha_k(c.alpha_k.values()),
        alpha_v(c.alpha_v.values()),
        collapse(c.collapse.values()),
        sinks(c.sinks.values()),
        mode_weights(c.mode_weights.values()),
        block_weights(c.block_weights.values()),
        grad_out(c.grad_out.values()),
        grad_parts(c.grad_parts.values()),
        grad_lse(c.grad_lse.values()) {}
  reference::Inputs inputs() const { return iha::testing::inputs_of(*this); }
  reference::Upstream upstream() const {
    return {data_or_null(grad_out), data_or_null(grad_parts), data_or_null(grad_lse)};
  }
  std::vector<double> query, key, value, alpha_q, alpha_k, alpha_v, collapse, sinks, mode_weights,
      block_weights, grad_out, grad_parts, grad_lse;
};

// Weights of learned and dynamic heads, some of them 0 or too small to count.
inline void fill_weights(Tensor& tensor, PhiloxStream& random, int64_t zero_in) {
  for (int64_t i = 0; i < tensor.count(); ++i) {
    const bool zero = random.next_below(zero_in) == 0;
    tensor.set(i, !zero ? 0.3 + random.next_double() : random.next_below(3) == 0 ? 1e-39 : 0.0);
  }
}

inline void fill_normal(Tensor& tensor, PhiloxStream& random, double deviation) {
  for (int64_t i = 0; i < tensor.count(); ++i) tensor.set(i, deviation * random.next_normal());
}

// Gives a problem random data. `random` also decides memory order and which upstream gradients there are.
inline void fill_call(Call& call, PhiloxStream& random, bool mixes_q, bool mixes_k, bool mixes_v,
                      bool sinks) {
  const Problem& p = call.problem;
  const std::vector<std::vector<int>> orders{{}, {0, 2, 1, 3}, {0, 1, 3, 2}, {3, 1, 0, 2}};
  const auto order = [&] {
    return orders[random.next_below(8) < 6 ? random.next_below(2) : random.next_below(4)];
  };
  call.query = Tensor({p.batch, p.query_heads, p.queries, p.head_dim}, call.dtype, order());
  call.key = Tensor({p.batch, p.key_heads, p.keys, p.head_dim}, call.dtype, order());
  call.value = Tensor({p.batch, p.key_heads, p.keys, p.value_dim}, call.dtype, order());
  for (Tensor* tensor : {&call.query, &call.key, &call.value}) fill_normal(*tensor, random, 1.0);
  const auto alpha = [&](bool present, int64_t heads) {
    if (!present) return Tensor();
    Tensor tensor({heads, heads, p.pseudo_heads}, random.next_below(2) == 0 ? call.dtype : DType::kFloat32);
    fill_normal(tensor, random, 1.0 / std::sqrt(static_cast<double>(heads)));
    return tensor;
  };
  call.alpha_q = alpha(mixes_q, p.query_heads);
  call.alpha_k = alpha(mixes_k, p.key_heads);
  call.alpha_v = alpha(mixes_v, p.key_heads);
  if (p.collapse != CollapseKind::kMean) {
    call.collapse = p.collapse == CollapseKind::kPerHead
                        ? Tensor({p.query_heads, p.pseudo_heads}, DType::kFloat32)
                        : Tensor({p.query_heads, p.query_heads, p.pseudo_heads}, DType::kFloat32);
    fill_normal(call.collapse, random, 1.0 / std::sqrt(static_cast<double>(p.query_heads * p.pseudo_heads)));
  }
  if (sinks) {
    call.sinks = Tensor({p.query_heads}, DType::kFloat32);
    fill_normal(call.sinks, random, 2.0);
  }
  const auto weights = [&](std::vector<int64_t> sizes, int64_t zero_in) {
    Tensor tensor(std::move(sizes), random.next_below(2) == 0 ? call.dtype : DType::kFloat32);
    fill_weights(tensor, random, zero_in);
    return tensor;
  };
  if (p.modes() > 0) call.mode_weights = weights({p.query_heads, p.modes()}, 3);
  if (p.block() > 0) call.block_weights = weights({p.batch, p.query_heads, p.queries, p.key_blocks()}, 2);
  call.grad_out = Tensor({p.batch, p.query_heads, p.queries, p.value_dim}, call.dtype, order());
  fill_normal(call.grad_out, random, 1.0);
  if (random.next_below(3) == 0) {
    call.grad_parts = Tensor({p.batch, p.query_heads, p.queries, p.pseudo_heads, p.value_dim}, call.dtype);
    fill_normal(call.grad_parts, random, 0.5);
  }
  if (random.next_below(3) == 0) {
    call.grad_lse = Tensor({p.batch, p.query_heads, p.queries, p.pseudo_heads}, DType::kFloat32);
    fill_normal(call.grad_lse, random, 0.5);
  }
}

// Whether pseudo-query (i, pseudo) of head h sees pseudo-key (j, r), weights considered.
inline bool weighs(const Call& call, const Visibility& visible, int64_t b, int64_t h, int64_t i,
                   int64_t pseudo, int64_t j, int64_t r) {
  const Problem& p = call.problem;
  const uint32_t shown = visible.candidates(b, h, i, pseudo, j, r);
  if (p.patterns[h].dynamic()) {
    const int64_t row = (b * p.query_heads + h) * p.queries + i;
    return shown != 0 && call.block_weights.get(row * p.key_blocks() + j / p.block()) >= kSmallestWeight;
  }
  if (!p.patterns[h].learned()) return shown != 0;
  bool any = false;
  for (int64_t m = 0; m < p.modes(); ++m) {
    any |= (shown >> m & 1u) != 0 && call.mode_weights.get(h * p.modes() + m) >= kSmallestWeight;
  }
  return any;
}

// Learned and dynamic patterns for most heads.
inline void draw_weighted_patterns(uint64_t seed, Problem& p) {
  PhiloxStream random(seed, 78);
  const int64_t blocks[] = {1, 5, 16, 24, 32, 40, 64, 200};
  const int64_t block = blocks[random.next_below(8)];
  const std::vector<std::string> modes{"learned(global|sliding:9|strided:3)",
                                       "learned(causal|causal_sliding:20)",
                                       "learned(strided:2|causal_strided:4)",
                                       "learned(every:2|causal_every:6|chunked:16)",
                                       "learned(causal_sliding:4+first:3|global|window:2:40|every:3)",
                                       "learned(sliding:12|strided:5+first:2|causal_chunked:20)",
                                       "learned(causal)",
                                       text("dynamic:", block, ":1"),
                                       text("causal_dynamic:", block, ":2")};
  for (Pattern& pattern : p.patterns) {
    const int64_t mode = random.next_below(static_cast<int64_t>(modes.size()) + 2);
    if (mode < static_cast<int64_t>(modes.size())) pattern = parse_pattern(modes[mode]);
  }
}

// Every option of the operator, drawn from the seed; with heads that choose where `weighted`.
inline Call draw_call(uint64_t seed, DType dtype, bool weighted = false) {
  PhiloxStream random(seed, 77);
  const auto pick = [&](std::vector<int64_t> from) {
    return from[random.next_below(static_cast<int64_t>(from.size()))];
  };
  Call call;
  call.dtype = dtype;
  Problem& p = call.problem;
  p.batch = pick({1, 1, 2, 3});
  p.key_heads = pick({1, 2, 3});
  p.query_heads = p.key_heads * pick({1, 1, 2, 3});
  p.pseudo_heads = pick({1, 1, 2, 3, 4});
  p.keys = pick({0, 1, 7, 31, 32, 33, 40, 64, 65, 97, 130});
  p.queries = random.next_below(2) == 0 ? p.keys : pick({0, 1, 2, 5, 8, 9, 33, 70});
  p.head_dim = pick({2, 6, 8, 16, 24, 32, 40, 64, 80});
  p.value_dim = pick({1, 5, 8, 16, 24, 32, 48, 64, p.head_dim});
  p.layout = random.next_below(3) == 0 ? Layout::kParallel : Layout::kInterleaved;
  p.order = random.next_below(2) == 0 ? Order::kFlat : Order::kToken;
  p.collapse = static_cast<CollapseKind>(random.next_below(3));
  p.scale = pick({0, 1, 2, 3, 4, 5}) == 0 ? -0.2 : 1.0 / std::sqrt(static_cast<double>(p.head_dim));
  p.rope.kind = static_cast<RopeKind>(random.next_below(3));
  p.rope.style = static_cast<RopeStyle>(random.next_below(2));
  if (p.rope.kind != RopeKind::kNone && random.next_below(3) == 0) p.rope.frequencies = {0.7, 0.01};
  if (p.rope.frequencies.size() * 2 > static_cast<size_t>(p.head_dim)) p.rope.frequencies.pop_back();
  const std::vector<std::string> modes{"global",
                                       "causal",
                                       "sliding:0",
                                       "sliding:3",
                                       "causal_sliding:20",
                                       "window:5:2",
                                       "strided:2",
                                       "causal_strided:3",
                                       "every:2",
                                       "causal_every:3",
                                       "chunked:16",
                                       "causal_chunked:9",
                                       "strided:2+first:2",
                                       "causal_sliding:4+first:3",
                                       "chunked:8+first:2",
                                       "every:50",
                                       "sliding:1000"};
  for (int64_t h = 0; h < p.query_heads; ++h) {
    const bool again = h > 0 && random.next_below(2) == 0;  // neighbours of one pattern share a tile
    p.patterns.push_back(again ? p.patterns.back()
                               : parse_pattern(modes[random.next_below(static_cast<int64_t>(modes.size()))]));
  }
  if (weighted) draw_weighted_patterns(seed, p);
  const bool documents = p.queries <= p.keys && p.keys > 0 && random.next_below(4) == 0;
  if (documents) {
    for (int64_t i = 0; i < p.batch * p.keys; ++i) {
      // Mostly runs, sometimes numbers that return.
      p.documents.push_back(i % p.keys == 0 || random.next_below(12) == 0 ? random.next_below(3)
                                                                          : p.documents.back());
    }
  }
  if (random.next_below(3) == 0) {
    for (int64_t b = 0; b < p.batch; ++b) p.key_lengths.push_back(random.next_below(p.keys + 1));
  }
  for (int64_t b = 0; b < p.batch; ++b) {
    const bool moves = !documents && random.next_below(3) == 0;
    p.query_offset.push_back(p.keys - p.queries + (moves ? random.next_below(21) - 10 : 0));
  }
  if (random.next_below(4) == 0) {
    p.dropout_p = 0.3;
    p.dropout_seed = 1000 + seed;
  }
  const bool mixes = random.next_below(2) == 0;
  const auto mixed = [&] { return mixes && random.next_below(4) > 0; };
  const bool q = mixed(), k = mixed(), v = mixed();
  fill_call(call, random, q, k, v, random.next_below(4) == 0);
  call.name = text("seed ", seed, ": B ", p.batch, " heads ", p.query_heads, "/", p.key_heads, " N ",
                   p.queries, "/", p.keys, " d ", p.head_dim, "/", p.value_dim, " P ", p.pseudo_heads,
                   p.layout == Layout::kParallel ? " parallel" : " interleaved",
                   p.order == Order::kFlat ? " flat" : " token", " patterns ",
                   to_text(PatternList(p.patterns)), " collapse ", static_cast<int>(p.collapse), " rope ",
                   static_cast<int>(p.rope.kind), " alpha ", q, k, v, " documents ", documents, " lengths ",
                   !p.key_lengths.empty(), " dropout ", p.dropout_p, " sinks ", call.sinks.present(),
                   " gparts ", call.grad_parts.present(), " glse ", call.grad_lse.present());
  return call;
}

}  // namespace iha::cpu
