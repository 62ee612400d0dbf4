// iha::core::attention against the oracle: every dtype, any strides, absent outputs, any number of workers.
#include "iha/kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "iha/kernels/attention_by_oracle.h"
#include "tests/kernels/calls.h"

namespace iha {
namespace {

using testing::Call;

using Shape = std::vector<int64_t>;

// An array of any dtype whose axes lie in memory in the order of `axes` (last fastest), each element followed
// by `gap` others, all of which are poisoned.
class Strided {
 public:
  Strided(Shape shape, DType dtype, const std::vector<int>& axes, int64_t gap)
      : shape_(std::move(shape)), dtype_(dtype) {
    int64_t stride = 1 + gap;
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      if (*axis >= static_cast<int>(shape_.size())) continue;
      strides_[*axis] = stride;
      stride *= shape_[*axis];
    }
    bytes_.assign((stride + gap) * size_of(dtype), std::byte{0xff});  // NaN in every format
  }
  // A row-major array with these values, rounded to the dtype.
  Strided(Shape shape, DType dtype, const std::vector<int>& axes, int64_t gap,
          const std::vector<double>& values)
      : Strided(std::move(shape), dtype, axes, gap) {
    each([&](int64_t n, int64_t at) { store(bytes_.data(), dtype_, at, values[n]); });
  }

  core::Array array() const { return {bytes_.data(), dtype_, strides_}; }
  core::MutableArray writable() { return {bytes_.data(), dtype_, strides_}; }
  std::vector<double> values() const {
    std::vector<double> values;
    each([&](int64_t, int64_t at) { values.push_back(load(bytes_.data(), dtype_, at)); });
    return values;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  template <class Visit>
  void each(const Visit& visit) const {
    int64_t count = 1;
    for (const int64_t size : shape_) count *= size;
    for (int64_t n = 0; n < count; ++n) {
      int64_t rest = n, at = 0;
      for (int axis = static_cast<int>(shape_.size()) - 1; axis >= 0; --axis) {
        at += rest % shape_[axis] * strides_[axis];
        rest /= shape_[axis];
      }
      visit(n, at);
    }
  }

  Shape shape_;
  DType dtype_;
  std::array<int64_t, 5> strides_{};
  std::vector<std::byte> bytes_;
};

struct Memory {
  std::vector<int> axes;
  int64_t gap;
};
const Memory kContiguous{{0, 1, 2, 3, 4}, 0};
const Memory kTokenMajor{{0, 2, 1, 3, 4}, 0};  // [B, N, H, d]
const Memory kStrange{{3, 1, 4, 0, 2}, 2};

// The arrays of a call in one dtype and memory layout, small ones in another dtype, and everything computed.
class TypedCall {
 public:
  TypedCall(const Call& call, DType dtype, DType small, Memory memory)
      : problem(call.problem), dtype_(dtype), memory_(std::move(memory)) {
    const Problem& p = problem;
    const Shape out = {p.batch, p.query_heads, p.queries, p.value_dim};
    const Shape parts = {p.batch, p.query_heads, p.queries, p.pseudo_heads, p.value_dim};
    const Shape lse = {p.batch, p.query_heads, p.queries, p.pseudo_heads};
    const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
    const Shape alpha_kv = {p.key_heads, p.key_heads, p.pseudo_heads};
    const Shape alpha_q = {p.query_heads, p.query_heads, p.pseudo_heads};
    shapes_ = {{p.batch, p.query_heads, p.queries, p.head_dim},
               {p.batch, p.key_heads, p.keys, p.head_dim},
               {p.batch, p.key_heads, p.keys, p.value_dim},
               alpha_q,
               alpha_kv,
               alpha_kv,
               p.collapse == CollapseKind::kPerHead ? Shape{p.query_heads, p.pseudo_heads} : alpha_q,
               {p.query_heads},
               {p.query_heads, p.modes()},
               {p.batch, p.query_heads, p.queries, p.key_blocks()}};
    const std::vector<double>* values[] = {
        &call.query,   &call.key,      &call.value, &call.alpha_q,      &call.alpha_k,
        &call.alpha_v, &call.collapse, &call.sinks, &call.mode_weights, &call.block_weights};
    for (std::size_t at = 0; at < 10; ++at) {
      const DType type = at < 3 ? dtype : small;
      if (at >= 3 && values[at]->empty()) {
        inputs_.emplace_back();
        gradients_.emplace_back();
      } else {
        inputs_.push_back(Strided(shapes_[at], type, memory_.axes, memory_.gap, *values[at]));
        gradients_.push_back(Strided(shapes_[at], type, memory_.axes, memory_.gap));
      }
    }
    const auto make = [&](const Shape& shape, DType type) {
      return Strided(shape, type, memory_.axes, memory_.gap);
    };
    const auto filled = [&](const Shape& shape, DType type, const std::vector<double>& data) {
      return Strided(shape, type, memory_.axes, memory_.gap, data);
    };
    outputs_ = {make(out, dtype), make(parts, dtype), make(lse, wide)};
    upstream_ = {filled(out, dtype, call.grad_out), filled(parts, dtype, call.grad_parts),
                 filled(lse, wide, call.grad_lse)};
  }

  core::AttentionInputs inputs() const {
    const auto array = [&](int at) { return inputs_[at] ? inputs_[at]->array() : core::Array{}; };
    return {array(0), array(1), array(2), array(3), array(4),
            array(5), array(6), array(7), array(8), array(9)};
  }
  core::AttentionOutputs outputs() {
    return {outputs_[0].writable(), outputs_[1].writable(), outputs_[2].writable()};
  }
  core::AttentionUpstream upstream() const {
    return {outputs_[1].array(), outputs_[2].array(), upstream_[0].array(), upstream_[1].array(),
            upstream_[2].array()};
  }
  core::AttentionGradients gradients() {
    const auto array = [&](int at) {
      return gradients_[at] ? gradients_[at]->writable() : core::MutableArray{};
    };
    return {array(0), array(1), array(2), array(3), array(4),
            array(5), array(6), array(7), array(8), array(9)};
  }
  void run(const ParallelFor& parallel) {
    core::attention(problem, inputs(), outputs(), parallel);
    core::attention_backward(problem, inputs(), upstream(), gradients(), parallel);
  }
  void run_by_oracle() {
    const core::Shapes shapes(problem);
    core::forward_by_oracle(problem, shapes, inputs(), outputs(), serial());
    core::backward_by_oracle(problem, shapes, inputs(), upstream(), gradients(), serial());
  }
  // out, parts, lse, then the gradients (empty where absent), as doubles or as bytes.
  std::vector<std::vector<double>> results() const {
    std::vector<std::vector<double>> results;
    for (const Strided& output : outputs_) results.push_back(output.values());
    for (const auto& gradient : gradients_)
      results.push_back(gradient ? gradient->values() : std::vector<double>{});
    return results;
  }
  std::vector<std::vector<std::byte>> bytes() const {
    std::vector<std::vector<std::byte>> bytes;
    for (const Strided& output : outputs_) bytes.push_back(output.bytes());
    for (const auto& gradient : gradients_)
      bytes.push_back(gradient ? gradient->bytes() : std::vector<std::byte>{});
    return bytes;
  }
  // The same call as the oracle sees it: the stored values, widened.
  Call stored() const {
    Call call(problem, testing::kNothing, 1);
    std::vector<double>* arrays[] = {&call.query,        &call.key,          &call.value,    &call.alpha_q,
                                     &call.alpha_k,      &call.alpha_v,      &call.collapse, &call.sinks,
                                     &call.mode_weights, &call.block_weights};
    for (int at = 0; at < 10; ++at) *arrays[at] = inputs_[at] ? inputs_[at]->values() : std::vector<double>{};
    call.grad_out = upstream_[0].values();
    call.grad_parts = upstream_[1].values();
    call.grad_lse = upstream_[2].values();
    return call;
  }

  Problem problem;

 private:
  DType dtype_;
  Memory memory_;
  std::vector<Shape> shapes_;
  std::vector<std::optional<Strided>> inputs_, gradients_;
  std::vector<Strided> outputs_, upstream_;
};

// The unit roundoff of a dtype, and its smallest subnormal.
std::pair<double, double> rounding(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return {std::ldexp(1.0, -53), 0};
    case DType::kFloat32:
      return {std::ldexp(1.0, -24), std::ldexp(1.0, -149)};
    case DType::kBFloat16:
      return {std::ldexp(1.0, -8), std::ldexp(1.0, -133)};
    case DType::kFloat16:
      return {std::ldexp(1.0, -11), std::ldexp(1.0, -24)};
  }
  return {};
}

void expect_rounded(const std::vector<double>& exact, const std::vector<double>& actual, DType dtype,
                    int which) {
  ASSERT_EQ(exact.size(), actual.size()) << which;
  const auto [relative, smallest] = rounding(dtype);
  for (std::size_t at = 0; at < exact.size(); ++at) {
    if (exact[at] == actual[at]) continue;  // -inf among them
    ASSERT_LE(std::abs(exact[at] - actual[at]), relative * std::abs(exact[at]) + smallest / 2)
        << "result " << which << " at " << at;
  }
}

TEST(AttentionByOracle, RoundsOnceForAnyDTypeAndStrides) {
  const std::pair<DType, DType> types[] = {
      {DType::kFloat64, DType::kFloat64},  {DType::kFloat64, DType::kFloat32},
      {DType::kFloat32, DType::kFloat32},  {DType::kBFloat16, DType::kBFloat16},
      {DType::kBFloat16, DType::kFloat32}, {DType::kFloat16, DType::kFloat16}};
  uint64_t seed = 1;
  for (const auto& [dtype, small] : types) {
    for (const Memory& memory : {kContiguous, kTokenMajor, kStrange}) {
      for (int repeat = 0; repeat < 12; ++repeat, ++seed) {
        TypedCall typed(testing::random_call(seed), dtype, small, memory);
        SCOPED_TRACE(::testing::Message() << "seed " << seed << ": " << testing::describe(typed.problem));
        typed.run_by_oracle();
        const Call stored = typed.stored();
        const reference::Outputs outputs = stored.forward();
        const auto results = typed.results();
        expect_rounded(outputs.out, results[0], dtype, 0);
        expect_rounded(outputs.parts, results[1], dtype, 1);
        expect_rounded(outputs.lse, results[2], dtype == DType::kFloat64 ? dtype : DType::kFloat32, 2);
        int at = 3;
        const reference::Gradients gradients = stored.backward();
        testing::for_each_array(gradients, gradients, [&](const char*, const auto& exact, const auto&) {
          expect_rounded(exact, results[at], at < 6 ? dtype : small, at);
          ++at;
        });
      }
    }
  }
}

TEST(CoreAttention, TakesFloat64ByTheOracle) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const Call call = testing::random_call(seed);
    TypedCall border(call, DType::kFloat64, DType::kFloat64, kStrange), oracle = border;
    border.run(serial());
    oracle.run_by_oracle();
    EXPECT_TRUE(border.bytes() == oracle.bytes())
        << "seed " << seed << ": " << testing::describe(call.problem);
  }
}

TEST(CoreAttention, GivesTheSameBitsForAnyNumberOfWorkers) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      Problem problem = testing::make_problem({9, 4, 2, 4, 5, 4, 3, 2}, {causal(), sliding(1)});
      problem.collapse = CollapseKind::kGlobal;
      problem.dropout_p = 0.2;
      const Call call(problem, testing::kAlphas | testing::kSinks, seed);
      TypedCall expected(call, dtype, dtype, kTokenMajor);
      expected.run(serial());
      for (const int workers : {2, 3, 7}) {
        TypedCall actual(call, dtype, dtype, kTokenMajor);
        actual.run(thread_pool(workers));
        EXPECT_TRUE(actual.bytes() == expected.bytes()) << workers << " workers, " << name_of(dtype);
      }
    }
  }
}

TEST(CoreAttention, WritesOnlyWhatIsThere) {
  const Call call(testing::make_problem({2, 2, 1, 3, 4, 4, 3, 2}), testing::kAlphas, 1);
  TypedCall whole(call, DType::kFloat64, DType::kFloat64, kContiguous);
  whole.run(serial());
  TypedCall some(call, DType::kFloat64, DType::kFloat64, kContiguous);
  core::AttentionOutputs outputs = some.outputs();
  outputs.parts = outputs.lse = {};
  core::attention(some.problem, some.inputs(), outputs, serial());
  EXPECT_EQ(some.results()[0], whole.results()[0]);
  TypedCall none = some;
  core::attention(none.problem, none.inputs(), {}, serial());
  EXPECT_TRUE(none.bytes() == some.bytes());
  // Upstream gradients that are absent count as zero; gradients that are not asked for are not written.
  core::AttentionUpstream upstream = whole.upstream();
  upstream.grad_parts = upstream.grad_lse = {};
  core::AttentionGradients only_value;
  only_value.value = some.gradients().value;
  core::attention_backward(some.problem, some.inputs(), upstream, only_value, serial());
  const reference::Gradients expected =
      reference::backward(call.problem, call.inputs(), {call.grad_out.data(), nullptr, nullptr});
  EXPECT_EQ(some.results()[5], expected.value);
}

// sum(out) has an upstream gradient of stride 0.
TEST(CoreAttention, ReadsBroadcastUpstreamGradients) {
  const Call call(testing::make_problem({2, 2, 2, 3, 4, 4, 3, 1}), testing::kNothing, 1);
  TypedCall typed(call, DType::kFloat64, DType::kFloat64, kContiguous);
  core::attention(typed.problem, typed.inputs(), typed.outputs(), serial());
  const double one = 1;
  core::AttentionUpstream upstream = typed.upstream();
  upstream.grad_out = {&one, DType::kFloat64, {}};
  upstream.grad_parts = upstream.grad_lse = {};
  core::attention_backward(typed.problem, typed.inputs(), upstream, typed.gradients(), serial());
  const std::vector<double> ones(call.grad_out.size(), 1.0);
  const reference::Gradients expected =
      reference::backward(call.problem, call.inputs(), {ones.data(), nullptr, nullptr});
  EXPECT_EQ(typed.results()[3], expected.query);
  EXPECT_EQ(typed.results()[4], expected.key);
  EXPECT_EQ(typed.results()[5], expected.value);
}

TEST(CoreAttention, TakesZeroSizes) {
  for (const testing::Shape& shape :
       {testing::Shape{0, 2, 2, 3, 3, 2, 2, 2}, testing::Shape{2, 0, 0, 3, 3, 2, 2, 2},
        testing::Shape{2, 2, 2, 0, 3, 2, 2, 2}, testing::Shape{2, 2, 2, 3, 0, 2, 2, 2},
        testing::Shape{2, 2, 2, 3, 3, 2, 0, 2}}) {
    for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
      TypedCall typed(Call(testing::make_problem(shape), testing::kAlphas | testing::kSinks, 1), dtype, dtype,
                      kContiguous);
      SCOPED_TRACE(testing::describe(typed.problem));
      typed.run(serial());
      for (const auto& result : {typed.results()[0], typed.results()[6], typed.results()[10]}) {
        for (const double value : result) EXPECT_TRUE(std::isfinite(value));  // written, if only with zero
      }
    }
  }
}

TEST(CoreAttention, RefusesArraysThatDoNotFit) {
  Problem problem = testing::make_problem({2, 2, 1, 3, 4, 4, 3, 2});
  problem.collapse = CollapseKind::kPerHead;
  TypedCall typed(Call(problem, testing::kAlphas, 1), DType::kFloat64, DType::kFloat64, kContiguous);
  const auto message =
      [&](const std::function<void(core::AttentionInputs&, core::AttentionOutputs&)>& change) {
        core::AttentionInputs inputs = typed.inputs();
        core::AttentionOutputs outputs = typed.outputs();
        change(inputs, outputs);
        try {
          core::attention(typed.problem, inputs, outputs, serial());
        } catch (const std::invalid_argument& error) {
          return std::string(error.what());
        }
        return std::string();
      };
  EXPECT_EQ(message([](auto&, auto&) {}), "");
  EXPECT_EQ(message([](auto& inputs, auto&) { inputs.key.data = nullptr; }),
            "iha::core::attention: key is absent, expected an array");
  EXPECT_EQ(message([](auto& inputs, auto&) { inputs.value.dtype = DType::kFloat32; }),
            "iha::core::attention: value is float32, expected float64");
  EXPECT_EQ(message([](auto& inputs, auto&) { inputs.alpha_q.dtype = DType::kBFloat16; }),
            "iha::core::attention: alpha_q is bfloat16, expected float64 or float32");
  EXPECT_EQ(message([](auto& inputs, auto&) { inputs.collapse.data = nullptr; }),
            "iha::core::attention: collapse is absent, expected an array");
  EXPECT_EQ(message([](auto&, auto& outputs) { outputs.lse.dtype = DType::kFloat32; }),
            "iha::core::attention: lse is float32, expected float64");
  EXPECT_EQ(message([](auto&, auto& outputs) { outputs.out.strides[2] = 0; }),
            "iha::core::attention: out has stride 0 on axis 2, expected memory of its own for every element");
  EXPECT_NE(message([&](auto& inputs, auto&) { inputs.query.data = nullptr; }), "");
  // A gradient of something that is not there.
  core::AttentionGradients gradients = typed.gradients();
  gradients.sinks = gradients.collapse;
  EXPECT_THROW(core::attention_backward(typed.problem, typed.inputs(), typed.upstream(), gradients, serial()),
               std::invalid_argument);
}

}  // namespace
}  // namespace iha
