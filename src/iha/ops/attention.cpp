// The public operators: arguments in the order of the schema, refusals of what has no implementation yet,
// checks that need shapes only, the seed of dropout, and then the inner operators. They decompose under
// autograd and tracing.
#include "iha/ops/attention.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <limits>

#include "iha/ops/arguments.h"
#include "iha/ops/inner.h"

namespace iha {
namespace ops {
namespace {

// Arguments that the schema has and nothing implements: named where they are given.
void refuse(StackReader& reader, std::string_view name, std::string_view what) {
  TORCH_CHECK_VALUE(reader.next().isNone(), name, ": ", what,
                    " is given, expected None (it is not supported yet)");
}

// From layout to block_weights.
void read_shared(StackReader& reader, std::string_view name, Arguments& arguments) {
  arguments.layout = reader.string();
  arguments.order = reader.string();
  arguments.rope = reader.string();
  arguments.rope_theta = reader.next().toDouble();
  arguments.rope_freqs = reader.tensor();
  arguments.rope_style = reader.string();
  arguments.scale = reader.next().toOptional<double>();
  arguments.query_offset = reader.tensor();
  refuse(reader, name, "key_offset");
  arguments.key_lengths = reader.tensor();
  arguments.documents = reader.tensor();
  refuse(reader, name, "prefix_lengths");
  arguments.inputs[kSinks] = reader.tensor();
  refuse(reader, name, "q_norm");
  refuse(reader, name, "k_norm");
  reader.next();  // norm_eps, read only with norms
  const double softcap = reader.next().toDouble();
  TORCH_CHECK_VALUE(softcap == 0, name, ": softcap is ", softcap, ", expected 0 (it is not supported yet)");
  refuse(reader, name, "bias");
  arguments.inputs[kModeWeights] = reader.tensor();
  arguments.inputs[kBlockWeights] = reader.tensor();
}

// The seed as a tensor that inner operators read: what the caller gave, else drawn by a torch operation,
// which compiled programs repeat at every call.
at::Tensor make_seed(const c10::IValue& seed) {
  const auto options = at::TensorOptions().dtype(at::kLong);
  if (!seed.isNone()) return at::full({}, c10::Scalar(seed.toSymInt()), options);
  return at::randint(std::numeric_limits<int64_t>::max(), {}, options);
}

Arguments read_attention(const torch::jit::Stack& stack, size_t count, std::string_view name) {
  StackReader reader(stack, count);
  Arguments arguments;
  for (const Input input : {kQuery, kKey, kValue}) arguments.inputs[input] = reader.tensor();
  arguments.patterns = reader.string();
  for (const Input input : {kAlphaQ, kAlphaK, kAlphaV, kCollapse}) arguments.inputs[input] = reader.tensor();
  read_shared(reader, name, arguments);
  arguments.dropout_p = reader.next().toDouble();
  check_arguments(arguments, name);
  if (arguments.dropout_p > 0) arguments.dropout_seed = make_seed(reader.next());
  return arguments;
}

void attention_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const Arguments arguments = read_attention(*stack, count, "iha::attention");
  torch::jit::drop(*stack, count);
  const bool differentiate =
      at::GradMode::is_enabled() &&
      std::any_of(arguments.inputs.begin(), arguments.inputs.end(),
                  [](const at::Tensor& x) { return x.defined() && x.requires_grad(); });
  torch::jit::push(*stack, call_forward(arguments, {true, differentiate && arguments.needs_parts()}).out);
}

void attention_with_lse_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const Arguments arguments = read_attention(*stack, count, "iha::attention_with_lse");
  torch::jit::drop(*stack, count);
  Results results = call_forward(arguments, {false, true});
  torch::jit::push(*stack, std::move(results.parts), std::move(results.lse));
}

void attention_weights_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr std::string_view kName = "iha::attention_weights";
  const size_t count = op.schema().arguments().size();
  StackReader reader(*stack, count);
  Arguments arguments;
  for (const Input input : {kQuery, kKey}) arguments.inputs[input] = reader.tensor();
  const at::Tensor rows = reader.tensor();
  arguments.patterns = reader.string();
  for (const Input input : {kAlphaQ, kAlphaK}) arguments.inputs[input] = reader.tensor();
  read_shared(reader, kName, arguments);
  check_arguments(arguments, kName);
  TORCH_CHECK_VALUE(rows.scalar_type() == at::kLong && rows.dim() == 1, kName, ": rows is ",
                    rows.scalar_type(), " ", rows.sym_sizes(), ", expected Long (int64) [rows]");
  for (at::Tensor& input : arguments.inputs) {
    if (input.defined()) input = input.detach();
  }
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, call_weights(arguments, rows));
}

c10::OperatorHandle find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

c10::IValue value_of(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? c10::IValue(*tensor) : c10::IValue();
}

// The other direction of read_shared.
void push_shared(torch::jit::Stack& stack, const AttentionOptions& options) {
  torch::jit::push(stack, options.layout, options.order, options.rope, options.rope_theta,
                   value_of(options.rope_freqs), options.rope_style, options.scale,
                   value_of(options.query_offset), c10::IValue(), value_of(options.key_lengths),
                   value_of(options.documents), c10::IValue(), value_of(options.sinks), c10::IValue(),
                   c10::IValue(), 1e-6, 0.0, c10::IValue(), value_of(options.mode_weights),
                   value_of(options.block_weights));
}

torch::jit::Stack attention_stack(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  const AttentionOptions& options) {
  torch::jit::Stack stack{query, key, value, to_text(options.patterns)};
  for (const auto* weights : {&options.alpha_q, &options.alpha_k, &options.alpha_v, &options.collapse}) {
    stack.push_back(value_of(*weights));
  }
  push_shared(stack, options);
  torch::jit::push(stack, options.dropout_p, options.dropout_seed);
  return stack;
}

}  // namespace

TORCH_LIBRARY_IMPL(iha, CompositeImplicitAutograd, m) {
  m.impl("attention", torch::CppFunction::makeFromBoxedFunction<&attention_kernel>());
  m.impl("attention_with_lse", torch::CppFunction::makeFromBoxedFunction<&attention_with_lse_kernel>());
  m.impl("attention_weights", torch::CppFunction::makeFromBoxedFunction<&attention_weights_kernel>());
}

}  // namespace ops

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionOptions& options) {
  static const c10::OperatorHandle op = ops::find("iha::attention");
  torch::jit::Stack stack = ops::attention_stack(query, key, value, options);
  op.callBoxed(stack);
  return stack[0].toTensor();
}

std::tuple<at::Tensor, at::Tensor> attention_with_lse(const at::Tensor& query, const at::Tensor& key,
                                                      const at::Tensor& value,
                                                      const AttentionOptions& options) {
  static const c10::OperatorHandle op = ops::find("iha::attention_with_lse");
  torch::jit::Stack stack = ops::attention_stack(query, key, value, options);
  op.callBoxed(stack);
  return {stack[0].toTensor(), stack[1].toTensor()};
}

at::Tensor attention_weights(const at::Tensor& query, const at::Tensor& key, const at::Tensor& rows,
                             const AttentionOptions& options) {
  static const c10::OperatorHandle op = ops::find("iha::attention_weights");
  torch::jit::Stack stack{query,
                          key,
                          rows,
                          to_text(options.patterns),
                          ops::value_of(options.alpha_q),
                          ops::value_of(options.alpha_k)};
  ops::push_shared(stack, options);
  op.callBoxed(stack);
  return stack[0].toTensor();
}

}  // namespace iha
