// Gradients of `composed`, block by block: weights are computed again from lse, nothing of the size of the
// scores is kept. With weights w = exp(s - lse), where s includes the bias of weighted pairs, dropout factors
// m, upstream gradients g of the parts o and e of lse:
//   dw = m (g v^T)    delta = g . o - e    ds = w (dw - delta)    dv += (w m)^T g    dq = ds k    dk += ds^T
//   q
// and for the sink, a score without a value: dsink = - sum over rows that see a key of exp(sink - lse) delta.
#include <ATen/ATen.h>

#include <limits>

#include "iha/ops/composed.h"
#include "iha/ops/composed_parts.h"
#include "iha/ops/linear_maps.h"
#include "iha/ops/pair_weights.h"

namespace iha::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Everything in the products' layout.
struct Rows {
  at::Tensor grad_out;  // [B, Hq', Nq, s, dv]
  at::Tensor delta;     // [B, Hq', Nq, s, 1]
  at::Tensor lse;       // the same; +inf for -inf, which makes the weights 0
};
struct CoreGradients {
  at::Tensor query, key, value;
  at::Tensor sinks;  // [B, Hq', Nq, s, 1], a term a row; undefined without sinks
};

struct Core {
  const PseudoHeads& pseudo;
  const Rows& rows;
  const at::Tensor& sinks;
  const Problem& problem;
  const Blocks& plan;
  PairWeights& pair_weights;
};

void block_backward(const Core& core, const HeadGroup& group, const Block& block,
                    const CoreGradients& gradients) {
  const int64_t batch = core.problem.batch, heads = static_cast<int64_t>(group.query_heads.size());
  const BlockWeights pair_weights = core.pair_weights.of(group, block);
  const BlockMask& mask = pair_weights.mask;
  const auto queries = [&](const at::Tensor& x) {
    return take_rows(take_heads(x, 1, group.query_heads), block.queries, group.fold);
  };
  const auto keys = [&](const at::Tensor& x) {
    return take_keys(take_heads(x, 1, group.key_heads), block.keys);
  };
  // Upstream gradients of rows that see nothing go nowhere, whatever they hold.
  const auto of_seeing = [&](const at::Tensor& x) {
    const at::Tensor rows = queries(x);
    if (!mask.empty.defined()) return rows;
    const int64_t count = rows.size(0) * rows.size(1) / (batch * heads);
    return rows.view({batch, heads, count, rows.size(2)}).masked_fill(mask.empty, 0).view(rows.sizes());
  };
  const at::Tensor query = queries(core.pseudo.query), key = keys(core.pseudo.key);
  const at::Tensor grad_out = of_seeing(core.rows.grad_out), delta = of_seeing(core.rows.delta);
  const at::Tensor lse = queries(core.rows.lse);

  const BlockScores weights = block_scores(query, key, batch, heads);
  if (pair_weights.weights.defined()) weights.by_head.add_(pair_weights.weights.log());
  weights.scores.sub_(lse).exp_();
  if (mask.hidden.defined()) weights.by_head.masked_fill_(mask.hidden, 0);
  const BlockScores grad = block_scores(grad_out, keys(core.pseudo.value), batch, heads);
  at::Tensor dropped = weights.scores;
  if (core.problem.dropout_p > 0) {
    const at::Tensor factors = core.plan.dropout(group, block, query.options());
    dropped = (weights.by_head * factors).view(weights.scores.sizes());
    grad.by_head.mul_(factors);
  }
  const at::Tensor hidden = product_mask(mask.hidden, weights);
  const at::Tensor hidden_from_keys = hidden.defined() ? hidden.transpose(1, 2) : hidden;
  add_to_keys(gradients.value, group.key_heads, block.keys,
              masked_product(dropped.transpose(1, 2), grad_out, hidden_from_keys));
  grad.scores.sub_(delta).mul_(weights.scores);
  if (mask.hidden.defined()) grad.by_head.masked_fill_(mask.hidden, 0);
  core.pair_weights.add_gradient(group, block, pair_weights, grad.by_head);
  put_rows(gradients.query, group.query_heads, block.queries, masked_product(grad.scores, key, hidden));
  add_to_keys(gradients.key, group.key_heads, block.keys,
              masked_product(grad.scores.transpose(1, 2), query, hidden_from_keys));
  if (core.sinks.defined()) {
    const at::Tensor own = take_heads(core.sinks, 0, group.query_heads).view({1, heads, 1, 1});
    const std::vector<int64_t> shape{batch, heads, lse.numel() / (batch * heads), 1};
    const at::Tensor sink_weights = (own - lse.view(shape)).exp_();
    put_rows(gradients.sinks, group.query_heads, block.queries, sink_weights.mul_(delta.view(shape)).neg_());
  }
}

CoreGradients core_backward(const PseudoHeads& pseudo, const Rows& rows, const at::Tensor& sinks,
                            const Problem& problem, const Blocks& plan, PairWeights& pair_weights) {
  CoreGradients gradients{at::zeros_like(pseudo.query, at::MemoryFormat::Contiguous),
                          at::zeros_like(pseudo.key, at::MemoryFormat::Contiguous),
                          at::zeros_like(pseudo.value, at::MemoryFormat::Contiguous),
                          sinks.defined() ? at::zeros_like(rows.lse) : at::Tensor()};
  if (rows.lse.numel() == 0) return gradients;
  const Core core{pseudo, rows, sinks, problem, plan, pair_weights};
  for (const HeadGroup& group : plan.groups()) {
    for (const Block& block : plan.blocks(group)) {
      if (block.key_count() > 0) block_backward(core, group, block, gradients);
    }
  }
  return gradients;
}

// The gradient of the parts [B, Hq, Nq, P, dv], and of the collapse weights.
std::pair<at::Tensor, at::Tensor> parts_gradients(const Arguments& arguments, const Problem& problem,
                                                  const Upstream& upstream, const at::Tensor& parts,
                                                  bool want_weights) {
  at::Tensor grad_parts, grad_weights;
  if (upstream.grad_out.defined()) {
    std::tie(grad_parts, grad_weights) =
        collapse_backward(upstream.grad_out.to(parts.scalar_type()).contiguous(), parts,
                          widened(arguments, kCollapse), problem, want_weights);
  }
  if (upstream.grad_parts.defined()) {
    const at::Tensor own = upstream.grad_parts.to(parts.scalar_type());
    grad_parts = grad_parts.defined() ? grad_parts + own : own;
  }
  if (!grad_parts.defined()) grad_parts = at::zeros_like(parts);
  if (want_weights && !grad_weights.defined()) grad_weights = at::zeros_like(widened(arguments, kCollapse));
  return {grad_parts, grad_weights};
}

Rows make_rows(const Problem& problem, const Upstream& upstream, const at::Tensor& parts,
               const at::Tensor& grad_parts) {
  Rows rows;
  rows.grad_out = from_parts(grad_parts, problem).contiguous();
  at::Tensor delta = ordered_sum(grad_parts * parts, -1);
  if (upstream.grad_lse.defined()) delta = delta - upstream.grad_lse;
  rows.delta = from_parts(delta.unsqueeze(-1), problem).contiguous();
  rows.lse = from_parts(upstream.lse.unsqueeze(-1), problem);
  rows.lse = at::where(rows.lse == -kInfinity, kInfinity, rows.lse);
  return rows;
}

}  // namespace

Inputs composed_backward(const Arguments& arguments, const Problem& problem, const Upstream& upstream,
                         const Wanted& wanted) {
  const PseudoHeads pseudo = make_pseudo_heads(arguments, problem);
  const at::Tensor sinks = sinks_of_heads(arguments, problem);
  const at::Tensor parts = upstream.parts.to(pseudo.query.scalar_type())
                               .reshape({problem.batch, problem.query_heads, problem.queries,
                                         problem.pseudo_heads, problem.value_dim});
  Inputs result;
  const auto [grad_parts, grad_collapse] =
      parts_gradients(arguments, problem, upstream, parts, wanted[kCollapse]);
  const Blocks plan(problem);
  PairWeights pair_weights(arguments, problem, plan);
  const CoreGradients core = core_backward(pseudo, make_rows(problem, upstream, parts, grad_parts), sinks,
                                           problem, plan, pair_weights);

  const at::Tensor query = turn(core.query.mul(problem.scale), offsets_of(problem), problem, -1);
  const at::Tensor key = turn(core.key, {0}, problem, -1);
  const auto unmix = [&](const at::Tensor& grad, Input input, Input alpha) {
    const MixGradients own = mix_backward(grad, widened(arguments, input), widened(arguments, alpha), problem,
                                          wanted[input], wanted[alpha]);
    if (wanted[input]) result[input] = token_major(own.x, arguments.inputs[input].scalar_type());
    result[alpha] = own.alpha;
  };
  unmix(query, kQuery, kAlphaQ);
  unmix(key, kKey, kAlphaK);
  unmix(core.value, kValue, kAlphaV);
  if (wanted[kCollapse]) result[kCollapse] = grad_collapse;
  if (wanted[kSinks]) {
    const at::Tensor by_head = to_parts(core.sinks, problem).transpose(0, 1);  // [Hq, B, Nq, P, 1]
    result[kSinks] = ordered_sum(
        by_head.reshape({problem.query_heads, by_head.numel() / std::max<int64_t>(1, problem.query_heads)}),
        1);
  }
  if (wanted[kModeWeights]) result[kModeWeights] = pair_weights.mode_gradient();
  if (wanted[kBlockWeights]) result[kBlockWeights] = pair_weights.block_gradient();
  for (int input = kAlphaQ; input < kInputCount; ++input) {
    if (result[input].defined())
      result[input] = result[input].to(arguments.inputs[input].scalar_type()).contiguous();
  }
  return result;
}

}  // namespace iha::ops
