// Every attention case file through the torch operator: out, parts, lse and all gradients.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>
#include <filesystem>
#include <variant>

#include "iha/io/case_file.h"
#include "tests/ops/operator_call.h"

namespace iha {
namespace {

std::vector<std::filesystem::path> case_files() {
  const char* folder = std::getenv("IHA_CASES");
  const std::filesystem::path source =
      std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
  const std::filesystem::path path = folder != nullptr ? folder : source.parent_path() / "shared" / "cases";
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::is_directory(path)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

at::Tensor tensor_of(const io::DoubleArray& array, at::ScalarType dtype) {
  return testing::tensor_of(array.values, array.shape, dtype);
}

testing::OperatorCall call_of(const io::AttentionCase& c) {
  const at::ScalarType dtype = c.dtype == DType::kBFloat16 ? at::kBFloat16 : at::kFloat;
  const auto input = [&](const char* name) -> std::optional<at::Tensor> {
    const auto found = c.inputs.find(name);
    if (found == c.inputs.end()) return std::nullopt;
    return tensor_of(found->second, dtype).requires_grad_(true);
  };
  const Problem& problem = c.problem;
  testing::OperatorCall call{*input("q"), *input("k"), *input("v"), {}};
  AttentionOptions& options = call.options;
  options.patterns = problem.patterns;
  options.alpha_q = input("alpha_q");
  options.alpha_k = input("alpha_k");
  options.alpha_v = input("alpha_v");
  options.collapse = input("collapse");
  options.sinks = input("sinks");
  options.mode_weights = input("mode_weights");
  options.block_weights = input("block_weights");
  options.layout = problem.layout == Layout::kParallel ? "parallel" : "interleaved";
  options.order = problem.order == Order::kToken ? "token" : "flat";
  options.rope = std::array{"none", "token", "virtual"}[static_cast<int>(problem.rope.kind)];
  options.rope_theta = problem.rope.theta;
  options.rope_style = problem.rope.style == RopeStyle::kAdjacent ? "adjacent" : "half";
  if (!problem.rope.frequencies.empty())
    options.rope_freqs = at::tensor(problem.rope.frequencies, at::kDouble);
  if (c.metadata.contains("scale")) options.scale = problem.scale;
  if (c.query_offset_given) options.query_offset = at::tensor(problem.query_offset, at::kLong);
  if (!problem.key_lengths.empty()) options.key_lengths = at::tensor(problem.key_lengths, at::kLong);
  if (!problem.documents.empty()) {
    options.documents = at::tensor(problem.documents, at::kLong).reshape({problem.batch, problem.keys});
  }
  return call;
}

void store(io::Arrays& arrays, const std::string& name, const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kDouble).contiguous();
  arrays[name] = {values.sizes().vec(),
                  {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()}};
}

TEST(CaseFiles, AllPassThroughTheOperator) {
  const auto files = case_files();
  if (files.empty()) GTEST_SKIP() << "no case files: neither IHA_CASES nor ../shared/cases";
  int checked = 0;
  for (const auto& file : files) {
    const io::Case any = io::read_case(file);
    const auto* c = std::get_if<io::AttentionCase>(&any);
    if (c == nullptr) continue;
    SCOPED_TRACE(file.filename().string());
    const testing::OperatorCall call = call_of(*c);
    const at::Tensor out = call.attention();
    const auto [parts, lse] = call.attention_with_lse();
    io::Arrays actual;
    store(actual, "out", out);
    store(actual, "parts", parts);
    store(actual, "lse", lse);
    if (const auto grad_out = c->inputs.find("grad_out"); grad_out != c->inputs.end()) {
      std::vector<at::Tensor> outputs{out}, upstream{tensor_of(grad_out->second, out.scalar_type())};
      if (const auto grad_lse = c->inputs.find("grad_lse"); grad_lse != c->inputs.end()) {
        outputs.push_back(lse);
        upstream.push_back(tensor_of(grad_lse->second, lse.scalar_type()));
      }
      const auto gradients = testing::gradients(call, outputs, upstream);
      const std::array names{"q",       "k",        "v",     "alpha_q",      "alpha_k",
                             "alpha_v", "collapse", "sinks", "mode_weights", "block_weights"};
      for (size_t input = 0; input < names.size(); ++input) {
        if (gradients[input].defined()) store(actual, std::string("grad_") + names[input], gradients[input]);
      }
    }
    for (const io::Comparison& result : io::compare(c->expected, actual, c->dtype)) {
      EXPECT_TRUE(result.pass) << result.name << " " << result.fault;
    }
    ++checked;
  }
  EXPECT_GT(checked, 40);
}

}  // namespace
}  // namespace iha
