#include "tests/kernels/calls.h"

#include <cmath>

#include "iha/core/error.h"
#include "iha/patterns/parse.h"

namespace iha::testing {
namespace {

std::vector<double> normal(PhiloxStream& stream, int64_t count) {
  std::vector<double> values(count);
  for (double& value : values) value = stream.next_normal();
  return values;
}

Pattern random_pattern(PhiloxStream& stream, int64_t tokens) {
  const int64_t size = stream.next_below(tokens + 2), other = stream.next_below(tokens + 2);
  const std::vector<Pattern> bases = {global(),
                                      causal(),
                                      sliding(size),
                                      causal_sliding(size),
                                      window(size, other),
                                      strided(size + 1),
                                      causal_strided(size + 1),
                                      every(size + 1),
                                      causal_every(size + 1),
                                      chunked(size + 1),
                                      causal_chunked(size + 1)};
  const Pattern base = bases[stream.next_below(static_cast<int64_t>(bases.size()))];
  return stream.next_below(3) == 0 ? base.with_first(stream.next_below(4)) : base;
}

// Some calls have heads that choose.
void choose(uint64_t seed, int64_t tokens, std::vector<Pattern>& patterns) {
  PhiloxStream stream(seed, 3);
  if (stream.next_below(2) == 0) return;
  const int64_t block = 1 + stream.next_below(tokens);
  for (Pattern& pattern : patterns) {
    const int64_t kind = stream.next_below(5);
    if (kind == 0) pattern = dynamic(block, 1);
    if (kind == 1) pattern = causal_dynamic(block, 1);
    if (kind < 2 || kind == 4) continue;
    std::vector<Pattern> candidates{pattern};
    for (int64_t m = stream.next_below(4); m > 0; --m) candidates.push_back(random_pattern(stream, tokens));
    pattern = learned(candidates);
  }
}

std::vector<double> positive(PhiloxStream& stream, int64_t count) {
  std::vector<double> values(count);
  for (double& value : values) value = 0.2 + stream.next_double();
  return values;
}

void draw_rope(PhiloxStream& stream, Problem& problem) {
  problem.rope.kind = static_cast<RopeKind>(stream.next_below(3));
  problem.rope.style = static_cast<RopeStyle>(stream.next_below(2));
  problem.rope.theta = 50;
  if (problem.rope.kind == RopeKind::kNone) return;
  const bool partial = problem.head_dim % 2 == 1 || stream.next_below(3) == 0;
  if (partial && problem.head_dim >= 2) {
    for (int64_t c = 0; c <= stream.next_below(problem.head_dim / 2); ++c) {
      problem.rope.frequencies.push_back(stream.next_normal());
    }
  } else if (partial) {
    problem.rope.kind = RopeKind::kNone;
  }
}

// Who exists: everything, lengths with an offset a sequence, or documents.
void draw_scope(PhiloxStream& stream, Problem& problem) {
  const int64_t kind = stream.next_below(4), queries = problem.queries, keys = problem.keys;
  for (int64_t b = 0; b < problem.batch && kind == 1; ++b) {
    problem.query_offset[b] = stream.next_below(2 * keys + queries + 1) - queries;
    problem.key_lengths.push_back(stream.next_below(keys + 1));
  }
  if (kind != 2 || queries > keys) return;
  for (int64_t b = 0; b < problem.batch; ++b) problem.query_offset[b] = stream.next_below(keys - queries + 1);
  for (int64_t n = 0; n < problem.batch * keys; ++n) problem.documents.push_back(stream.next_below(3) - 1);
}

}  // namespace

Problem make_problem(const Shape& shape, const std::vector<Pattern>& patterns) {
  Problem problem;
  problem.batch = shape.batch;
  problem.query_heads = shape.query_heads;
  problem.key_heads = shape.key_heads;
  problem.queries = shape.queries;
  problem.keys = shape.keys;
  problem.head_dim = shape.head_dim;
  problem.value_dim = shape.value_dim;
  problem.pseudo_heads = shape.pseudo_heads;
  for (int64_t h = 0; h < shape.query_heads; ++h) problem.patterns.push_back(patterns[h % patterns.size()]);
  problem.scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(shape.head_dim, 1)));
  problem.query_offset.assign(shape.batch, shape.keys - shape.queries);
  return problem;
}

Call::Call(Problem of, unsigned present, uint64_t seed) : problem(std::move(of)) {
  PhiloxStream stream(seed, 1);
  const int64_t batch = problem.batch, heads = problem.query_heads, key_heads = problem.key_heads;
  const int64_t pseudo_heads = problem.pseudo_heads, rows = batch * heads * problem.queries;
  query = normal(stream, rows * problem.head_dim);
  key = normal(stream, batch * key_heads * problem.keys * problem.head_dim);
  value = normal(stream, batch * key_heads * problem.keys * problem.value_dim);
  if (present & kAlphaQ) alpha_q = normal(stream, heads * heads * pseudo_heads);
  if (present & kAlphaK) alpha_k = normal(stream, key_heads * key_heads * pseudo_heads);
  if (present & kAlphaV) alpha_v = normal(stream, key_heads * key_heads * pseudo_heads);
  if (present & kSinks) sinks = normal(stream, heads);
  mode_weights = positive(stream, heads * problem.modes());
  block_weights = positive(stream, rows * problem.key_blocks());
  if (problem.collapse == CollapseKind::kPerHead) collapse = normal(stream, heads * pseudo_heads);
  if (problem.collapse == CollapseKind::kGlobal) collapse = normal(stream, heads * heads * pseudo_heads);
  grad_out = normal(stream, rows * problem.value_dim);
  grad_parts = normal(stream, rows * pseudo_heads * problem.value_dim);
  grad_lse = normal(stream, rows * pseudo_heads);
}

reference::Upstream Call::upstream() const {
  return {grad_out.data(), grad_parts.data(), grad_lse.data()};
}

Call random_call(uint64_t seed, int64_t most_tokens) {
  PhiloxStream stream(seed);
  const auto upto = [&](int64_t most) { return 1 + stream.next_below(most); };
  Shape shape;
  shape.batch = upto(2);
  shape.key_heads = upto(2);
  shape.query_heads = shape.key_heads * upto(2);
  shape.queries = upto(most_tokens);
  shape.keys = upto(most_tokens);
  shape.head_dim = upto(6);
  shape.value_dim = upto(5);
  shape.pseudo_heads = upto(3);
  std::vector<Pattern> patterns;
  for (int64_t h = 0; h < shape.query_heads; ++h) patterns.push_back(random_pattern(stream, most_tokens));
  choose(seed, most_tokens, patterns);
  Problem problem = make_problem(shape, patterns);
  problem.layout = static_cast<Layout>(stream.next_below(2));
  problem.order = static_cast<Order>(stream.next_below(2));
  problem.collapse = static_cast<CollapseKind>(stream.next_below(3));
  draw_rope(stream, problem);
  draw_scope(stream, problem);
  if (stream.next_below(3) == 0) problem.dropout_p = stream.next_double();
  problem.dropout_seed = seed;
  return Call(std::move(problem), static_cast<unsigned>(stream.next_below(16)), seed);
}

void hide_some(Call& call, uint64_t seed) {
  PhiloxStream stream(seed, 2);
  for (auto* weights : {&call.mode_weights, &call.block_weights}) {
    for (double& weight : *weights) {
      if (stream.next_below(3) == 0) weight = stream.next_below(4) == 0 ? 1e-38 : 0;
    }
  }
}

bool weighs(const Call& call, const Visibility& visible, int64_t b, int64_t h, int64_t i, int64_t p,
            int64_t j, int64_t r) {
  const Problem& problem = call.problem;
  const Pattern& pattern = problem.patterns[h];
  if (pattern.dynamic()) {
    const int64_t row = (b * problem.query_heads + h) * problem.queries + i;
    const double weight = call.block_weights[row * problem.key_blocks() + j / problem.block()];
    return visible(b, h, i, p, j, r) && weight > 2e-38;
  }
  const uint32_t shown = visible.candidates(b, h, i, p, j, r);
  if (!pattern.learned()) return shown != 0;
  bool any = false;
  for (int64_t m = 0; m < problem.modes(); ++m) {
    any = any || ((shown >> m & 1u) != 0 && call.mode_weights[h * problem.modes() + m] > 2e-38);
  }
  return any;
}

std::string describe(const Problem& problem) {
  std::string patterns;
  for (const Pattern& pattern : problem.patterns) {
    if (pattern.learned() || pattern.dynamic()) {
      patterns += text(" [", to_text(pattern), "]");
      continue;
    }
    patterns += text(" [", pattern.left, " ", pattern.right, " step ", static_cast<int>(pattern.step), " ",
                     pattern.every, " chunk ", pattern.chunk, " first ", pattern.first, "]");
  }
  return text(
      "B ", problem.batch, " Hq ", problem.query_heads, " Hkv ", problem.key_heads, " Nq ", problem.queries,
      " Nk ", problem.keys, " d ", problem.head_dim, " dv ", problem.value_dim, " P ", problem.pseudo_heads,
      " layout ", static_cast<int>(problem.layout), " order ", static_cast<int>(problem.order), " rope ",
      static_cast<int>(problem.rope.kind), "/", static_cast<int>(problem.rope.style), "/",
      problem.rope.frequencies.size(), " collapse ", static_cast<int>(problem.collapse), " offset ",
      problem.query_offset.empty() ? 0 : problem.query_offset[0], " lengths ", problem.key_lengths.size(),
      " documents ", problem.documents.size(), " dropout ", problem.dropout_p, " patterns", patterns);
}

}  // namespace iha::testing
