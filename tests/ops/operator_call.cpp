#include "tests/ops/operator_call.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "iha/core/error.h"

namespace iha::testing {
namespace {

at::Tensor leaf(const at::Tensor& tensor) {
  return tensor.detach().requires_grad_(true);
}

at::Tensor in_memory(const at::Tensor& x, Memory memory) {
  switch (memory) {
    case Memory::kTokenMajor:
      return x.transpose(1, 2).contiguous().transpose(1, 2);
    case Memory::kChannelsFirst:
      return x.transpose(2, 3).contiguous().transpose(2, 3);
    default:
      return x;
  }
}

}  // namespace

std::array<at::Tensor, ops::kInputCount> OperatorCall::inputs() const {
  std::array<at::Tensor, ops::kInputCount> result{query, key, value};
  int at = ops::kAlphaQ;
  for (const auto* tensor : {&options.alpha_q, &options.alpha_k, &options.alpha_v, &options.collapse,
                             &options.sinks, &options.mode_weights, &options.block_weights}) {
    if (*tensor) result[at] = **tensor;
    ++at;
  }
  return result;
}

Gradients gradients(const OperatorCall& call, const std::vector<at::Tensor>& outputs,
                    const std::vector<at::Tensor>& upstream) {
  std::vector<at::Tensor> present;
  for (const at::Tensor& input : call.inputs()) {
    if (input.defined()) present.push_back(input);
  }
  const auto found =
      torch::autograd::grad(outputs, present, upstream, std::nullopt, false, /*allow_unused=*/true);
  Gradients result;
  size_t next = 0;
  for (size_t input = 0; input < result.size(); ++input) {
    if (!call.inputs()[input].defined()) continue;
    result[input] = found[next].defined() ? found[next] : at::zeros_like(present[next]);
    ++next;
  }
  return result;
}

void round_to(Call& call, at::ScalarType dtype) {
  for (auto* values : {&call.query, &call.key, &call.value, &call.alpha_q, &call.alpha_k, &call.alpha_v,
                       &call.collapse, &call.sinks, &call.mode_weights, &call.block_weights, &call.grad_out,
                       &call.grad_parts, &call.grad_lse}) {
    const at::Tensor rounded = at::tensor(*values, at::kDouble).to(dtype).to(at::kDouble);
    values->assign(rounded.const_data_ptr<double>(), rounded.const_data_ptr<double>() + rounded.numel());
  }
}

at::Tensor tensor_of(const std::vector<double>& values, at::IntArrayRef shape, at::ScalarType dtype) {
  return at::tensor(values, at::kDouble).reshape(shape).to(dtype);
}

bool askable(const Call& call) {
  return call.problem.pseudo_heads == 1 || !call.alpha_q.empty() || !call.alpha_k.empty() ||
         !call.alpha_v.empty();
}

OperatorCall operator_call(const Call& call, at::ScalarType dtype, Memory memory) {
  const Problem& p = call.problem;
  const auto data = [&](const std::vector<double>& values, int64_t heads, int64_t tokens, int64_t width) {
    return leaf(in_memory(tensor_of(values, {p.batch, heads, tokens, width}, dtype), memory));
  };
  const auto optional = [&](const std::vector<double>& values,
                            at::IntArrayRef shape) -> std::optional<at::Tensor> {
    if (values.empty()) return std::nullopt;
    return leaf(tensor_of(values, shape, dtype));
  };
  const auto integers = [](const std::vector<int64_t>& values,
                           at::IntArrayRef shape) -> std::optional<at::Tensor> {
    if (values.empty()) return std::nullopt;
    return at::tensor(values, at::kLong).reshape(shape);
  };
  OperatorCall result;
  result.query = data(call.query, p.query_heads, p.queries, p.head_dim);
  result.key = data(call.key, p.key_heads, p.keys, p.head_dim);
  result.value = data(call.value, p.key_heads, p.keys, p.value_dim);
  AttentionOptions& options = result.options;
  options.patterns = p.patterns;
  options.alpha_q = optional(call.alpha_q, {p.query_heads, p.query_heads, p.pseudo_heads});
  options.alpha_k = optional(call.alpha_k, {p.key_heads, p.key_heads, p.pseudo_heads});
  options.alpha_v = optional(call.alpha_v, {p.key_heads, p.key_heads, p.pseudo_heads});
  options.collapse = p.collapse == CollapseKind::kGlobal
                         ? optional(call.collapse, {p.query_heads, p.query_heads, p.pseudo_heads})
                         : optional(call.collapse, {p.query_heads, p.pseudo_heads});
  options.layout = p.layout == Layout::kParallel ? "parallel" : "interleaved";
  options.order = p.order == Order::kToken ? "token" : "flat";
  options.rope = std::array{"none", "token", "virtual"}[static_cast<int>(p.rope.kind)];
  options.rope_theta = p.rope.theta;
  if (!p.rope.frequencies.empty()) options.rope_freqs = at::tensor(p.rope.frequencies, at::kDouble);
  options.rope_style = p.rope.style == RopeStyle::kAdjacent ? "adjacent" : "half";
  options.scale = p.scale;
  options.query_offset = integers(p.query_offset, {p.batch});
  options.key_lengths = integers(p.key_lengths, {p.batch});
  options.documents = integers(p.documents, {p.batch, p.keys});
  options.sinks = optional(call.sinks, {p.query_heads});
  options.mode_weights = optional(call.mode_weights, {p.query_heads, p.modes()});
  options.block_weights = optional(call.block_weights, {p.batch, p.query_heads, p.queries, p.key_blocks()});
  options.dropout_p = p.dropout_p;
  options.dropout_seed = static_cast<int64_t>(p.dropout_seed);
  return result;
}

OperatorCall random_operator_call(const Sizes& sizes, const std::string& patterns, at::ScalarType dtype,
                                  int64_t seed) {
  at::manual_seed(seed);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  OperatorCall call;
  call.query =
      leaf(at::randn({sizes.batch, sizes.query_heads, sizes.queries, sizes.head_dim}, options).to(dtype));
  call.key = leaf(at::randn({sizes.batch, sizes.key_heads, sizes.keys, sizes.head_dim}, options).to(dtype));
  call.value =
      leaf(at::randn({sizes.batch, sizes.key_heads, sizes.keys, sizes.value_dim}, options).to(dtype));
  call.options.patterns = parse_patterns(patterns);
  Problem problem;
  problem.patterns = call.options.patterns.expand(sizes.query_heads);
  problem.keys = sizes.keys;
  const auto weights = [&](at::IntArrayRef shape) {
    return leaf((at::rand(shape, options) + 0.2).to(dtype));
  };
  if (problem.modes() > 0) call.options.mode_weights = weights({sizes.query_heads, problem.modes()});
  if (problem.block() > 0) {
    call.options.block_weights =
        weights({sizes.batch, sizes.query_heads, sizes.queries, problem.key_blocks()});
  }
  return call;
}

void add_mixing(OperatorCall& call, int64_t pseudo_heads, bool global_collapse) {
  const int64_t heads = call.query.size(1), key_heads = call.key.size(1);
  const auto options = call.query.options().requires_grad(false);
  call.options.alpha_q = leaf(at::randn({heads, heads, pseudo_heads}, options));
  call.options.alpha_k = leaf(at::randn({key_heads, key_heads, pseudo_heads}, options));
  call.options.alpha_v = leaf(at::randn({key_heads, key_heads, pseudo_heads}, options));
  if (global_collapse) call.options.collapse = leaf(at::randn({heads, heads, pseudo_heads}, options));
}

bool same_bits(const at::Tensor& left, const at::Tensor& right) {
  return left.sizes() == right.sizes() && left.scalar_type() == right.scalar_type() &&
         at::logical_or(left == right, at::logical_and(left.isnan(), right.isnan())).all().item<bool>();
}

std::string value_error(const std::function<void()>& run) {
  try {
    run();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "expected c10::ValueError";
  return {};
}

}  // namespace iha::testing
