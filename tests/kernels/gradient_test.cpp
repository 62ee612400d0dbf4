// The oracle's gradients against differences of its own forward pass, for every combination of options.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/calls.h"

namespace iha {
namespace {

using testing::Call;

// sum(out * grad_out) + sum(parts * grad_parts) + sum(lse * grad_lse), the last over rows that see a key.
double loss(const Call& call) {
  const Problem& problem = call.problem;
  const reference::Outputs outputs = call.forward();
  double sum = 0;
  for (std::size_t at = 0; at < outputs.out.size(); ++at) sum += outputs.out[at] * call.grad_out[at];
  for (std::size_t at = 0; at < outputs.parts.size(); ++at) sum += outputs.parts[at] * call.grad_parts[at];
  const Visibility visible(problem);
  std::size_t row = 0;
  for (int64_t b = 0; b < problem.batch; ++b) {
    for (int64_t h = 0; h < problem.query_heads; ++h) {
      for (int64_t i = 0; i < problem.queries; ++i) {
        for (int64_t p = 0; p < problem.pseudo_heads; ++p, ++row) {
          bool sees = false;
          for (int64_t j = 0; j < problem.keys * problem.pseudo_heads; ++j) {
            sees = sees || testing::weighs(call, visible, b, h, i, p, j / problem.pseudo_heads,
                                           j % problem.pseudo_heads);
          }
          if (sees) sum += outputs.lse[row] * call.grad_lse[row];
        }
      }
    }
  }
  return sum;
}

// d loss / d step of `array` += step * direction, by the five-point rule: the error is h^4 / 30 times the
// fifth derivative, and rounding of the loss (1e-15) over h.
double slope(Call& call, std::vector<double>& array, const std::vector<double>& direction) {
  constexpr double kStep = 1e-3;
  const std::vector<double> original = array;
  const auto at = [&](double step) {
    for (std::size_t c = 0; c < array.size(); ++c) array[c] = original[c] + step * direction[c];
    return loss(call);
  };
  const double result = (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
  array = original;
  return result;
}

// The derivative along one random unit direction an array.
void expect_right_gradients(Call& call) {
  const reference::Gradients gradients = call.backward();
  PhiloxStream stream(7);
  const auto expect = [&](const char* name, std::vector<double>& array, const std::vector<double>& gradient) {
    ASSERT_EQ(array.size(), gradient.size()) << name;
    std::vector<double> direction(array.size());
    double norm = 0, expected = 0, size = 0;
    for (double& component : direction) component = stream.next_normal(), norm += component * component;
    for (std::size_t c = 0; c < array.size(); ++c) {
      direction[c] /= std::sqrt(norm);
      expected += direction[c] * gradient[c];
      size += gradient[c] * gradient[c];
    }
    EXPECT_NEAR(slope(call, array, direction), expected, 1e-8 * (1 + std::sqrt(size))) << name;
  };
  SCOPED_TRACE(testing::describe(call.problem));
  expect("query", call.query, gradients.query);
  expect("key", call.key, gradients.key);
  expect("value", call.value, gradients.value);
  expect("alpha_q", call.alpha_q, gradients.alpha_q);
  expect("alpha_k", call.alpha_k, gradients.alpha_k);
  expect("alpha_v", call.alpha_v, gradients.alpha_v);
  expect("collapse", call.collapse, gradients.collapse);
  expect("sinks", call.sinks, gradients.sinks);
  expect("mode_weights", call.mode_weights, gradients.mode_weights);
  expect("block_weights", call.block_weights, gradients.block_weights);
}

std::vector<Rope> ropes() {
  Rope token{RopeKind::kToken, 20.0, {}, RopeStyle::kHalf};
  Rope turned{RopeKind::kVirtual, 20.0, {}, RopeStyle::kAdjacent};
  Rope partial{RopeKind::kVirtual, 20.0, {0.7}, RopeStyle::kHalf};
  return {Rope{}, token, turned, partial};
}

// Scopes 0: everything; 1: lengths and an offset a sequence, some rows empty; 2: documents.
void set_scope(Problem& problem, int scope) {
  if (scope == 1) problem.query_offset = {-1, 2}, problem.key_lengths = {3, 2};
  if (scope == 2) problem.query_offset = {1, 0}, problem.documents = {4, 4, 9, 4, 7, 4, 7, 7};
}

TEST(Gradient, EveryCombinationOfOptions) {
  const std::vector<std::vector<Pattern>> patterns = {
      {causal(), global()},
      {causal_sliding(1).with_first(1), sliding(1)},
      {window(2, 1), causal_every(2).with_first(3)},
      {learned({causal(), sliding(1), every(2)}), dynamic(3, 1)},
      {causal_dynamic(2, 1), learned({global(), causal()})}};
  uint64_t count = 0;
  for (const Layout layout : {Layout::kInterleaved, Layout::kParallel}) {
    for (const Order order : {Order::kFlat, Order::kToken}) {
      for (const Rope& rope : ropes()) {
        for (const CollapseKind collapse :
             {CollapseKind::kMean, CollapseKind::kPerHead, CollapseKind::kGlobal}) {
          for (const int scope : {0, 1, 2}) {
            for (const double dropout : {0.0, 0.4}) {
              for (const unsigned present : {testing::kNothing, testing::kAlphas, testing::kSinks}) {
                Problem problem =
                    testing::make_problem({2, 2, 1 + static_cast<int64_t>(count % 2), 3, 4, 4, 3, 2},
                                          patterns[count % patterns.size()]);
                problem.layout = layout;
                problem.order = order;
                problem.rope = rope;
                problem.collapse = collapse;
                problem.dropout_p = dropout;
                problem.dropout_seed = 5;
                set_scope(problem, scope);
                Call call(problem, present | (count % 3 == 0 ? testing::kSinks : 0u), count);
                ++count;
                ASSERT_NO_FATAL_FAILURE(expect_right_gradients(call));
              }
            }
          }
        }
      }
    }
  }
}

TEST(Gradient, DrawnCalls) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Call call = testing::random_call(seed, 6);
    ASSERT_NO_FATAL_FAILURE(expect_right_gradients(call)) << "seed " << seed;
  }
}

// Every single element, so that no error hides in a direction.
TEST(Gradient, EveryElement) {
  Problem problem =
      testing::make_problem({2, 4, 2, 3, 4, 4, 2, 2},
                            {learned({causal(), window(0, 2)}), sliding(1), global(), causal_dynamic(3, 1)});
  problem.rope = ropes()[2];
  problem.collapse = CollapseKind::kGlobal;
  Call call(problem, testing::kAlphas | testing::kSinks, 11);
  const reference::Gradients gradients = call.backward();
  const auto expect = [&](const char* name, std::vector<double>& array, const std::vector<double>& gradient) {
    for (std::size_t at = 0; at < array.size(); ++at) {
      std::vector<double> direction(array.size());
      direction[at] = 1;
      EXPECT_NEAR(slope(call, array, direction), gradient[at], 1e-8) << name << " " << at;
    }
  };
  expect("query", call.query, gradients.query);
  expect("key", call.key, gradients.key);
  expect("value", call.value, gradients.value);
  expect("alpha_q", call.alpha_q, gradients.alpha_q);
  expect("alpha_k", call.alpha_k, gradients.alpha_k);
  expect("alpha_v", call.alpha_v, gradients.alpha_v);
  expect("collapse", call.collapse, gradients.collapse);
  expect("sinks", call.sinks, gradients.sinks);
  expect("mode_weights", call.mode_weights, gradients.mode_weights);
  expect("block_weights", call.block_weights, gradients.block_weights);
}

}  // namespace
}  // namespace iha
