#include "iha/ops/pair_weights.h"

#include <ATen/ATen.h>

#include "iha/ops/composed_parts.h"
#include "iha/ops/linear_maps.h"

namespace iha::ops {
namespace {

at::Tensor counted(const Arguments& arguments, Input input) {
  const at::Tensor weights = widened(arguments, input);
  return weights.defined() ? weights.masked_fill(weights < kSmallestWeight, 0) : weights;
}

// Tokens of a slice as pseudo-tokens: [..., count] -> [..., count * s].
at::Tensor repeated(const at::Tensor& by_token, int64_t pseudo, int64_t dim) {
  return pseudo == 1 ? by_token : by_token.repeat_interleave(pseudo, dim);
}

}  // namespace

PairWeights::PairWeights(const Arguments& arguments, const Problem& problem, const Blocks& plan)
    : problem_(problem), plan_(plan), device_(arguments.query().device()) {
  const int64_t copies = plan.heads().query_heads / std::max<int64_t>(1, problem.query_heads);
  if (problem.modes() > 0) {
    modes_ = counted(arguments, kModeWeights).repeat({copies, 1});
    mode_sums_ = at::zeros_like(modes_);
  }
  if (problem.block() > 0) {
    blocks_ = counted(arguments, kBlockWeights);
    if (copies > 1) blocks_ = blocks_.repeat({1, copies, 1, 1});
    block_sums_ = at::zeros_like(blocks_, at::MemoryFormat::Contiguous);
  }
}

at::Tensor PairWeights::heads_of(const at::Tensor& by_head, int64_t dim, const HeadGroup& group) const {
  return take_heads(by_head, dim, group.query_heads);
}

BlockWeights PairWeights::of(const HeadGroup& group, const Block& block) const {
  const Pattern& pattern = group.pattern;
  if (!pattern.learned() && !pattern.dynamic()) return {plan_.mask(group, block, device_), {}, {}};
  const int64_t pseudo = plan_.heads().pseudo_tokens, heads = static_cast<int64_t>(group.query_heads.size());
  const std::vector<int64_t> shape{1, heads, block.queries.count * pseudo, block.key_count() * pseudo};
  BlockWeights own;
  at::Tensor hidden;
  if (pattern.learned()) {
    const at::Tensor weights = heads_of(modes_, 0, group);
    own.weights = at::zeros(shape, weights.options());
    for (size_t m = 0; m < pattern.candidates.size(); ++m) {
      const HeadGroup alone{pattern.candidates[m], group.query_heads, group.key_heads, group.fold};
      const at::Tensor unseen = plan_.mask(alone, block, device_).hidden;
      const at::Tensor weight = weights.select(1, static_cast<int64_t>(m)).view({1, heads, 1, 1});
      own.shown.push_back(unseen.defined() ? unseen.logical_not() : unseen);
      own.weights = own.weights + (unseen.defined() ? weight.masked_fill(unseen, 0) : weight);
    }
    hidden = own.weights == 0;
  } else {
    const Slice& keys = block.keys.front();  // patterns without steps and first tokens reach one range
    const int64_t first = keys.begin / pattern.block, last = (keys.begin + keys.count - 1) / pattern.block;
    const at::Tensor rows = heads_of(blocks_, 1, group)
                                .slice(2, block.queries.begin, block.queries.begin + block.queries.count)
                                .slice(3, first, last + 1);
    const at::Tensor columns =
        rows.repeat_interleave(pattern.block, 3).narrow(3, keys.begin - first * pattern.block, keys.count);
    own.weights = repeated(repeated(columns, pseudo, 3), pseudo, 2);
    hidden = own.weights == 0;
    own.mask = plan_.mask(group, block, device_);
    if (own.mask.hidden.defined()) hidden = at::logical_or(hidden, own.mask.hidden);
  }
  if (hidden.any().item<bool>()) {
    own.mask.hidden = hidden;
    own.mask.empty = hidden.all(-1, true);
  }
  return own;
}

void PairWeights::add_gradient(const HeadGroup& group, const Block& block, const BlockWeights& own,
                               const at::Tensor& bias) {
  if (!own.weights.defined()) return;
  const at::Tensor gradient = bias / at::where(own.weights == 0, 1, own.weights);
  const int64_t batch = bias.size(0), heads = bias.size(1), pseudo = plan_.heads().pseudo_tokens;
  const at::Tensor index = at::tensor(group.query_heads, at::kLong).to(device_);
  if (group.pattern.learned()) {
    for (size_t m = 0; m < own.shown.size(); ++m) {
      const at::Tensor seen = own.shown[m].defined() ? gradient * own.shown[m] : gradient;
      const at::Tensor by_head = seen.transpose(0, 1).reshape({heads, -1});
      mode_sums_.select(1, static_cast<int64_t>(m)).index_add_(0, index, ordered_sum(by_head, 1));
    }
    return;
  }
  const int64_t size = group.pattern.block, queries = block.queries.count;
  const Slice& keys = block.keys.front();
  const int64_t first = keys.begin / size, before = keys.begin - first * size;
  const int64_t count = (before + keys.count + size - 1) / size, after = count * size - before - keys.count;
  const at::Tensor by_key = gradient.view({batch, heads, queries, pseudo, keys.count, pseudo}).sum({3, 5});
  const at::Tensor by_block =
      at::constant_pad_nd(by_key, {before, after}).view({batch, heads, queries, count, size}).sum(4);
  block_sums_.slice(2, block.queries.begin, block.queries.begin + queries)
      .slice(3, first, first + count)
      .index_add_(1, index, by_block);
}

at::Tensor PairWeights::mode_gradient() const {
  if (!modes_.defined()) return {};
  return mode_sums_.view({-1, problem_.query_heads, modes_.size(1)}).sum(0);
}

at::Tensor PairWeights::block_gradient() const {
  if (!blocks_.defined()) return {};
  const int64_t heads = problem_.query_heads, copies = blocks_.size(1) / std::max<int64_t>(1, heads);
  return block_sums_.view({blocks_.size(0), copies, heads, blocks_.size(2), blocks_.size(3)}).sum(1);
}

}  // namespace iha::ops
