// The operator, and `composed` called by itself, against the float64 oracle over calls in which everything is
// drawn.
#include <gtest/gtest.h>

#include <cmath>

#include "iha/ops/composed.h"
#include "tests/ops/operator_call.h"

namespace iha {
namespace {

using testing::Call;
using testing::kInputNames;
using testing::Memory;

// Roundings of 2^-53 or 2^-24 over at most some 200 terms (channels, heads, keys, pseudo-heads), scores of at
// most some tens: a few thousand half units of the largest value at worst. 16-bit results are rounded once
// (2^-9, 2^-12) and the engine may round pseudo-heads and weights to 16 bits on the way, a few such roundings
// in a row.
double tolerance(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 4096 * std::ldexp(1.0, -53);
    case at::kFloat:
      return 2048 * std::ldexp(1.0, -24);
    case at::kHalf:
      return 32 * std::ldexp(1.0, -12);
    default:
      return 16 * std::ldexp(1.0, -9);
  }
}

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::isfinite(value) ? std::abs(value) : 0);
  return largest;
}

// `floor`: the least size of values that errors are measured by.
void expect_close(const at::Tensor& found, const std::vector<double>& expected, double allowed,
                  const char* what, double floor = 1e-3) {
  ASSERT_EQ(found.numel(), static_cast<int64_t>(expected.size())) << what;
  const at::Tensor values = found.detach().to(at::kDouble).contiguous();
  const double largest = std::max(floor, largest_of(expected));
  const double* data = values.const_data_ptr<double>();
  for (size_t at = 0; at < expected.size(); ++at) {
    if (std::isinf(expected[at]) ? data[at] == expected[at]
                                 : std::abs(data[at] - expected[at]) <= allowed * largest) {
      continue;
    }
    FAIL() << what << " element " << at << ": found " << data[at] << ", expected " << expected[at]
           << ", largest " << largest;
  }
}

void expect_gradients(const testing::Gradients& found, const reference::Gradients& expected, double allowed) {
  const std::array arrays{&expected.query,        &expected.key,     &expected.value,
                          &expected.alpha_q,      &expected.alpha_k, &expected.alpha_v,
                          &expected.collapse,     &expected.sinks,   &expected.mode_weights,
                          &expected.block_weights};
  // 16-bit parts enter every gradient, so where terms cancel their rounding stays.
  double floor = 1e-3;
  if (allowed > 1e-3) {
    for (const auto* array : arrays) floor = std::max(floor, largest_of(*array));
  }
  for (size_t input = 0; input < found.size(); ++input) {
    ASSERT_EQ(found[input].defined(), !arrays[input]->empty() || (input < 3 && found[input].defined()))
        << kInputNames[input];
    if (found[input].defined())
      expect_close(found[input], *arrays[input], allowed, kInputNames[input], floor);
  }
}

void check_operator(Call call, at::ScalarType dtype, Memory memory) {
  SCOPED_TRACE(testing::describe(call.problem));
  testing::round_to(call, dtype);
  const Problem& p = call.problem;
  const double allowed = tolerance(dtype);
  const testing::OperatorCall run = testing::operator_call(call, dtype, memory);
  const reference::Outputs expected = call.forward();
  const at::Tensor out = run.attention();
  const auto [parts, lse] = run.attention_with_lse();
  EXPECT_EQ(out.sizes(), at::IntArrayRef({p.batch, p.query_heads, p.queries, p.value_dim}));
  EXPECT_EQ(parts.sizes(), at::IntArrayRef({p.batch, p.query_heads, p.queries, p.pseudo_heads, p.value_dim}));
  EXPECT_EQ(lse.sizes(), at::IntArrayRef({p.batch, p.query_heads, p.queries, p.pseudo_heads}));
  EXPECT_TRUE(out.transpose(1, 2).is_contiguous());
  expect_close(out, expected.out, allowed, "out");
  expect_close(parts, expected.parts, allowed, "parts");
  expect_close(lse, expected.lse, allowed, "lse");

  const reference::Gradients of_all = call.backward();
  const at::Tensor grad_out = testing::tensor_of(call.grad_out, out.sizes(), dtype),
                   grad_parts = testing::tensor_of(call.grad_parts, parts.sizes(), dtype),
                   grad_lse = testing::tensor_of(call.grad_lse, lse.sizes(), lse.scalar_type());
  expect_gradients(testing::gradients(run, {out, parts, lse}, {grad_out, grad_parts, grad_lse}), of_all,
                   2 * allowed);
}

void check_composed(Call call, at::ScalarType dtype) {
  SCOPED_TRACE(testing::describe(call.problem));
  testing::round_to(call, dtype);
  const testing::OperatorCall run = testing::operator_call(call, dtype);
  ops::Arguments arguments;
  arguments.inputs = run.inputs();
  for (at::Tensor& input : arguments.inputs) input = input.defined() ? input.detach() : input;
  const ops::Results results = ops::composed_forward(arguments, call.problem, {true, true});
  const reference::Outputs expected = call.forward();
  const double allowed = tolerance(dtype);
  expect_close(results.out, expected.out, allowed, "out");
  expect_close(results.parts, expected.parts, allowed, "parts");
  expect_close(results.lse, expected.lse, allowed, "lse");
  ops::Upstream upstream{testing::tensor_of(call.grad_out, results.out.sizes(), dtype),
                         testing::tensor_of(call.grad_parts, results.parts.sizes(), dtype),
                         testing::tensor_of(call.grad_lse, results.lse.sizes(), results.lse.scalar_type()),
                         results.parts, results.lse};
  ops::Wanted wanted;
  for (size_t input = 0; input < wanted.size(); ++input) wanted[input] = arguments.inputs[input].defined();
  expect_gradients(ops::composed_backward(arguments, call.problem, upstream, wanted), call.backward(),
                   2 * allowed);
}

// Calls `check(call, seed)` for the first `count` seeds whose call the operator can be asked for.
template <class Check>
void for_each_call(uint64_t first_seed, int count, int64_t most_tokens, Check check) {
  for (uint64_t seed = first_seed; count > 0; ++seed) {
    Call call = testing::random_call(seed, most_tokens);
    if (!testing::askable(call)) continue;
    if (seed % 2 == 1) testing::hide_some(call, seed);
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    check(call, seed);
    --count;
    if (::testing::Test::HasFatalFailure()) return;
  }
}

Memory memory_of(uint64_t seed) {
  return static_cast<Memory>(seed % static_cast<uint64_t>(Memory::kCount));
}

TEST(Oracle, SmallCallsInFloat64) {
  for_each_call(1, 400, 9,
                [](const Call& call, uint64_t seed) { check_operator(call, at::kDouble, memory_of(seed)); });
}
TEST(Oracle, SmallCallsInFloat32) {
  for_each_call(10'000, 400, 9,
                [](const Call& call, uint64_t seed) { check_operator(call, at::kFloat, memory_of(seed)); });
}
TEST(Oracle, SmallCallsInBFloat16) {
  for_each_call(20'000, 150, 9, [](const Call& call, uint64_t seed) {
    check_operator(call, at::kBFloat16, memory_of(seed));
  });
}
TEST(Oracle, SmallCallsInFloat16) {
  for_each_call(30'000, 150, 9,
                [](const Call& call, uint64_t seed) { check_operator(call, at::kHalf, memory_of(seed)); });
}
TEST(Oracle, LongerCallsInFloat64) {
  for_each_call(40'000, 30, 70,
                [](const Call& call, uint64_t seed) { check_operator(call, at::kDouble, memory_of(seed)); });
}
TEST(Oracle, LongerCallsInFloat32) {
  for_each_call(50'000, 30, 70,
                [](const Call& call, uint64_t seed) { check_operator(call, at::kFloat, memory_of(seed)); });
}

TEST(Composed, IsASecondOpinionInEveryDtype) {
  for (const auto& [dtype, first] :
       {std::pair{at::kFloat, 60'000}, {at::kBFloat16, 61'000}, {at::kHalf, 62'000}}) {
    for_each_call(first, 100, 9,
                  [dtype = dtype](const Call& call, uint64_t) { check_composed(call, dtype); });
  }
}

// Blocks of queries hold at most 256 tokens and at least 16: sizes around both, each mode, with the residue
// classes of strides, and two ranges of keys where first tokens lie apart.
TEST(Composed, ManyBlocks) {
  const std::vector<std::string> modes{"causal",
                                       "sliding:40",
                                       "causal_strided:3",
                                       "strided:7",
                                       "causal_sliding:30+first:5",
                                       "chunked:50",
                                       "causal_every:9",
                                       "every:2",
                                       "global",
                                       "learned(causal|sliding:40|strided:7)",
                                       "learned(chunked:50+first:3|causal_every:9)",
                                       "dynamic:32:1",
                                       "causal_dynamic:50:2"};
  for (const int64_t tokens : {255, 256, 257, 300}) {
    for (size_t mode = 0; mode < modes.size(); ++mode) {
      testing::Shape shape{1, 2, 1, tokens, tokens, 2, 2, 1};
      Problem problem = testing::make_problem(shape, {parse_pattern(modes[mode]), causal_sliding(3)});
      Call call(problem, testing::kNothing, tokens + mode);
      testing::hide_some(call, mode);
      check_composed(call, at::kDouble);
    }
  }
}

TEST(Composed, ManyBlocksOfPseudoHeads) {
  for (const char* mode : {"causal", "causal_strided:3", "causal_sliding:20+first:3", "chunked:33",
                           "learned(causal|sliding:20)", "causal_dynamic:33:1"}) {
    testing::Shape shape{2, 2, 2, 90, 131, 4, 3, 3};
    Problem problem = testing::make_problem(shape, {parse_pattern(mode)});
    problem.rope.kind = RopeKind::kVirtual;
    problem.dropout_p = 0.2;
    problem.dropout_seed = 5;
    check_composed(Call(problem, testing::kAlphas | testing::kSinks, 3), at::kDouble);
  }
}

TEST(Weights, AreTheOracles) {
  for_each_call(70'000, 150, 9, [](const Call& call, uint64_t seed) {
    SCOPED_TRACE(testing::describe(call.problem));
    if (call.problem.pseudo_heads > 1 && call.alpha_q.empty() && call.alpha_k.empty()) return;
    const std::vector<int64_t> rows{call.problem.queries - 1,
                                    static_cast<int64_t>(seed) % call.problem.queries};
    const testing::OperatorCall run = testing::operator_call(call, at::kDouble);
    const at::Tensor weights =
        attention_weights(run.query, run.key, at::tensor(rows, at::kLong), run.options);
    const Problem& p = call.problem;
    EXPECT_EQ(weights.sizes(),
              at::IntArrayRef({p.batch, p.query_heads, 2, p.pseudo_heads, p.keys, p.pseudo_heads}));
    expect_close(weights, reference::weights(p, call.inputs(), rows), tolerance(at::kDouble), "weights");
    EXPECT_FALSE(weights.requires_grad());
  });
}

}  // namespace
}  // namespace iha
