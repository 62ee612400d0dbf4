// Cases through the operator, the oracle and the layers: see case_engine.h.
#include "case_engine.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <map>
#include <utility>
#include <vector>

#include "iha/core/error.h"
#include "iha/kernels/reference/reference.h"
#include "iha/nn/averaged_pseudo_heads.h"
#include "iha/nn/mixed_mode_attention.h"
#include "iha/ops/attention.h"

namespace iha::app {

namespace {

using Tensors = std::map<std::string, torch::Tensor>;

torch::Tensor to_tensor(const io::DoubleArray& array, at::ScalarType dtype) {
  return torch::tensor(array.values, at::kDouble).reshape(array.shape).to(dtype);
}

torch::Tensor to_tensor(const std::vector<int64_t>& values) {
  return torch::tensor(values, at::kLong);
}

io::DoubleArray to_array(const torch::Tensor& tensor) {
  const torch::Tensor values = tensor.detach().to(at::kDouble).contiguous();
  const double* data = values.const_data_ptr<double>();
  return {tensor.sizes().vec(), {data, data + values.numel()}};
}

at::ScalarType torch_type(DType dtype) {
  return dtype == DType::kBFloat16 ? at::kBFloat16 : at::kFloat;
}

bool is_upstream(const std::string& name) {
  return name.rfind("grad_", 0) == 0;
}

// ---- The operator ----

std::optional<torch::Tensor> optional_tensor(const Tensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? std::nullopt : std::optional(found->second);
}

// What the case leaves to a default is left to the operator's default too.
AttentionOptions operator_options(const io::AttentionCase& given, const Tensors& inputs) {
  const Problem& problem = given.problem;
  AttentionOptions options;
  options.patterns = problem.patterns;
  options.alpha_q = optional_tensor(inputs, "alpha_q");
  options.alpha_k = optional_tensor(inputs, "alpha_k");
  options.alpha_v = optional_tensor(inputs, "alpha_v");
  options.collapse = optional_tensor(inputs, "collapse");
  options.sinks = optional_tensor(inputs, "sinks");
  options.mode_weights = optional_tensor(inputs, "mode_weights");
  options.block_weights = optional_tensor(inputs, "block_weights");
  options.layout = problem.layout == Layout::kParallel ? "parallel" : "interleaved";
  options.order = problem.order == Order::kToken ? "token" : "flat";
  options.rope_style = problem.rope.style == RopeStyle::kAdjacent ? "adjacent" : "half";
  if (problem.rope.kind == RopeKind::kToken) options.rope = "token";
  if (problem.rope.kind == RopeKind::kVirtual) options.rope = "virtual";
  options.rope_theta = problem.rope.theta;
  if (!problem.rope.frequencies.empty()) {
    options.rope_freqs = torch::tensor(problem.rope.frequencies, at::kDouble);
  }
  if (given.metadata.count("scale") == 1) options.scale = problem.scale;
  if (given.query_offset_given) options.query_offset = to_tensor(problem.query_offset);
  if (!problem.key_lengths.empty()) options.key_lengths = to_tensor(problem.key_lengths);
  if (!problem.documents.empty()) {
    options.documents = to_tensor(problem.documents).reshape({problem.batch, problem.keys});
  }
  return options;
}

io::Arrays by_operator(const io::AttentionCase& given) {
  const at::ScalarType dtype = torch_type(given.dtype);
  Tensors inputs;
  for (const auto& [name, array] : given.inputs) {
    inputs[name] = to_tensor(array, dtype);
    if (!is_upstream(name)) inputs[name].requires_grad_();
  }
  const AttentionOptions options = operator_options(given, inputs);
  const auto out = attention(inputs.at("q"), inputs.at("k"), inputs.at("v"), options);
  const auto [parts, lse] = attention_with_lse(inputs.at("q"), inputs.at("k"), inputs.at("v"), options);
  io::Arrays results{{"out", to_array(out)}, {"parts", to_array(parts)}, {"lse", to_array(lse)}};
  if (!given.inputs.contains("grad_out")) return results;

  std::vector<torch::Tensor> outputs{out}, upstream{inputs.at("grad_out")};
  if (const auto grad_lse = optional_tensor(inputs, "grad_lse")) {
    outputs.push_back(lse);
    upstream.push_back(grad_lse->to(lse.scalar_type()));
  }
  torch::autograd::backward(outputs, upstream);
  for (const auto& [name, tensor] : inputs) {
    if (is_upstream(name)) continue;
    const torch::Tensor& gradient = tensor.grad();
    results["grad_" + name] = to_array(gradient.defined() ? gradient : torch::zeros_like(tensor));
  }
  return results;
}

// ---- The oracle ----

io::Arrays by_oracle(const io::AttentionCase& given) {
  const Problem& problem = given.problem;
  const auto data = [&](const char* name) { return io::data_of(given.inputs, name); };
  reference::Inputs inputs;
  inputs.query = data("q");
  inputs.key = data("k");
  inputs.value = data("v");
  inputs.alpha_q = data("alpha_q");
  inputs.alpha_k = data("alpha_k");
  inputs.alpha_v = data("alpha_v");
  inputs.collapse = data("collapse");
  inputs.sinks = data("sinks");
  inputs.mode_weights = data("mode_weights");
  inputs.block_weights = data("block_weights");

  reference::Outputs outputs = reference::forward(problem, inputs);
  const auto [batch, heads, queries] = std::tuple(problem.batch, problem.query_heads, problem.queries);
  io::Arrays results;
  results["out"] = {{batch, heads, queries, problem.value_dim}, std::move(outputs.out)};
  results["lse"] = {{batch, heads, queries, problem.pseudo_heads}, std::move(outputs.lse)};
  results["parts"] = {{batch, heads, queries, problem.pseudo_heads, problem.value_dim},
                      std::move(outputs.parts)};
  if (!given.inputs.contains("grad_out")) return results;

  reference::Upstream upstream;
  upstream.out = data("grad_out");
  upstream.lse = data("grad_lse");
  reference::Gradients gradients = reference::backward(problem, inputs, upstream);
  const std::map<std::string, std::vector<double>*> values{{"q", &gradients.query},
                                                           {"k", &gradients.key},
                                                           {"v", &gradients.value},
                                                           {"alpha_q", &gradients.alpha_q},
                                                           {"alpha_k", &gradients.alpha_k},
                                                           {"alpha_v", &gradients.alpha_v},
                                                           {"collapse", &gradients.collapse},
                                                           {"sinks", &gradients.sinks},
                                                           {"mode_weights", &gradients.mode_weights},
                                                           {"block_weights", &gradients.block_weights}};
  for (const auto& [name, array] : given.inputs) {
    if (!is_upstream(name)) results["grad_" + name] = {array.shape, std::move(*values.at(name))};
  }
  return results;
}

// ---- Layers ----

using Forward = std::function<torch::Tensor(const torch::Tensor&)>;

std::pair<std::shared_ptr<torch::nn::Module>, Forward> make_layer(const io::ModuleCase& given,
                                                                  int64_t width) {
  if (given.kind == io::ModuleKind::kAveragedPseudoHeads) {
    nn::IHAAttention layer(nn::IHAAttentionOptions(width, given.heads)
                               .iha_num_pseudo_heads(given.pseudo_heads)
                               .use_bitnet(given.bitnet)
                               .mode(given.decoder ? "decoder" : "encoder"));
    return {layer.ptr(), [layer](const torch::Tensor& x) mutable { return layer->forward(x); }};
  }
  nn::InterleavedHeadAttention layer(nn::mixed_mode_options(given.heads, width, given.patterns));
  return {layer.ptr(), [layer](const torch::Tensor& x) mutable { return layer->forward(x); }};
}

void set_parameters(torch::nn::Module& layer, const io::Arrays& values) {
  const torch::NoGradGuard no_grad;
  auto parameters = layer.named_parameters();
  for (auto& item : parameters) {
    check(values.contains(item.key()), "iha: the case lacks parameter ", item.key());
    item.value().copy_(to_tensor(values.at(item.key()), item.value().scalar_type()));
  }
  check(parameters.size() == values.size(), "iha: the case has ", values.size(), " parameters, expected ",
        parameters.size());
}

io::Arrays by_layer(const io::ModuleCase& given, at::ScalarType dtype) {
  const auto x = to_tensor(given.inputs.at("x"), dtype).requires_grad_();
  const auto [layer, forward] = make_layer(given, x.size(-1));
  layer->to(dtype);
  set_parameters(*layer, given.parameters);
  const auto out = forward(x);
  io::Arrays results{{"out", to_array(out)}};
  if (!given.inputs.contains("grad_out")) return results;

  out.backward(to_tensor(given.inputs.at("grad_out"), dtype));
  results["grad_x"] = to_array(x.grad());
  for (const auto& item : layer->named_parameters()) {
    const torch::Tensor& gradient = item.value().grad();
    results["grad_" + item.key()] = to_array(gradient.defined() ? gradient : torch::zeros_like(item.value()));
  }
  return results;
}

}  // namespace

Engine engine_named(const std::string& name) {
  check(name == "operator" || name == "oracle", "--engine: found ", name, ", expected operator or oracle");
  return name == "operator" ? Engine::kOperator : Engine::kOracle;
}

io::Arrays compute(const io::Case& given, Engine engine) {
  const bool oracle = engine == Engine::kOracle;
  if (const auto* call = std::get_if<io::AttentionCase>(&given)) {
    return oracle ? by_oracle(*call) : by_operator(*call);
  }
  const auto& module = std::get<io::ModuleCase>(given);
  return by_layer(module, oracle ? at::kDouble : torch_type(module.dtype));
}

}  // namespace iha::app
