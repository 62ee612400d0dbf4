// Rules that hold on every path: what a query does not see never reaches it, bit for bit and for NaN and
// infinity; rows that see nothing; the same bits on any number of threads; strides, upstream gradients and
// empty sizes.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/ops/operator_call.h"

namespace iha {
namespace {

using testing::add_mixing;
using testing::gradients;
using testing::OperatorCall;
using testing::random_operator_call;
using testing::same_bits;
using testing::Sizes;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr at::ScalarType kDtypes[] = {at::kDouble, at::kFloat, at::kBFloat16};

const std::vector<std::string> kCausalModes{"causal",
                                            "causal_sliding:2",
                                            "causal_sliding:0",
                                            "causal_strided:3",
                                            "causal_every:2",
                                            "causal_chunked:4",
                                            "window:3:0",
                                            "causal_sliding:1+first:2",
                                            "causal_chunked:3+first:1",
                                            "causal_dynamic:2:1",
                                            "learned(causal_sliding:1|causal_strided:3|causal)"};

// The options that may send a call down another path, one at a time and mixed.
std::vector<std::pair<std::string, std::function<void(OperatorCall&)>>> variations() {
  const auto documents = [](OperatorCall& call) {
    const int64_t batch = call.key.size(0), keys = call.key.size(2);
    call.options.documents = at::arange(batch * keys).reshape({batch, keys}).remainder(3).div(2, "floor");
  };
  const auto sinks = [](OperatorCall& call) {
    call.options.sinks = at::randn({call.query.size(1)}).to(call.query.scalar_type());
  };
  const auto dropout = [](OperatorCall& call) {
    call.options.dropout_p = 0.3;
    call.options.dropout_seed = 7;
  };
  return {
      {"plain", [](OperatorCall&) {}},
      {"dropout", dropout},
      {"sinks", sinks},
      {"documents", documents},
      {"lengths",
       [](OperatorCall& call) { call.options.key_lengths = at::full({call.key.size(0)}, 8, at::kLong); }},
      {"token RoPE", [](OperatorCall& call) { call.options.rope = "token"; }},
      {"P 2 flat virtual",
       [](OperatorCall& call) {
         add_mixing(call, 2);
         call.options.rope = "virtual";
       }},
      {"P 3 token order",
       [](OperatorCall& call) {
         add_mixing(call, 3);
         call.options.order = "token";
       }},
      {"P 2 parallel",
       [](OperatorCall& call) {
         add_mixing(call, 2);
         call.options.layout = "parallel";
       }},
      {"everything",
       [=](OperatorCall& call) {
         add_mixing(call, 2);
         documents(call);
         sinks(call);
         dropout(call);
         call.options.rope = "virtual";
       }},
  };
}

at::Tensor with_token(const at::Tensor& x, int64_t token, double value) {
  at::Tensor changed = x.detach().clone();
  changed.select(2, token).fill_(value);
  return changed.requires_grad_(true);
}

TEST(Visibility, CausalRowsKeepEveryBitWhenALaterTokenChanges) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::string& mode : kCausalModes) {
      for (const auto& [name, vary] : variations()) {
        SCOPED_TRACE(mode + ", " + name + ", " + c10::toString(dtype));
        OperatorCall call = random_operator_call({2, 4, 2, 9, 9, 8, 8}, mode, dtype);
        vary(call);
        const at::Tensor out = call.attention();
        const at::Tensor lse = std::get<1>(call.attention_with_lse());
        for (const int64_t token : {8, 5, 1}) {
          for (const double value : {3.0, 1e30, kInfinity, kNaN}) {
            OperatorCall changed = call;
            changed.query = with_token(call.query, token, value);
            changed.key = with_token(call.key, token, value);
            changed.value = with_token(call.value, token, value);
            ASSERT_TRUE(same_bits(out.narrow(2, 0, token), changed.attention().narrow(2, 0, token)))
                << token << value;
            ASSERT_TRUE(same_bits(lse.narrow(2, 0, token),
                                  std::get<1>(changed.attention_with_lse()).narrow(2, 0, token)));
          }
        }
      }
    }
  }
}

TEST(Visibility, CausalityHoldsOverManyTiles) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    OperatorCall call = random_operator_call({1, 2, 2, 400, 400, 16, 16}, "causal,causal_sliding:70", dtype);
    const at::Tensor out = call.attention();
    for (const int64_t token : {399, 257, 130}) {
      OperatorCall changed = call;
      changed.key = with_token(call.key, token, kNaN);
      changed.value = with_token(call.value, token, 7);
      EXPECT_TRUE(same_bits(out.narrow(2, 0, token), changed.attention().narrow(2, 0, token))) << token;
    }
  }
}

// For any pattern: rows of heads that do not see token j keep their bits, rows that see its NaN become NaN.
TEST(Visibility, NothingHiddenReachesARowAndWhatIsVisibleDoes) {
  for (const at::ScalarType dtype : kDtypes) {
    for (uint64_t seed = 1, checked = 0; checked < 60; ++seed) {
      testing::Call drawn = testing::random_call(seed);
      Problem& problem = drawn.problem;
      if (!testing::askable(drawn) || problem.dropout_p > 0) continue;
      ++checked;
      SCOPED_TRACE(testing::describe(problem));
      testing::round_to(drawn, dtype);
      const OperatorCall call = testing::operator_call(drawn, dtype);
      const Visibility visible(problem);
      const auto [parts, lse] = call.attention_with_lse();
      const int64_t j = static_cast<int64_t>(seed) % problem.keys;
      for (const double value : {kNaN, kInfinity}) {
        OperatorCall changed = call;
        changed.key = with_token(call.key, j, value);
        changed.value = with_token(call.value, j, kNaN);
        const auto [new_parts, new_lse] = changed.attention_with_lse();
        for (int64_t b = 0; b < problem.batch; ++b) {
          for (int64_t h = 0; h < problem.query_heads; ++h) {
            for (int64_t i = 0; i < problem.queries; ++i) {
              for (int64_t p = 0; p < problem.pseudo_heads; ++p) {
                bool sees = false;
                for (int64_t r = 0; r < problem.pseudo_heads; ++r) sees = sees || visible(b, h, i, p, j, r);
                const at::Tensor found = new_parts[b][h][i][p];
                if (sees) {
                  ASSERT_TRUE(found.isnan().all().item<bool>()) << b << h << i << p;
                } else {
                  ASSERT_TRUE(same_bits(found, parts[b][h][i][p])) << b << h << i << p;
                  ASSERT_TRUE(same_bits(new_lse[b][h][i][p], lse[b][h][i][p])) << b << h << i << p;
                }
              }
            }
          }
        }
      }
    }
  }
}

// Padded keys hold NaN or infinity: everything, gradients of mixing weights included, is as with zeros there,
// and the padded keys' own gradients are 0.
TEST(Visibility, PaddingMayHoldAnything) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t pseudo_heads : {1, 2}) {
      for (const double value : {kNaN, kInfinity, -kInfinity, 1e38}) {
        SCOPED_TRACE(::testing::Message() << dtype << " P " << pseudo_heads << " " << value);
        OperatorCall call = random_operator_call({2, 2, 2, 9, 9, 8, 8}, "global,causal", dtype);
        if (pseudo_heads > 1) add_mixing(call, pseudo_heads);
        call.options.key_lengths = at::full({2}, 6, at::kLong);
        OperatorCall zeros = call, dirty = call;
        for (auto [run, fill] : {std::pair{&zeros, 0.0}, {&dirty, value}}) {
          for (at::Tensor* x : {&run->key, &run->value}) {
            at::Tensor changed = x->detach().clone();
            changed.narrow(2, 6, 3).fill_(fill);
            *x = changed.requires_grad_(true);
          }
        }
        const at::Tensor expected = zeros.attention(), out = dirty.attention();
        ASSERT_TRUE(same_bits(out, expected));
        const at::Tensor upstream = at::randn_like(out);
        const auto right = gradients(zeros, {expected}, {upstream}),
                   found = gradients(dirty, {out}, {upstream});
        for (size_t input = 0; input < found.size(); ++input) {
          if (!found[input].defined()) continue;
          EXPECT_TRUE(found[input].isfinite().all().item<bool>()) << testing::kInputNames[input];
          EXPECT_TRUE(same_bits(found[input], right[input])) << testing::kInputNames[input];
        }
        EXPECT_EQ(found[ops::kKey].narrow(2, 6, 3).count_nonzero().item<int64_t>(), 0);
      }
    }
  }
}

TEST(Visibility, ANaNQueryIsNaNAndAlone) {
  OperatorCall call = random_operator_call({}, "global");
  const at::Tensor out = call.attention();
  OperatorCall changed = call;
  changed.query = with_token(call.query, 4, kNaN);
  const at::Tensor found = changed.attention();
  EXPECT_TRUE(found.select(2, 4).isnan().all().item<bool>());
  EXPECT_TRUE(same_bits(found.narrow(2, 0, 4), out.narrow(2, 0, 4)));
  EXPECT_TRUE(same_bits(found.narrow(2, 5, 4), out.narrow(2, 5, 4)));
}

TEST(Visibility, AVisibleInfinityArrives) {
  OperatorCall call = random_operator_call({1, 1, 1, 3, 3, 4, 4}, "causal");
  call.value = with_token(call.value, 1, kInfinity);
  const at::Tensor out = call.attention();
  EXPECT_TRUE(out.select(2, 0).isfinite().all().item<bool>());
  EXPECT_TRUE((out.narrow(2, 1, 2) == kInfinity).all().item<bool>());
}

// Masks of two causes over one cell, and 16-bit scores at the end of their range, give weight 0 and no NaN.
TEST(Visibility, LargeScoresStayFinite) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat}) {
    OperatorCall call = random_operator_call({1, 1, 1, 6, 6, 64, 8}, "causal_sliding:2", dtype);
    call.query = at::full_like(call.query, 40).requires_grad_(true);
    call.key = at::full_like(call.key, 40).requires_grad_(true);
    call.options.key_lengths = at::tensor(std::vector<int64_t>{4}, at::kLong);
    const at::Tensor out = call.attention();
    EXPECT_TRUE(out.isfinite().all().item<bool>());
    for (const at::Tensor& gradient : gradients(call, {out}, {at::ones_like(out)})) {
      if (gradient.defined()) {
        EXPECT_TRUE(gradient.isfinite().all().item<bool>());
      }
    }
  }
}

TEST(EmptyRows, GiveZeroAndTakeNoGradient) {
  // S = 4, window 1, keys 2 and 3 padded, q = k = 0: values 1 2 3 4 give 1, 1.5, 2, 0.
  OperatorCall call = random_operator_call({1, 1, 1, 4, 4, 2, 1}, "causal_sliding:1");
  call.query = at::zeros_like(call.query).requires_grad_(true);
  call.key = at::zeros_like(call.key).requires_grad_(true);
  call.value = at::arange(1, 5, at::kFloat).reshape({1, 1, 4, 1}).requires_grad_(true);
  call.options.key_lengths = at::tensor(std::vector<int64_t>{2}, at::kLong);
  const at::Tensor out = call.attention();
  EXPECT_TRUE(at::equal(out.flatten(), at::tensor({1.0F, 1.5F, 2.0F, 0.0F})));
  at::Tensor upstream = at::ones_like(out);
  upstream.select(2, 3).fill_(kNaN);  // outside the loss, in the worst way
  const auto found = gradients(call, {out}, {upstream});
  EXPECT_TRUE(at::equal(found[ops::kValue].flatten(), at::tensor({1.5F, 1.5F, 0.0F, 0.0F})));
  EXPECT_TRUE(found[ops::kQuery].isfinite().all().item<bool>());
  EXPECT_TRUE(found[ops::kKey].isfinite().all().item<bool>());
  const at::Tensor lse = std::get<1>(call.attention_with_lse());
  EXPECT_EQ(lse[0][0][3][0].item<float>(), -kInfinity);
}

TEST(EmptyRows, UpstreamNaNOfAnEmptyRowReachesNoParameter) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    OperatorCall call =
        random_operator_call({2, 2, 2, 5, 2, 4, 4}, "causal", dtype);  // rows 0 to 2 see nothing
    add_mixing(call, 2);
    call.options.sinks = at::randn({2}).to(dtype).requires_grad_(true);
    const auto [parts, lse] = call.attention_with_lse();
    EXPECT_EQ(parts.narrow(2, 0, 3).count_nonzero().item<int64_t>(), 0);
    at::Tensor grad_parts = at::ones_like(parts), grad_lse = at::ones_like(lse);
    grad_parts.narrow(2, 0, 3).fill_(kNaN);
    grad_lse.narrow(2, 0, 3).fill_(kNaN);
    const auto found = gradients(call, {parts, lse}, {grad_parts, grad_lse});
    for (size_t input = 0; input < found.size(); ++input) {
      if (found[input].defined()) {
        EXPECT_TRUE(found[input].isfinite().all().item<bool>()) << testing::kInputNames[input];
      }
    }
  }
}

TEST(Alignment, QueriesStandAtTheEndOfTheKeys) {
  // Equal scores: a row's output counts the keys that it sees.
  const auto visible = [](int64_t queries, int64_t keys, const std::string& mode) {
    OperatorCall call = random_operator_call({1, 1, 1, queries, keys, 2, 1}, mode);
    call.query = at::zeros_like(call.query);
    call.value = at::zeros_like(call.value);
    call.value.select(2, 0).fill_(1);
    const at::Tensor lse = std::get<1>(call.attention_with_lse()).flatten();
    const at::Tensor counts = lse.exp().round().to(at::kLong);
    return std::vector<int64_t>(counts.const_data_ptr<int64_t>(), counts.const_data_ptr<int64_t>() + queries);
  };
  using Counts = std::vector<int64_t>;
  EXPECT_EQ(visible(2, 5, "causal"), (Counts{4, 5}));
  EXPECT_EQ(visible(1, 5, "causal"), (Counts{5}));
  EXPECT_EQ(visible(5, 2, "causal"), (Counts{0, 0, 0, 1, 2}));
  EXPECT_EQ(visible(5, 5, "causal_sliding:1"), (Counts{1, 2, 2, 2, 2}));
  EXPECT_EQ(visible(5, 5, "causal_sliding:0"), (Counts{1, 1, 1, 1, 1}));
  EXPECT_EQ(visible(5, 5, "causal_sliding:9"), (Counts{1, 2, 3, 4, 5}));
  EXPECT_EQ(visible(1, 4, "causal_sliding:1"), (Counts{2}));
  for (const int64_t tokens : {1, 31, 32, 33, 38, 70}) {
    const Counts counts = visible(tokens, tokens, "sliding:8");
    for (int64_t i = 0; i < tokens; ++i) {
      EXPECT_EQ(counts[i], std::min<int64_t>(tokens - 1, i + 8) - std::max<int64_t>(0, i - 8) + 1);
    }
  }
}

TEST(HeadMapping, QueryHeadsOfAGroupLieTogether) {
  OperatorCall call = random_operator_call({1, 4, 2, 3, 3, 4, 4}, "global");
  call.value = at::arange(2, at::kFloat).reshape({1, 2, 1, 1}).expand({1, 2, 3, 4});
  const at::Tensor out = call.attention().select(2, 0).select(2, 0).flatten();
  EXPECT_TRUE(at::allclose(out, at::tensor({0.0F, 0.0F, 1.0F, 1.0F})));
}

TEST(Mixing, IdentityAndPermutationAreExact) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    OperatorCall call = random_operator_call({2, 3, 3, 7, 7, 8, 8}, "causal", dtype);
    const at::Tensor plain = call.attention();
    const at::Tensor identity = at::eye(3, at::TensorOptions().dtype(dtype)).unsqueeze(2);
    for (auto* alpha : {&call.options.alpha_q, &call.options.alpha_k, &call.options.alpha_v})
      *alpha = identity;
    EXPECT_TRUE(same_bits(call.attention(), plain));
    const at::Tensor order = at::tensor(std::vector<int64_t>{2, 0, 1}, at::kLong);
    // alpha[m, h] = 1 where m = order[h]: head h is made of head order[h].
    const at::Tensor permuted = identity.index_select(1, order);
    for (auto* alpha : {&call.options.alpha_q, &call.options.alpha_k, &call.options.alpha_v})
      *alpha = permuted;
    EXPECT_TRUE(same_bits(call.attention(), plain.index_select(1, order)));
  }
}

TEST(Threads, EveryBitIsTheSame) {
  const int threads = at::get_num_threads();
  const std::vector<std::pair<Sizes, std::string>> calls{
      {{2, 4, 2, 130, 130, 16, 16}, "causal,sliding:9,global,causal_strided:3"},
      {{1, 1, 1, 1, 70'000, 8, 8}, "global"},
      {{3, 1, 1, 700, 700, 1, 1}, "causal"},
  };
  for (const at::ScalarType dtype : kDtypes) {
    for (size_t which = 0; which < calls.size(); ++which) {
      for (const int64_t pseudo_heads : {1, 2}) {
        if (pseudo_heads == 2 && which == 1) continue;
        SCOPED_TRACE(::testing::Message() << "call " << which << " P " << pseudo_heads << " " << dtype);
        OperatorCall call = random_operator_call(calls[which].first, calls[which].second, dtype);
        if (pseudo_heads > 1) add_mixing(call, pseudo_heads);
        call.options.sinks = at::randn({calls[which].first.query_heads}).to(dtype).requires_grad_(true);
        call.options.dropout_p = 0.1;
        call.options.dropout_seed = 3;
        at::Tensor first;
        testing::Gradients first_gradients;
        for (const int count : {1, 2, 3, 7}) {
          at::set_num_threads(count);
          const at::Tensor out = call.attention();
          const auto found = gradients(call, {out}, {at::ones_like(out)});
          if (!first.defined()) {
            first = out;
            first_gradients = found;
          }
          EXPECT_TRUE(same_bits(out, first)) << count;
          for (size_t input = 0; input < found.size(); ++input) {
            if (found[input].defined()) {
              EXPECT_TRUE(same_bits(found[input], first_gradients[input]))
                  << count << testing::kInputNames[input];
            }
          }
        }
      }
    }
  }
  at::set_num_threads(threads);
}

TEST(Strides, UpstreamOfStrideZeroIsTheSameAsOnes) {
  for (const at::ScalarType dtype : kDtypes) {
    OperatorCall call = random_operator_call({}, "causal,sliding:2", dtype);
    add_mixing(call, 2);
    const at::Tensor out = call.attention();
    const at::Tensor one = at::ones({}, out.options());
    const auto expanded = gradients(call, {out}, {one.expand(out.sizes())});
    const at::Tensor again = call.attention();
    const auto dense = gradients(call, {again}, {at::ones(out.sizes(), out.options())});
    for (size_t input = 0; input < dense.size(); ++input) {
      if (dense[input].defined()) {
        EXPECT_TRUE(same_bits(expanded[input], dense[input])) << testing::kInputNames[input];
      }
    }
  }
}

TEST(Strides, ExpandedAndTransposedInputsEqualTheirCopies) {
  OperatorCall call = random_operator_call({1, 2, 2, 4, 3, 4, 4}, "global");
  call.query = at::randn({1, 2, 4, 4}).transpose(2, 3);
  call.key = at::randn({1, 1, 3, 4}).expand({1, 2, 3, 4});
  call.value = at::randn({1, 2, 3, 8}).slice(3, 0, 8, 2);
  OperatorCall copied = call;
  for (at::Tensor* x : {&copied.query, &copied.key, &copied.value}) *x = x->contiguous();
  EXPECT_TRUE(same_bits(call.attention(), copied.attention()));
}

TEST(EmptySizes, AreAnsweredForwardAndBackward) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const Sizes& sizes :
         {Sizes{7, 9, 9, 0, 0, 7, 7}, Sizes{0, 2, 2, 3, 3, 4, 4}, Sizes{2, 2, 2, 3, 0, 4, 4},
          Sizes{2, 2, 2, 0, 3, 4, 4}, Sizes{2, 0, 0, 3, 3, 4, 4}, Sizes{1, 2, 2, 3, 3, 4, 0},
          Sizes{1, 2, 2, 3, 3, 0, 4}}) {
      for (const int64_t pseudo_heads : {1, 2}) {
        SCOPED_TRACE(::testing::Message()
                     << sizes.batch << sizes.query_heads << sizes.queries << sizes.keys << sizes.head_dim
                     << sizes.value_dim << " P " << pseudo_heads << dtype);
        OperatorCall call = random_operator_call(sizes, "causal", dtype);
        if (pseudo_heads > 1) add_mixing(call, pseudo_heads);
        const at::Tensor out = call.attention();
        EXPECT_EQ(out.sizes(),
                  at::IntArrayRef({sizes.batch, sizes.query_heads, sizes.queries, sizes.value_dim}));
        if (sizes.keys == 0) {
          EXPECT_EQ(out.count_nonzero().item<int64_t>(), 0);
        }
        const auto found = gradients(call, {out}, {at::ones_like(out)});
        for (size_t input = 0; input < found.size(); ++input) {
          if (found[input].defined()) {
            EXPECT_TRUE(found[input].isfinite().all().item<bool>());
          }
        }
        const auto [parts, lse] = call.attention_with_lse();
        gradients(call, {parts, lse}, {at::ones_like(parts), at::ones_like(lse)});
        EXPECT_EQ(lse.size(3), pseudo_heads);
      }
    }
  }
}

TEST(Accuracy, ABFloat16GradientRoundsOnce) {
  OperatorCall call = random_operator_call({1, 2, 2, 256, 256, 64, 64}, "causal", at::kBFloat16);
  OperatorCall exact = call;
  for (at::Tensor* x : {&exact.query, &exact.key, &exact.value}) {
    *x = x->detach().to(at::kDouble).requires_grad_(true);
  }
  const at::Tensor out = call.attention(), upstream = at::randn(out.sizes()).to(at::kBFloat16);
  const auto found = gradients(call, {out}, {upstream});
  const at::Tensor right = exact.attention();
  const auto expected = gradients(exact, {right}, {upstream.to(at::kDouble)});
  // torch's own kernel is off by 2.4e-3 (query) to 4.6e-3 (key, value), rounding the exact result by 1.66e-3.
  for (const int input : {ops::kQuery, ops::kKey, ops::kValue}) {
    const double error =
        ((found[input].to(at::kDouble) - expected[input]).norm() / expected[input].norm()).item<double>();
    EXPECT_LT(error, 5e-3) << testing::kInputNames[input];
  }
}

// Values without channels leave the softmax as it is.
TEST(Sizes, ValuesWithoutChannelsKeepTheLogsumexp) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const OperatorCall wide = random_operator_call({1, 2, 2, 5, 5, 4, 3}, "causal", dtype);
    OperatorCall narrow = wide;
    narrow.value = wide.value.detach().slice(3, 0, 0).requires_grad_(true);
    const at::Tensor expected = std::get<1>(wide.attention_with_lse()),
                     lse = std::get<1>(narrow.attention_with_lse());
    EXPECT_TRUE(at::equal(lse, expected));
    const auto right = gradients(wide, {expected}, {at::ones_like(lse)});
    const auto found = gradients(narrow, {lse}, {at::ones_like(lse)});
    EXPECT_TRUE(at::allclose(found[ops::kQuery], right[ops::kQuery]));
    EXPECT_TRUE(at::allclose(found[ops::kKey], right[ops::kKey]));
  }
}

// Steps and chunks as large as an int64, against the oracle's plain predicate.
TEST(Sizes, LargestStepsAndChunks) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t offset : {-4, 0, 2}) {
      for (const Pattern& pattern :
           {every(kLargest), causal_every(kLargest), strided(kLargest), chunked(kLargest),
            causal_chunked(int64_t{1} << 60), window(kLargest, 0)}) {
        OperatorCall call = random_operator_call({1, 1, 1, 6, 6, 4, 4}, "global", dtype);
        call.options.patterns = pattern;
        call.options.query_offset = at::full({1}, offset, at::kLong);
        const at::Tensor lse = std::get<1>(call.attention_with_lse());
        const at::Tensor scores = call.query.matmul(call.key.transpose(2, 3)) / 2;
        for (int64_t i = 0; i < 6; ++i) {
          double sum = 0;
          for (int64_t j = 0; j < 6; ++j) {
            if (visible(pattern, i + offset, j)) sum += std::exp(scores[0][0][i][j].item<double>());
          }
          const double found = lse[0][0][i][0].item<double>();
          if (sum == 0) {
            EXPECT_EQ(found, -std::numeric_limits<double>::infinity()) << to_text(pattern) << " " << offset;
          } else {
            EXPECT_NEAR(found, std::log(sum), 1e-5) << to_text(pattern) << " " << offset << " row " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace iha
