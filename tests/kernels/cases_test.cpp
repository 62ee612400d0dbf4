// Every `op = attention` case of shared/cases through the oracle: outputs, lse, parts and all gradients.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "iha/io/case_file.h"
#include "iha/kernels/reference/reference.h"

namespace iha {
namespace {

std::filesystem::path cases_folder() {
  if (const char* folder = std::getenv("IHA_CASES")) return folder;
  const auto source = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
  return source.parent_path() / "shared" / "cases";
}

std::vector<std::filesystem::path> case_files() {
  std::vector<std::filesystem::path> files;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(cases_folder(), absent)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

io::Arrays compute(const io::AttentionCase& one) {
  const auto input = [&](std::string_view name) { return io::data_of(one.inputs, name); };
  const reference::Inputs inputs{
      input("q"),       input("k"),        input("v"),     input("alpha_q"),      input("alpha_k"),
      input("alpha_v"), input("collapse"), input("sinks"), input("mode_weights"), input("block_weights")};
  io::Arrays results;
  // The shape is the expectation's; compare() finds a wrong number of values.
  const auto put = [&](const std::string& name, std::vector<double> values) {
    if (const auto found = one.expected.find(name); found != one.expected.end()) {
      EXPECT_EQ(io::DoubleArray(found->second).values.size(), values.size()) << name;
      results[name] = {found->second.shape, std::move(values)};
    }
  };
  reference::Outputs outputs = reference::forward(one.problem, inputs);
  put("out", std::move(outputs.out));
  put("lse", std::move(outputs.lse));
  put("parts", std::move(outputs.parts));
  if (input("grad_out") == nullptr) return results;
  reference::Gradients gradients =
      reference::backward(one.problem, inputs, {input("grad_out"), nullptr, input("grad_lse")});
  put("grad_q", std::move(gradients.query));
  put("grad_k", std::move(gradients.key));
  put("grad_v", std::move(gradients.value));
  put("grad_alpha_q", std::move(gradients.alpha_q));
  put("grad_alpha_k", std::move(gradients.alpha_k));
  put("grad_alpha_v", std::move(gradients.alpha_v));
  put("grad_collapse", std::move(gradients.collapse));
  put("grad_sinks", std::move(gradients.sinks));
  put("grad_mode_weights", std::move(gradients.mode_weights));
  put("grad_block_weights", std::move(gradients.block_weights));
  return results;
}

TEST(Cases, OracleMeetsEveryExpectation) {
  const auto files = case_files();
  if (files.empty()) GTEST_SKIP() << "no case files in " << cases_folder();
  int attention_cases = 0;
  for (const auto& file : files) {
    SCOPED_TRACE(file.filename().string());
    const io::Case read = io::read_case(file);
    const auto* one = std::get_if<io::AttentionCase>(&read);
    if (one == nullptr) continue;
    ++attention_cases;
    ASSERT_FALSE(one->expected.empty());
    // Both sides are float64 from the same stored inputs, so the oracle owes far more than the format's
    // tolerance: 1e-6 of it (2e-11), which still is 10^5 roundings.
    for (const io::Comparison& comparison : io::compare(one->expected, compute(*one), one->dtype)) {
      EXPECT_TRUE(comparison.pass) << comparison.fault;
      EXPECT_LT(comparison.error, 1e-6) << comparison.name;
    }
  }
  EXPECT_GT(attention_cases, 0);
}

}  // namespace
}  // namespace iha
