// A program of somebody else's that uses the torch-free part of an installed copy: parses patterns, runs
// attention forward and backward, and checks what it can derive by hand.
#include <iha/core.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <vector>

namespace {

bool near(float value, double expected) {
  return std::abs(value - expected) < 1e-5;
}

}  // namespace

int main() {
  // One sequence, two heads, four tokens. All scores are 0, so a query's output is the mean of the values it
  // sees.
  constexpr int kHeads = 2, kTokens = 4;
  iha::Problem problem;
  problem.batch = 1;
  problem.query_heads = problem.key_heads = kHeads;
  problem.queries = problem.keys = kTokens;
  problem.head_dim = problem.value_dim = 1;
  problem.patterns = iha::parse_patterns("causal,causal_sliding:1").expand(kHeads);
  problem.query_offset = {0};

  std::vector<float> zeros(kHeads * kTokens, 0.f), values, out(kHeads * kTokens), parts(out), lse(out),
      ones(out.size(), 1.f);
  for (int head = 0; head < kHeads; ++head) {
    for (int token = 0; token < kTokens; ++token) values.push_back(static_cast<float>(token + 1));
  }
  const std::array<int64_t, 5> strides{kHeads * kTokens, kTokens, 1, 1, 1};
  const auto array = [&](const std::vector<float>& data) {
    return iha::core::Array{data.data(), iha::DType::kFloat32, strides};
  };
  const auto writable = [&](std::vector<float>& data) {
    return iha::core::MutableArray{data.data(), iha::DType::kFloat32, strides};
  };
  const iha::core::AttentionInputs inputs{.query = array(zeros), .key = array(zeros), .value = array(values)};
  const iha::ParallelFor threads = iha::thread_pool(2);
  iha::core::attention(problem, inputs, {writable(out), writable(parts), writable(lse)}, threads);

  const double expected[] = {1, 1.5, 2, 2.5, 1, 1.5, 2.5, 3.5};
  for (int i = 0; i < kHeads * kTokens; ++i) {
    if (!near(out[i], expected[i])) {
      std::printf("out[%d] is %g, expected %g\n", i, out[i], expected[i]);
      return 1;
    }
  }

  // d sum(out) / d value: how much weight each key receives.
  std::vector<float> grad_value(out.size());
  iha::core::AttentionGradients gradients;
  gradients.value = writable(grad_value);
  iha::core::attention_backward(
      problem, inputs,
      {.parts = array(parts), .lse = array(lse), .grad_out = array(ones), .grad_parts = {}, .grad_lse = {}},
      gradients, threads);
  const double received[] = {
      1 + 1 / 2. + 1 / 3. + 1 / 4., 1 / 2. + 1 / 3. + 1 / 4., 1 / 3. + 1 / 4., 1 / 4., 1.5, 1, 1, 0.5};
  for (int i = 0; i < kHeads * kTokens; ++i) {
    if (!near(grad_value[i], received[i])) {
      std::printf("grad_value[%d] is %g, expected %g\n", i, grad_value[i], received[i]);
      return 1;
    }
  }

  // Exceptions cross the library's border.
  try {
    iha::parse_patterns("causl*4");
  } catch (const std::invalid_argument& error) {
    std::printf("found iha and used it; an error reads: %s\n", error.what());
    return 0;
  }
  std::puts("a misspelt pattern was taken");
  return 1;
}
