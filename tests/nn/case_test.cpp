// Every `op = module` case file: outputs, the input's gradient and every parameter's, in the case's dtype by
// the format's own rule, and in float64, where nothing but the order of additions may differ.
#include <variant>

#include "iha/io/case_file.h"
#include "iha/nn/averaged_pseudo_heads.h"
#include "iha/nn/mixed_mode_attention.h"
#include "tests/case_folder.h"
#include "tests/nn/support.h"

namespace iha::nn {
namespace {

torch::Tensor tensor_of(const io::DoubleArray& array, torch::Dtype dtype) {
  return torch::tensor(array.values, torch::kFloat64).view(array.shape).to(dtype);
}

io::DoubleArray array_of(const torch::Tensor& tensor) {
  const auto flat = tensor.detach().to(torch::kFloat64).contiguous();
  return {tensor.sizes().vec(), {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()}};
}

std::shared_ptr<torch::nn::Module> layer_of(const io::ModuleCase& module, int64_t width) {
  if (module.kind == io::ModuleKind::kMixedModes) {
    return InterleavedHeadAttention(mixed_mode_options(module.heads, width, module.patterns)).ptr();
  }
  return IHAAttention(IHAAttentionOptions(width, module.heads)
                          .iha_num_pseudo_heads(module.pseudo_heads)
                          .use_bitnet(module.bitnet)
                          .mode(module.decoder ? "decoder" : "encoder"))
      .ptr();
}

torch::Tensor run(torch::nn::Module& layer, const torch::Tensor& x) {
  if (auto* averaged = layer.as<IHAAttentionImpl>()) return averaged->forward(x);
  return layer.as<InterleavedHeadAttentionImpl>()->forward(x);
}

io::Arrays compute(const io::ModuleCase& module, torch::Dtype dtype) {
  auto x = tensor_of(module.inputs.at("x"), dtype).requires_grad_();
  auto layer = layer_of(module, x.size(2));
  layer->to(dtype);
  auto parameters = layer->named_parameters();
  EXPECT_EQ(parameters.size(), module.parameters.size());
  {
    torch::NoGradGuard no_grad;
    for (const auto& [name, values] : module.parameters) parameters[name].copy_(tensor_of(values, dtype));
  }
  const auto out = run(*layer, x);
  io::Arrays results{{"out", array_of(out)}};
  if (!module.inputs.contains("grad_out")) return results;
  out.backward(tensor_of(module.inputs.at("grad_out"), dtype));
  results["grad_x"] = array_of(x.grad());
  for (const auto& parameter : parameters) results["grad_" + parameter.key()] = array_of(parameter->grad());
  return results;
}

void expect_pass(const io::ModuleCase& module, const io::Arrays& results) {
  for (const auto& comparison : io::compare(module.expected, results, module.dtype)) {
    EXPECT_TRUE(comparison.pass) << comparison.name << ": " << comparison.fault;
  }
}

// Float64 against float64: 1e-11 of the largest value leaves room for sums over 1000 terms in another order.
void expect_exact(const io::ModuleCase& module, const io::Arrays& results) {
  double largest = 0;
  for (const auto& [name, expected] : module.expected) {
    for (const double value : expected.values) largest = std::max(largest, std::abs(value));
  }
  for (const auto& [name, expected] : module.expected) {
    const auto& actual = results.at(name);
    ASSERT_EQ(actual.shape, expected.shape) << name;
    for (size_t i = 0; i < expected.values.size(); ++i) {
      ASSERT_NEAR(actual.values[i], expected.values[i], 1e-11 * largest) << name << " at " << i;
    }
  }
}

TEST(ModuleCases, MatchTheirExpectations) {
  const auto files = case_files();
  if (files.empty()) GTEST_SKIP() << "no case files at " << case_folder();
  int averaged = 0;
  int mixed_modes = 0;
  for (const auto& file : files) {
    const auto any = io::read_case(file);
    const auto* module = std::get_if<io::ModuleCase>(&any);
    if (module == nullptr) continue;
    SCOPED_TRACE(file.filename());
    ++(module->kind == io::ModuleKind::kMixedModes ? mixed_modes : averaged);
    const auto dtype = module->dtype == DType::kBFloat16 ? torch::kBFloat16 : torch::kFloat32;
    expect_pass(*module, compute(*module, dtype));
    expect_exact(*module, compute(*module, torch::kFloat64));
  }
  EXPECT_GE(averaged, 1);
  EXPECT_GE(mixed_modes, 1);
}

}  // namespace
}  // namespace iha::nn
