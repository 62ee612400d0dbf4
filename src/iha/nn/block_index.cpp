#include "iha/nn/block_index.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "iha/kernels/choose_blocks.h"
#include "iha/nn/heads.h"
#include "iha/ops/engine.h"
#include "iha/ops/linear_maps.h"

namespace iha::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr auto kName = "iha::nn::BlockIndex: ";

// The same bits on any number of threads; what is 0 in `left` keeps `right` out, NaN included.
at::Tensor sparse_product(const at::Tensor& left, const at::Tensor& right) {
  return ops::masked_product(left, right, left == 0);
}

// What Projection's backward pass computes. It has no derivative, and with it the whole index: gradients of
// choices end here.
struct ProjectionGradients : torch::autograd::Function<ProjectionGradients> {
  static variable_list forward(AutogradContext*, const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& grad) {
    const at::Tensor rows = x.flatten(0, 1).unsqueeze(0), grad_rows = grad.flatten(0, 1).unsqueeze(0);
    return {ops::product(grad_rows, weight.unsqueeze(0)).view_as(x),
            sparse_product(grad_rows.transpose(1, 2), rows).squeeze(0)};
  }
  static variable_list backward(AutogradContext*, const variable_list&) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, kName,
                                "asked for the gradient of a gradient, expected first derivatives only "
                                "(double backward is not supported)");
  }
};

// x [B, N, D] W^T, W [O, D].
struct Projection : torch::autograd::Function<Projection> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return ops::product(x.flatten(0, 1).unsqueeze(0), weight.t().unsqueeze(0))
        .view({x.size(0), x.size(1), weight.size(0)});
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    return ProjectionGradients::apply(saved[0], saved[1], grads[0]);
  }
};

struct Kept : torch::CustomClassHolder {
  explicit Kept(std::shared_ptr<BlockChoice> choice) : choice(std::move(choice)) {}
  std::shared_ptr<BlockChoice> choice;
};

// Gradients of query and key.
variable_list choice_gradients(const at::Tensor& query, const at::Tensor& key, const at::Tensor& weights,
                               const at::Tensor& grad, const BlockChoice& choice) {
  const auto on_cpu = [](const at::Tensor& x) { return x.detach().to(at::kCPU).contiguous(); };
  const at::Tensor own_query = on_cpu(query), own_key = on_cpu(key), own_weights = on_cpu(weights),
                   own_grad = on_cpu(grad).to(own_weights.scalar_type());
  const at::Tensor grad_query = at::empty_like(own_query), grad_key = at::empty_like(own_key);
  AT_DISPATCH_FLOATING_TYPES(own_weights.scalar_type(), "choose_blocks_backward", [&] {
    choose_blocks_backward<scalar_t>(
        choice,
        {query.size(3), own_weights.const_data_ptr<scalar_t>(), own_grad.const_data_ptr<scalar_t>(),
         own_query.const_data_ptr<scalar_t>(), own_key.const_data_ptr<scalar_t>(),
         grad_query.mutable_data_ptr<scalar_t>(), grad_key.mutable_data_ptr<scalar_t>()},
        ops::torch_threads());
  });
  return {grad_query.to(query.device()), grad_key.to(key.device())};
}

// Index queries [B, E, R, dim] and mean index keys [B, E, blocks, dim] -> weights [B, H, Nq, blocks].
struct Choice : torch::autograd::Function<Choice> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                            const std::shared_ptr<BlockChoice>& choice) {
    const at::Tensor rows = query.flatten(0, 1), means = key.flatten(0, 1);
    const at::Tensor scores = ops::product(rows, means.transpose(1, 2)).to(at::kCPU);
    const auto heads = static_cast<int64_t>(choice->patterns.size());
    const at::Tensor weights =
        at::empty({choice->batch, heads, choice->queries, key.size(2)}, scores.options());
    AT_DISPATCH_FLOATING_TYPES(scores.scalar_type(), "choose_blocks", [&] {
      choose_blocks(*choice, scores.const_data_ptr<scalar_t>(), weights.mutable_data_ptr<scalar_t>(),
                    ops::torch_threads());
    });
    const at::Tensor result = weights.to(query.device());
    context->save_for_backward({query, key, result});
    context->saved_data["choice"] = c10::IValue::make_capsule(c10::make_intrusive<Kept>(choice));
    return result;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const auto& choice = static_cast<const Kept&>(*context->saved_data["choice"].toCapsule()).choice;
    const variable_list results = choice_gradients(saved[0], saved[1], saved[2], grads[0], *choice);
    return {results[0], results[1], at::Tensor()};
  }
  static std::vector<int64_t> dynamic_heads(const std::vector<Pattern>& patterns) {
    std::vector<int64_t> heads;
    for (size_t head = 0; head < patterns.size(); ++head) {
      if (patterns[head].dynamic()) heads.push_back(static_cast<int64_t>(head));
    }
    return heads;
  }
};

// Means of the existing tokens in blocks of `size`, [B, ceil(N / size), D]; 0 where none exists. lengths
// int64 [B] or undefined.
torch::Tensor block_means(const torch::Tensor& x, int64_t size, const torch::Tensor& lengths) {
  const int64_t tokens = x.size(1), blocks = (tokens + size - 1) / size;
  const auto starts = torch::arange(blocks, torch::TensorOptions(torch::kInt64).device(x.device())) * size;
  torch::Tensor own = x, ends = torch::full({1, 1}, tokens, starts.options());
  if (lengths.defined()) {
    ends = lengths.to(x.device()).unsqueeze(1);
    const auto places = torch::arange(tokens, starts.options()).unsqueeze(0);
    own = x.masked_fill(places.ge(ends).unsqueeze(-1), 0);
  }
  const auto counts = (ends - starts).clamp(1, size).unsqueeze(-1);
  if (tokens % size != 0) own = at::constant_pad_nd(own, {0, 0, 0, blocks * size - tokens});
  return own.unflatten(1, {blocks, size}).sum(2) / counts;
}

// int64 of one element or `count`; `what` for the error.
std::vector<int64_t> values_of(const torch::Tensor& tensor, int64_t count, const char* what) {
  TORCH_CHECK_VALUE(tensor.scalar_type() == torch::kInt64 && tensor.dim() <= 1 &&
                        (tensor.numel() == 1 || tensor.numel() == count),
                    kName, what, " ", tensor.sizes(), " of ", tensor.scalar_type(), ", expected [", count,
                    "] of int64");
  const auto host = tensor.to(torch::kCPU, torch::kInt64).expand({count}).contiguous();
  return {host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + count};
}

torch::Tensor accumulated(const torch::Tensor& x) {
  return x.to(ops::accumulate_type(x.scalar_type()));
}

}  // namespace

BlockIndexImpl::BlockIndexImpl(BlockIndexOptions options) : options(std::move(options)) {
  const auto& given = this->options;
  TORCH_CHECK_VALUE(!Choice::dynamic_heads(given.heads()).empty(), kName,
                    "no dynamic head, expected at least one");
  TORCH_CHECK_VALUE(given.dim() >= 1 && given.tile() >= 1, kName, "index_dim = ", given.dim(),
                    " and index_tile = ", given.tile(), ", expected at least 1 of each");
  const bool causal =
      std::ranges::any_of(given.heads(), [](const Pattern& p) { return p.dynamic() && p.causal(); });
  TORCH_CHECK_VALUE(given.tile() == 1 || !causal, kName, "index_tile = ", given.tile(),
                    " with a causal dynamic head, expected 1: the mean of a tile knows later tokens");
  reset();  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall): as torch's own modules
}

void BlockIndexImpl::reset() {
  const auto out = static_cast<int64_t>(Choice::dynamic_heads(options.heads()).size()) * options.dim();
  const auto maps = torch::nn::LinearOptions(options.d_model(), out).bias(false);
  query = register_module("query", torch::nn::Linear(maps));
  key = register_module("key", torch::nn::Linear(maps));
}

void BlockIndexImpl::reset_parameters() {
  query->reset_parameters();
  key->reset_parameters();
}

void BlockIndexImpl::pretty_print(std::ostream& stream) const {
  stream << "iha::nn::BlockIndex(heads=" << Choice::dynamic_heads(options.heads()).size()
         << ", dim=" << options.dim() << ", tile=" << options.tile() << ")";
}

torch::Tensor BlockIndexImpl::forward(const torch::Tensor& x, const torch::Tensor& context,
                                      const torch::Tensor& query_offset, const torch::Tensor& key_lengths) {
  const int64_t batch = x.size(0);
  TORCH_CHECK_VALUE(context.size(0) == batch, kName, "a context of ", context.size(0), " sequences for ",
                    batch, ", expected as many");
  auto choice = std::make_shared<BlockChoice>();
  choice->batch = batch;
  choice->queries = x.size(1);
  choice->keys = context.size(1);
  choice->tile = options.tile();
  choice->patterns = options.heads();
  choice->query_offset = query_offset.defined() ? values_of(query_offset, batch, "query_offset")
                                                : std::vector<int64_t>(batch, choice->keys - choice->queries);
  if (key_lengths.defined()) choice->key_lengths = values_of(key_lengths, batch, "key_lengths");
  for (const int64_t length : choice->key_lengths) {
    TORCH_CHECK_VALUE(length >= 0 && length <= choice->keys, kName, "a key length of ", length,
                      ", expected 0..", choice->keys);
  }

  // In self-attention what lies past a length is padding, also among the queries of a tile.
  const bool own_keys = x.is_same(context);
  const int64_t size = dynamic_block(options.heads(), kName);
  const auto rows = choice->tile == 1
                        ? x
                        : block_means(accumulated(x), choice->tile, own_keys ? key_lengths : torch::Tensor());
  const auto heads_of = [&](const torch::Tensor& input, torch::nn::Linear& map) {
    const auto projected = Projection::apply(accumulated(input), accumulated(map->weight));
    return split_heads(projected, projected.size(2) / options.dim(), options.dim());
  };
  return Choice::apply(heads_of(rows, query),
                       heads_of(block_means(accumulated(context), size, key_lengths), key), choice);
}

}  // namespace iha::nn
