// What the operators refuse, and in which words: operator, what was found, what was expected. All are
// c10::ValueError, which Python sees as ValueError.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/ops/operator_call.h"

namespace iha {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::OperatorCall;
using testing::random_operator_call;
using testing::value_error;

struct Mistake {
  std::string expected;  // part of the message
  std::function<void(OperatorCall&)> make;
};

at::Tensor longs(const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong);
}

const std::vector<Mistake>& mistakes() {
  static const std::vector<Mistake> all{
      {"query has shape [2, 9, 8], expected 4 dimensions",
       [](auto& c) {
         c.query = at::randn({2, 9, 8});
       }},
      {"key has shape [9, 8], expected 4 dimensions",
       [](auto& c) {
         c.key = at::randn({9, 8});
       }},
      {"value has shape [2, 2, 9], expected 4 dimensions",
       [](auto& c) {
         c.value = at::randn({2, 2, 9});
       }},
      {"5 query heads is not a multiple of 2 key heads",
       [](auto& c) {
         c.query = at::randn({2, 5, 9, 8});
       }},
      {"2 query heads is not a multiple of 0 key heads",
       [](auto& c) {
         c.key = c.value = at::randn({2, 0, 9, 8});
       }},
      {"key has shape [3, 2, 9, 8], expected [2, 2, 9, 8]",
       [](auto& c) {
         c.key = at::randn({3, 2, 9, 8});
       }},
      {"key has shape [2, 2, 9, 6], expected [2, 2, 9, 8]",
       [](auto& c) {
         c.key = at::randn({2, 2, 9, 6});
       }},
      {"value has shape [2, 2, 7, 8], expected [2, 2, 9, 8]",
       [](auto& c) {
         c.value = at::randn({2, 2, 7, 8});
       }},
      {"value has shape [2, 1, 9, 8], expected [2, 2, 9, 8]",
       [](auto& c) {
         c.value = at::randn({2, 1, 9, 8});
       }},
      {"query is Long, expected Double, Float, BFloat16 or Half",
       [](auto& c) {
         c.query = at::ones({2, 2, 9, 8}, at::kLong);
       }},
      {"key is Double, expected Float", [](auto& c) { c.key = c.key.detach().to(at::kDouble); }},
      {"value is BFloat16, expected Float", [](auto& c) { c.value = c.value.detach().to(at::kBFloat16); }},
      {"value is on meta, expected cpu", [](auto& c) { c.value = c.value.detach().to(at::kMeta); }},
      {"alpha_q has shape [2, 2], expected [source head, head, pseudo-head]",
       [](auto& c) {
         c.options.alpha_q = at::randn({2, 2});
       }},
      {"alpha_q has shape [2, 2, 0], expected",
       [](auto& c) {
         c.options.alpha_q = at::randn({2, 2, 0});
       }},
      {"alpha_k has shape [3, 2, 2], expected [2, 2, 2]",
       [](auto& c) {
         c.options.alpha_k = at::randn({3, 2, 2});
       }},
      {"alpha_v has shape [2, 2, 3], expected [2, 2, 2]",
       [](auto& c) {
         c.options.alpha_q = at::randn({2, 2, 2});
         c.options.alpha_v = at::randn({2, 2, 3});
       }},
      {"alpha_q is Double, expected Float",
       [](auto& c) {
         c.options.alpha_q = at::randn({2, 2, 2}, at::kDouble);
       }},
      {"collapse has shape [2, 3], expected [2, 1]",
       [](auto& c) {
         c.options.collapse = at::randn({2, 3});
       }},
      {"collapse has shape [2, 3, 1], expected [2, 2, 1]",
       [](auto& c) {
         c.options.collapse = at::randn({2, 3, 1});
       }},
      {"collapse has shape [2], expected [2, 1]", [](auto& c) { c.options.collapse = at::randn({2}); }},
      {"sinks has shape [3], expected [2]", [](auto& c) { c.options.sinks = at::randn({3}); }},
      {"layout is 'paralel', expected interleaved or parallel",
       [](auto& c) { c.options.layout = "paralel"; }},
      {"order is 'Flat', expected flat or token", [](auto& c) { c.options.order = "Flat"; }},
      {"rope is 'yes', expected none or token or virtual", [](auto& c) { c.options.rope = "yes"; }},
      {"rope_style is 'neox', expected adjacent or half", [](auto& c) { c.options.rope_style = "neox"; }},
      {"rope_theta is -1, expected a positive number",
       [](auto& c) {
         c.options.rope = "token";
         c.options.rope_theta = -1;
       }},
      {"head dimension is 7, expected even with RoPE",
       [](auto& c) {
         c.query = c.key = at::randn({2, 2, 9, 7});
         c.options.rope = "token";
       }},
      {"rope_freqs with rope 'none'", [](auto& c) { c.options.rope_freqs = at::ones({2}, at::kDouble); }},
      {"5 rope_freqs for head dimension 8, expected at most half of it",
       [](auto& c) {
         c.options.rope = "token";
         c.options.rope_freqs = at::ones({5}, at::kDouble);
       }},
      {"a RoPE frequency is inf, expected a finite number",
       [](auto& c) {
         c.options.rope = "token";
         c.options.rope_freqs = at::full({2}, std::numeric_limits<double>::infinity(), at::kDouble);
       }},
      {"scale is nan, expected a finite number",
       [](auto& c) { c.options.scale = std::numeric_limits<double>::quiet_NaN(); }},
      {"query_offset is Float, expected Long (int64)",
       [](auto& c) { c.options.query_offset = at::ones({1}); }},
      {"query_offset has shape [3], expected one element or [2]",
       [](auto& c) {
         c.options.query_offset = longs({1, 2, 3});
       }},
      {"expected |position| * P < 2^53", [](auto& c) { c.options.query_offset = longs({int64_t{1} << 53}); }},
      {"key_lengths is Int, expected Long (int64)",
       [](auto& c) { c.options.key_lengths = at::ones({2}, at::kInt); }},
      {"key_lengths has shape [3], expected [2]",
       [](auto& c) {
         c.options.key_lengths = longs({1, 1, 1});
       }},
      {"key length is 10, expected 0 to 9",
       [](auto& c) {
         c.options.key_lengths = longs({1, 10});
       }},
      {"key length is -1, expected 0 to 9",
       [](auto& c) {
         c.options.key_lengths = longs({1, -1});
       }},
      {"key_lengths with 4 queries and 9 keys, expected query_offset too",
       [](auto& c) {
         c.query = at::randn({2, 2, 4, 8});
         c.options.key_lengths = longs({9, 9});
       }},
      {"documents has shape [9], expected [2, 9]",
       [](auto& c) { c.options.documents = at::zeros({9}, at::kLong); }},
      {"with documents the queries lie at 1 to 9, expected within 0 to 8",
       [](auto& c) {
         c.options.documents = at::zeros({2, 9}, at::kLong);
         c.options.query_offset = longs({1});
       }},
      {"dropout_p is 1.5, expected 0 to 1", [](auto& c) { c.options.dropout_p = 1.5; }},
      {"dropout_p is nan, expected 0 to 1",
       [](auto& c) { c.options.dropout_p = std::numeric_limits<double>::quiet_NaN(); }},
      {"patterns 'causal*3'", [](auto& c) { c.options.patterns = causal() * 3; }},
  };
  return all;
}

TEST(Errors, NameTheOperatorWhatWasFoundAndWhatWasExpected) {
  for (const Mistake& mistake : mistakes()) {
    OperatorCall call = random_operator_call({}, "causal");
    mistake.make(call);
    EXPECT_THAT(value_error([&] { call.attention(); }),
                AllOf(HasSubstr("iha::attention: "), HasSubstr(mistake.expected)));
    EXPECT_THAT(value_error([&] { call.attention_with_lse(); }),
                AllOf(HasSubstr("iha::attention_with_lse: "), HasSubstr(mistake.expected)));
  }
}

// A refused call has drawn nothing: the check stands before the seed of dropout.
TEST(Errors, ComeBeforeAnythingIsDrawn) {
  OperatorCall call = random_operator_call({}, "causal");
  call.options.dropout_p = 0.5;
  call.options.sinks = at::randn({3});
  at::manual_seed(1);
  const at::Tensor expected = at::rand({2});
  at::manual_seed(1);
  value_error([&] { call.attention(); });
  EXPECT_TRUE(at::equal(at::rand({2}), expected));
}

TEST(Errors, OfWeightsNameTheRows) {
  const OperatorCall call = random_operator_call({}, "causal");
  const auto message = [&](const at::Tensor& rows) {
    return value_error([&] { attention_weights(call.query, call.key, rows, call.options); });
  };
  EXPECT_THAT(message(longs({0, 9})),
              HasSubstr("iha::attention_weights: rows reach from 0 to 9, expected 0 to 8"));
  EXPECT_THAT(message(longs({-1})), HasSubstr("expected 0 to 8"));
  EXPECT_THAT(message(at::ones({2})),
              HasSubstr("iha::attention_weights: rows is Float [2], expected Long (int64)"));
}

TEST(Errors, DoubleBackwardIsRefusedByName) {
  const OperatorCall call = random_operator_call({}, "causal");
  const at::Tensor out = call.attention();
  const auto first =
      torch::autograd::grad({out}, {call.query}, {at::ones_like(out).requires_grad_(true)}, true, true);
  try {
    torch::autograd::grad({first[0].sum()}, {call.query});
    FAIL() << "expected c10::NotImplementedError";
  } catch (const c10::NotImplementedError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("double backward"));
  }
}

}  // namespace
}  // namespace iha
