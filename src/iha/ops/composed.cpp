#include "iha/ops/composed.h"

#include <ATen/ATen.h>

#include <limits>

#include "iha/ops/composed_parts.h"
#include "iha/ops/linear_maps.h"
#include "iha/ops/pair_weights.h"

namespace iha::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The softmax of one block, in place: scores, to which ln w is added, become weights times l, with
//   m = max(max_j s_j, sink)   w_j = exp(s_j - m)   l = sum_j w_j + exp(sink - m)   lse = m + log l.
struct Softmax {
  at::Tensor total;  // l [B, heads, rows, 1]; 0 where nothing is seen
  at::Tensor lse;    // the same shape
};

Softmax softmax_in_place(const at::Tensor& scores, const BlockWeights& weights, const at::Tensor& sinks) {
  if (weights.weights.defined()) scores.add_(weights.weights.log());
  if (weights.mask.hidden.defined()) scores.masked_fill_(weights.mask.hidden, -kInfinity);
  at::Tensor largest = scores.amax(-1, true);
  if (sinks.defined()) largest = at::maximum(largest, sinks);
  largest.masked_fill_(largest == -kInfinity, 0);
  scores.sub_(largest).exp_();
  Softmax result;
  result.total = ordered_sum(scores, -1).unsqueeze(-1);
  if (sinks.defined()) result.total = result.total + (sinks - largest).exp();
  result.lse = result.total.log().add_(largest);
  return result;
}

// Parts and lse in the products' layout.
struct Core {
  at::Tensor out;  // [B, Hq', Nq, s, dv]
  at::Tensor lse;  // [B, Hq', Nq, s, 1]
};

// The answer of queries that see nothing, everywhere.
Core empty_core(const PseudoHeads& pseudo, const at::Tensor& sinks) {
  const at::Tensor& query = pseudo.query;
  std::vector<int64_t> shape = query.sizes().vec();
  shape.back() = pseudo.value.size(-1);
  Core core{at::zeros(shape, query.options()), {}};
  shape.back() = 1;
  core.lse = at::full(shape, -kInfinity, query.options());
  if (sinks.defined()) core.lse.copy_(sinks.view({1, -1, 1, 1, 1}));
  return core;
}

void attend(const PseudoHeads& pseudo, const at::Tensor& sinks, const Problem& problem, const Blocks& plan,
            const PairWeights& pair_weights, const HeadGroup& group, const Core& core) {
  const int64_t batch = problem.batch, heads = static_cast<int64_t>(group.query_heads.size());
  const at::Tensor query = take_heads(pseudo.query, 1, group.query_heads),
                   key = take_heads(pseudo.key, 1, group.key_heads),
                   value = take_heads(pseudo.value, 1, group.key_heads);
  const at::Tensor own_sinks =
      sinks.defined() ? take_heads(sinks, 0, group.query_heads).view({1, heads, 1, 1}) : sinks;
  for (const Block& block : plan.blocks(group)) {
    if (block.key_count() == 0) continue;
    const BlockScores scores =
        block_scores(take_rows(query, block.queries, group.fold), take_keys(key, block.keys), batch, heads);
    const BlockWeights weights = pair_weights.of(group, block);
    const Softmax softmax = softmax_in_place(scores.by_head, weights, own_sinks);
    if (problem.dropout_p > 0) scores.by_head.mul_(plan.dropout(group, block, query.options()));
    const at::Tensor sums = masked_product(scores.scores, take_keys(value, block.keys),
                                           product_mask(weights.mask.hidden, scores));
    const at::Tensor total = at::where(softmax.total == 0, 1, softmax.total);
    put_rows(core.out, group.query_heads, block.queries,
             sums.view({batch, heads, total.size(2), sums.size(-1)}).div_(total));
    put_rows(core.lse, group.query_heads, block.queries, softmax.lse);
  }
}

}  // namespace

Results composed_forward(const Arguments& arguments, const Problem& problem, Want want) {
  const at::ScalarType dtype = arguments.query().scalar_type();
  const PseudoHeads pseudo = make_pseudo_heads(arguments, problem);
  const at::Tensor sinks = sinks_of_heads(arguments, problem);
  const Core core = empty_core(pseudo, sinks);
  if (core.lse.numel() > 0) {
    const Blocks plan(problem);
    const PairWeights pair_weights(arguments, problem, plan);
    for (const HeadGroup& group : plan.groups()) {
      attend(pseudo, sinks, problem, plan, pair_weights, group, core);
    }
  }
  const at::Tensor parts = to_parts(core.out, problem);
  Results results;
  results.out = want.out ? token_major(collapse(parts, widened(arguments, kCollapse), problem), dtype)
                         : at::empty({0}, arguments.query().options());
  const at::ScalarType type = parts_type(arguments, want);
  results.parts =
      want.parts ? parts.to(type).contiguous() : at::empty({0}, arguments.query().options().dtype(type));
  results.lse = to_parts(core.lse, problem).squeeze(-1).contiguous();
  return results;
}

at::Tensor composed_weights(const Arguments& arguments, const Problem& problem, const at::Tensor& rows) {
  const PseudoHeads pseudo = make_pseudo_heads(arguments, problem);
  const at::Tensor sinks = sinks_of_heads(arguments, problem);
  const Blocks plan(problem);
  const PairWeights pair_weights(arguments, problem, plan);
  const Heads& sizes = plan.heads();
  const int64_t s = sizes.pseudo_tokens, count = rows.numel(), keys = problem.keys;
  const at::Tensor result =
      at::zeros({problem.batch, sizes.query_heads, count, s, keys, s}, pseudo.query.options());
  const at::Tensor host_rows = rows.to(at::kCPU).contiguous();
  for (const HeadGroup& group : plan.groups()) {
    if (result.numel() == 0) break;
    const auto heads = static_cast<int64_t>(group.query_heads.size());
    const at::Tensor query = take_heads(pseudo.query, 1, group.query_heads),
                     key = take_heads(pseudo.key, 1, group.key_heads);
    for (int64_t r = 0; r < count; ++r) {
      const Block block{{host_rows.const_data_ptr<int64_t>()[r], 1, 1}, {{0, 1, keys}}};
      const BlockScores scores = block_scores(take_rows(query, block.queries, group.fold),
                                              take_keys(key, block.keys), problem.batch, heads);
      const Softmax softmax = softmax_in_place(
          scores.by_head, pair_weights.of(group, block),
          sinks.defined() ? take_heads(sinks, 0, group.query_heads).view({1, heads, 1, 1}) : sinks);
      scores.by_head.div_(at::where(softmax.total == 0, 1, softmax.total));
      put_rows(result.flatten(4), group.query_heads, {r, 1, 1}, scores.by_head);
    }
  }
  at::Tensor weights = result;
  if (problem.layout == Layout::kParallel) {
    // Only pseudo-keys r = p have weights: onto the diagonal of the two pseudo dimensions.
    const int64_t pseudo_heads = problem.pseudo_heads;
    weights = at::diag_embed(result.view({problem.batch, pseudo_heads, problem.query_heads, count, keys})
                                 .permute({0, 2, 3, 4, 1}))
                  .transpose(3, 4);
  }
  return weights.to(arguments.query().scalar_type()).contiguous();
}

}  // namespace iha::ops
