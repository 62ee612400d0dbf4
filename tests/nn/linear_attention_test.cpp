// Linear attention against its quadratic formula in float64, its rules on hidden keys, empty denominators and
// steps, and the layer around it.
#include "iha/nn/linear_attention.h"

#include <ATen/autocast_mode.h>
#include <torch/autograd.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/nn/support.h"

namespace iha::nn {
namespace {

using testing::HasSubstr;
using Arguments = LinearAttentionArguments;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

struct Inputs {
  torch::Tensor query, key, value;
  std::vector<torch::Tensor> all() const { return {query, key, value}; }
  Inputs requiring_grad() const {
    return {query.detach().clone().requires_grad_(), key.detach().clone().requires_grad_(),
            value.detach().clone().requires_grad_()};
  }
};

Inputs inputs(int64_t batch, int64_t heads, int64_t kv_heads, int64_t queries, int64_t keys, int64_t d = 3,
              int64_t dv = 5, torch::Dtype dtype = torch::kFloat64) {
  return {random_input({batch, heads, queries, d}, dtype), random_input({batch, kv_heads, keys, d}, dtype),
          random_input({batch, kv_heads, keys, dv}, dtype)};
}

// The definition: weights phi(q_i) . phi(k_j) of every pair, N x N.
torch::Tensor quadratic(const Inputs& in, const Arguments& arguments) {
  const auto phi = [&](const torch::Tensor& x) {
    return arguments.feature_map == "elu" ? at::elu(x) + 1 : x;
  };
  const auto group = in.query.size(1) / in.key.size(1);
  const auto key = phi(in.key).repeat_interleave(group, 1), value = in.value.repeat_interleave(group, 1);
  auto weights = phi(in.query).matmul(key.transpose(2, 3));
  if (arguments.causal) weights = weights.tril();
  const auto out = weights.matmul(value);
  const bool normalise = arguments.normalise.value_or(arguments.feature_map == "elu");
  return normalise ? out / weights.sum(3, true) : out;
}

std::vector<Arguments> forms() {
  std::vector<Arguments> result;
  for (const auto* map : {"elu", "identity"}) {
    for (const bool causal : {false, true}) {
      result.push_back({.feature_map = map, .causal = causal, .chunk = 4});
    }
  }
  result.push_back({.feature_map = "elu", .normalise = false, .causal = true, .chunk = 4});
  return result;
}

// Sums of N * d products of numbers of size 1, N and d below 100, and a division by a sum of positive
// numbers: 1e4 roundings of 1.1e-16 at most.
constexpr double kExact = 1e-12;

TEST(LinearAttention, EqualsTheQuadraticFormula) {
  torch::manual_seed(1);
  for (const auto& form : forms()) {
    for (const int64_t tokens : {1, 3, 4, 5, 8, 9, 23}) {
      for (const int64_t kv_heads : {1, 2, 4}) {
        SCOPED_TRACE(
            c10::str(form.feature_map, " causal ", form.causal, " tokens ", tokens, " kv ", kv_heads));
        const auto in = inputs(2, 4, kv_heads, tokens, tokens);
        EXPECT_LT(max_difference(linear_attention(in.query, in.key, in.value, form), quadratic(in, form)),
                  kExact);
      }
    }
  }
}

TEST(LinearAttention, GradientsEqualThoseOfTheQuadraticFormula) {
  torch::manual_seed(2);
  for (const auto& form : forms()) {
    SCOPED_TRACE(c10::str(form.feature_map, " causal ", form.causal));
    const auto in = inputs(2, 4, 2, 9, 9).requiring_grad();
    const auto grad_out = random_input({2, 4, 9, 5});
    const auto actual =
        torch::autograd::grad({linear_attention(in.query, in.key, in.value, form)}, in.all(), {grad_out});
    const auto expected = torch::autograd::grad({quadratic(in, form)}, in.all(), {grad_out});
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_LT(max_difference(actual[i], expected[i]), 1e-11) << i;
    }
  }
}

TEST(LinearAttention, QueriesOfAnotherSequence) {
  torch::manual_seed(3);
  for (const int64_t keys : {1, 2, 11}) {
    const auto in = inputs(2, 2, 1, 5, keys);
    EXPECT_LT(max_difference(linear_attention(in.query, in.key, in.value), quadratic(in, {})), kExact);
  }
}

TEST(LinearAttention, ChunksChangeNothing) {
  torch::manual_seed(4);
  const auto in = inputs(2, 4, 2, 37, 37);
  const auto whole = linear_attention(in.query, in.key, in.value, {.causal = true, .chunk = 1000});
  for (const int64_t chunk : {1, 2, 3, 16, 36, 37, 38}) {
    const auto out = linear_attention(in.query, in.key, in.value, {.causal = true, .chunk = chunk});
    EXPECT_LT(max_difference(out, whole), kExact) << chunk;
  }
}

TEST(LinearAttention, LongSequencesGoInSegments) {
  torch::manual_seed(25);
  // 1,024 numbers a token: segments of 256 tokens.
  const auto lengths = torch::tensor({600, 300}, torch::kInt64);
  for (const int64_t chunk : {64, 100, 1000}) {
    const auto in = inputs(2, 8, 2, 600, 600, 64, 4).requiring_grad();
    LinearAttentionState state;
    const auto out =
        linear_attention(in.query, in.key, in.value,
                         {.causal = true, .chunk = chunk, .key_lengths = lengths, .state = &state});
    EXPECT_EQ(state.tokens, 600);
    const auto first = quadratic(in, {.causal = true})[0];
    EXPECT_LT(max_difference(out[0], first), kExact);
    const Inputs short_one{in.query.narrow(0, 1, 1).narrow(2, 0, 300),
                           in.key.narrow(0, 1, 1).narrow(2, 0, 300),
                           in.value.narrow(0, 1, 1).narrow(2, 0, 300)};
    EXPECT_LT(max_difference(out[1].narrow(1, 0, 300), quadratic(short_one, {.causal = true})[0]), kExact);
    const auto grad_out = random_input({8, 600, 4});
    const auto actual = torch::autograd::grad({out[0]}, in.all(), {grad_out});
    const auto expected = torch::autograd::grad({first}, in.all(), {grad_out});
    for (size_t i = 0; i < 3; ++i) EXPECT_LT(max_difference(actual[i], expected[i]), 1e-11) << i;
  }
}

TEST(LinearAttention, NothingOfNTimesNIsMade) {
  // N x N of float64 would be 128 GiB. Equal keys weigh alike, so a query's output is the mean of the values
  // so far: (n + 1) / 2 of the values 1 to n.
  const int64_t tokens = int64_t{1} << 17;
  const auto query = torch::ones({1, 1, tokens, 2}, torch::kFloat64);
  const auto value = torch::arange(1, tokens + 1, torch::kFloat64).view({1, 1, tokens, 1});
  const auto out = linear_attention(query, query, value, {.causal = true});
  EXPECT_LT(max_difference(out / ((value + 1) / 2), torch::ones_like(value)), kExact);
}

TEST(LinearAttention, AnySplitIntoStepsEqualsOnePass) {
  torch::manual_seed(5);
  const auto in = inputs(2, 4, 2, 23, 23);
  for (const auto* map : {"elu", "identity"}) {
    const auto whole = linear_attention(in.query, in.key, in.value, {.feature_map = map, .causal = true});
    for (const auto& split : std::vector<std::vector<int64_t>>{
             {23}, std::vector<int64_t>(23, 1), {0, 5, 0, 18}, {7, 1, 1, 14}, {22, 1}}) {
      LinearAttentionState state;
      std::vector<torch::Tensor> parts;
      int64_t at = 0;
      for (const auto count : split) {
        parts.push_back(linear_attention(in.query.narrow(2, at, count), in.key.narrow(2, at, count),
                                         in.value.narrow(2, at, count),
                                         {.feature_map = map, .causal = true, .chunk = 4, .state = &state}));
        at += count;
      }
      EXPECT_EQ(state.tokens, 23);
      EXPECT_LT(max_difference(torch::cat(parts, 2), whole), kExact);
    }
  }
}

TEST(LinearAttention, AStateIsOfOneSizeAndCarriesGradients) {
  torch::manual_seed(6);
  const auto in = inputs(2, 4, 2, 12, 12).requiring_grad();
  const auto grad_out = random_input({2, 4, 12, 5});
  LinearAttentionState state;
  EXPECT_EQ(state.bytes(), 0);
  std::vector<torch::Tensor> parts;
  for (int64_t at = 0; at < 12; at += 4) {
    parts.push_back(linear_attention(in.query.narrow(2, at, 4), in.key.narrow(2, at, 4),
                                     in.value.narrow(2, at, 4),
                                     {.causal = true, .chunk = 3, .state = &state}));
    EXPECT_EQ(state.bytes(), 2 * 2 * 3 * (5 + 1) * 8);
  }
  const auto actual = torch::autograd::grad({torch::cat(parts, 2)}, in.all(), {grad_out});
  const auto expected = torch::autograd::grad({quadratic(in, {.causal = true})}, in.all(), {grad_out});
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_LT(max_difference(actual[i], expected[i]), 1e-11) << i;
}

TEST(LinearAttention, NothingAfterATokenChangesABitBeforeIt) {
  torch::manual_seed(7);
  for (const auto* map : {"elu", "identity"}) {
    for (const double put : {3.0, kNaN, kInfinity, -kInfinity}) {
      for (const int64_t token : {0, 1, 15, 16, 17, 39}) {
        SCOPED_TRACE(c10::str(map, " ", put, " at ", token));
        auto in = inputs(2, 4, 2, 40, 40, 8, 8, torch::kFloat32);
        const Arguments form{.feature_map = map, .causal = true, .chunk = 16};
        const auto before = linear_attention(in.query, in.key, in.value, form);
        for (auto tensor : in.all()) tensor.select(2, token).fill_(put);
        const auto after = linear_attention(in.query, in.key, in.value, form);
        expect_same_bits(before.narrow(2, 0, token), after.narrow(2, 0, token));
        EXPECT_FALSE(torch::equal(before.select(2, token), after.select(2, token)));
        const auto seen = after.narrow(2, token, 40 - token);
        EXPECT_TRUE(!std::isnan(put) || seen.isnan().all().item<bool>());
      }
    }
  }
}

TEST(LinearAttention, ATokenThatIsNotANumberSpoilsItsOwnChannelAlone) {
  torch::manual_seed(8);
  auto in = inputs(1, 1, 1, 9, 9);
  in.value[0][0][3][2] = kNaN;
  for (const int64_t chunk : {1, 4, 9}) {
    const auto out = linear_attention(in.query, in.key, in.value, {.causal = true, .chunk = chunk});
    const auto expected = torch::zeros({9, 5}, torch::kBool);
    expected.narrow(0, 3, 6).select(1, 2).fill_(true);
    expect_same_bits(out[0][0].isnan(), expected);
  }
}

TEST(LinearAttention, KeysPastTheLengthDoNotExist) {
  torch::manual_seed(10);
  for (const bool causal : {false, true}) {
    auto in = inputs(3, 2, 1, 9, 9);
    const auto lengths = torch::tensor({9, 4, 0}, torch::kInt64);
    for (const auto& [b, length] : {std::pair<int64_t, int64_t>{1, 4}, {2, 0}}) {
      in.key[b].narrow(1, length, 9 - length).fill_(kNaN);
      in.value[b].narrow(1, length, 9 - length).fill_(kInfinity);
    }
    in = in.requiring_grad();
    const Arguments form{.causal = causal, .chunk = 4, .key_lengths = lengths};
    const auto out = linear_attention(in.query, in.key, in.value, form);
    expect_same_bits(out[2], torch::zeros_like(out[2]));
    const Inputs first{in.query.narrow(0, 1, 1).narrow(2, 0, 4), in.key.narrow(0, 1, 1).narrow(2, 0, 4),
                       in.value.narrow(0, 1, 1).narrow(2, 0, 4)};
    EXPECT_LT(max_difference(out[1].narrow(1, 0, 4), quadratic(first, {.causal = causal})[0]), kExact);
    EXPECT_TRUE(out.isfinite().all().item<bool>());
    out.sum().backward();
    for (const auto& tensor : in.all()) EXPECT_TRUE(tensor.grad().isfinite().all().item<bool>());
    EXPECT_EQ(in.key.grad()[2].abs().max().item<double>(), 0);
    EXPECT_EQ(in.value.grad()[1].narrow(1, 4, 5).abs().max().item<double>(), 0);
  }
}

TEST(LinearAttention, PaddedPromptsGoOnFromTheirOwnEnd) {
  torch::manual_seed(11);
  const auto in = inputs(2, 2, 2, 6, 6);
  LinearAttentionState state;
  linear_attention(in.query, in.key, in.value,
                   {.causal = true, .key_lengths = torch::tensor({6, 4}, torch::kInt64), .state = &state});
  const auto next = inputs(2, 2, 2, 1, 1);
  const auto out = linear_attention(next.query, next.key, next.value, {.causal = true, .state = &state});
  const auto joined = [&](const torch::Tensor& a, const torch::Tensor& b) {
    return torch::cat({a.narrow(0, 1, 1).narrow(2, 0, 4), b.narrow(0, 1, 1)}, 2);
  };
  const Inputs whole{joined(in.query, next.query), joined(in.key, next.key), joined(in.value, next.value)};
  EXPECT_LT(max_difference(out[1].select(1, 0), quadratic(whole, {.causal = true})[0].select(1, 4)), kExact);
}

TEST(LinearAttention, ADenominatorOfZeroGivesZeroWithoutAGradient) {
  // q . k is 1 and -1: the weights cancel exactly, the weighted values do not.
  const auto in = Inputs{torch::ones({1, 1, 1, 1}, torch::kFloat64),
                         torch::tensor({1.0, -1.0}, torch::kFloat64).view({1, 1, 2, 1}),
                         torch::tensor({3.0, 5.0}, torch::kFloat64).view({1, 1, 2, 1})}
                      .requiring_grad();
  const Arguments theory{.feature_map = "identity"};
  EXPECT_EQ(linear_attention(in.query, in.key, in.value, theory).item<double>(), -2);
  const Arguments normalised{.feature_map = "identity", .normalise = true};
  const auto out = linear_attention(in.query, in.key, in.value, normalised);
  EXPECT_EQ(out.item<double>(), 0);
  out.sum().backward();
  for (const auto& tensor : in.all()) EXPECT_EQ(tensor.grad().abs().max().item<double>(), 0);
  // Nearly cancelled weights are not clamped.
  const auto key = torch::tensor({1.0, -0.75}, torch::kFloat64).view({1, 1, 2, 1});
  EXPECT_EQ(linear_attention(in.query, key, in.value, normalised).item<double>(), (3 - 0.75 * 5) / 0.25);
}

TEST(LinearAttention, FarNegativeFeaturesKeepTheirProportions) {
  // In float32 elu(-40) + 1 is 0; exp(-40) is not. exp(-200) is, and then nothing is left to divide by.
  const auto query = torch::zeros({1, 1, 1, 1}), value = torch::tensor({1.0f, 2.0f}).view({1, 1, 2, 1});
  const auto far = linear_attention(query, torch::full({1, 1, 2, 1}, -40.0f), value);
  EXPECT_FLOAT_EQ(far.item<float>(), 1.5f);
  EXPECT_EQ(linear_attention(query, torch::full({1, 1, 2, 1}, -200.0f), value).item<float>(), 0);
  // The derivative of elu + 1 is 1 at 0, from either side.
  auto x = torch::tensor({-1.0, 0.0, 2.0}, torch::kFloat64).requires_grad_();
  feature_map("elu", x).sum().backward();
  EXPECT_LT(max_difference(x.grad(), torch::tensor({std::exp(-1.0), 1.0, 1.0}, torch::kFloat64)), 1e-15);
}

TEST(LinearAttention, SumsOf16BitInputsAreFloat32) {
  torch::manual_seed(12);
  for (const auto dtype : {torch::kBFloat16, torch::kFloat16}) {
    const auto in = inputs(2, 2, 1, 33, 33, 8, 8, dtype);
    const Inputs wide{in.query.to(torch::kFloat32), in.key.to(torch::kFloat32), in.value.to(torch::kFloat32)};
    for (const bool causal : {false, true}) {
      LinearAttentionState state;
      Arguments form{.causal = causal, .chunk = 8};
      if (causal) form.state = &state;
      const auto out = linear_attention(in.query, in.key, in.value, form);
      EXPECT_EQ(out.scalar_type(), dtype);
      EXPECT_EQ(state.sums.defined() ? state.sums.scalar_type() : torch::kFloat32, torch::kFloat32);
      form.state = nullptr;
      expect_same_bits(out, linear_attention(wide.query, wide.key, wide.value, form).to(dtype));
    }
  }
}

TEST(LinearAttention, ZeroSizes) {
  for (const bool causal : {false, true}) {
    for (const auto& sizes : std::vector<std::vector<int64_t>>{{0, 2, 2, 5}, {2, 0, 0, 5}, {2, 2, 1, 0}}) {
      const auto in = inputs(sizes[0], sizes[1], sizes[2], sizes[3], sizes[3]).requiring_grad();
      const auto out = linear_attention(in.query, in.key, in.value, {.causal = causal});
      EXPECT_EQ(out.sizes(), at::IntArrayRef({sizes[0], sizes[1], sizes[3], 5}));
      out.sum().backward();
    }
  }
  const auto in = inputs(1, 2, 2, 3, 0);
  expect_same_bits(linear_attention(in.query, in.key, in.value), torch::zeros({1, 2, 3, 5}, torch::kFloat64));
}

TEST(LinearAttention, StridesDoNotMatter) {
  torch::manual_seed(13);
  const auto in = inputs(2, 2, 2, 7, 7);
  const auto odd = [](const torch::Tensor& x) { return x.transpose(1, 3).contiguous().transpose(1, 3); };
  for (const bool causal : {false, true}) {
    const Arguments form{.causal = causal, .chunk = 3};
    expect_same_bits(linear_attention(odd(in.query), odd(in.key), odd(in.value), form),
                     linear_attention(in.query, in.key, in.value, form));
  }
}

TEST(LinearAttention, RefusesWhatDoesNotFit) {
  const auto in = inputs(2, 4, 2, 5, 5);
  const auto call = [&](const Arguments& form) {
    return error_of([&] { linear_attention(in.query, in.key, in.value, form); });
  };
  EXPECT_THAT(call({.feature_map = "relu"}), HasSubstr("'relu', expected 'elu' or 'identity'"));
  EXPECT_THAT(call({.causal = true, .chunk = 0}), HasSubstr("chunk = 0"));
  LinearAttentionState state;
  EXPECT_THAT(call({.state = &state}), HasSubstr("not causal"));
  state.sums = torch::zeros({2, 2, 3, 5}, torch::kFloat64);
  EXPECT_THAT(call({.causal = true, .state = &state}), HasSubstr("expected Double of shape [2, 2, 3, 6]"));
  EXPECT_THAT(call({.key_lengths = torch::tensor({1, 6}, torch::kInt64)}), HasSubstr("expected 0 to 5"));
  EXPECT_THAT(call({.key_lengths = torch::tensor({1}, torch::kInt64)}), HasSubstr("expected Long [2]"));
  EXPECT_THAT(error_of([&] {
                linear_attention(in.query, in.key.narrow(2, 0, 4), in.value.narrow(2, 0, 4),
                                 {.causal = true});
              }),
              HasSubstr("5 queries and 4 keys"));
  EXPECT_THAT(error_of([&] { linear_attention(in.query.narrow(1, 0, 3), in.key, in.value); }),
              HasSubstr("3 query heads is not a multiple of 2 key heads"));
  EXPECT_THAT(error_of([&] { linear_attention(in.query, in.key, in.value.to(torch::kFloat32)); }),
              HasSubstr("value is Float"));
  EXPECT_THAT(error_of([&] { linear_attention(in.query, in.key, in.value.narrow(2, 0, 4)); }),
              HasSubstr("value has shape"));
}

LinearAttention double_layer(const LinearAttentionOptions& options) {
  LinearAttention layer(options);
  layer->to(torch::kFloat64);
  return layer;
}

TEST(LinearAttentionLayer, IsTheFunctionBetweenItsProjections) {
  torch::manual_seed(20);
  for (const auto* map : {"elu", "identity"}) {
    auto layer = double_layer(
        LinearAttentionOptions(12, 4).kv_heads(2).feature_map(map).causal(true).chunk(4).bias(true));
    const auto x = random_input({2, 9, 12});
    const auto split = [](const torch::Tensor& flat, int64_t heads) {
      return flat.unflatten(2, {heads, -1}).transpose(1, 2);
    };
    const Inputs in{split(layer->q_proj.forward(x), 4), split(layer->k_proj.forward(x), 2),
                    split(layer->v_proj.forward(x), 2)};
    const auto expected = layer->out_proj.forward(
        quadratic(in, {.feature_map = map, .causal = true}).transpose(1, 2).flatten(2));
    EXPECT_LT(max_difference(layer(x), expected), kExact);
    layer->train();
    expect_same_bits(layer(x), layer(x));
  }
}

TEST(LinearAttentionLayer, StepsEqualThePass) {
  torch::manual_seed(21);
  for (const bool normalise : {false, true}) {
    auto layer = double_layer(LinearAttentionOptions(12, 3).normalise(normalise).causal(true).chunk(4));
    torch::NoGradGuard no_grad;
    const auto x = random_input({2, 9, 12});
    LinearAttentionState state;
    std::vector<torch::Tensor> parts;
    for (int64_t at = 0; at < 9; ++at) parts.push_back(layer->step(x.narrow(1, at, 1), state));
    EXPECT_LT(max_difference(torch::cat(parts, 1), layer(x)), kExact);
    EXPECT_EQ(state.bytes(), 2 * layer->state_bytes());
    EXPECT_EQ(layer->state_bytes(), 3 * 4 * (normalise ? 5 : 4) * 8);
    layer->to(torch::kBFloat16);
    EXPECT_EQ(layer->state_bytes(), 3 * 4 * (normalise ? 5 : 4) * 4);
  }
}

TEST(LinearAttention, AutocastTakesNothingFromItsSums) {
  torch::manual_seed(23);
  const auto in = inputs(2, 2, 2, 40, 40, 8, 8, torch::kFloat32);
  LinearAttentionState state, cast_state;
  const auto out =
      linear_attention(in.query, in.key, in.value, {.causal = true, .chunk = 16, .state = &state});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto cast =
      linear_attention(in.query, in.key, in.value, {.causal = true, .chunk = 16, .state = &cast_state});
  at::autocast::set_autocast_enabled(at::kCPU, false);
  expect_same_bits(out, cast);
  expect_same_bits(state.sums, cast_state.sums);
}

TEST(LinearAttentionLayer, RunsUnderAutocast) {
  torch::manual_seed(24);
  LinearAttention layer(LinearAttentionOptions(32, 2).causal(true).chunk(16));
  torch::NoGradGuard no_grad;
  const auto x = torch::randn({2, 64, 32});
  const auto expected = layer(x);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto out = layer(x);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(out.scalar_type(), torch::kBFloat16);
  // Four projections whose inputs and results have 8 bits, of numbers below 2.
  EXPECT_LT(max_difference(out, expected), 4 * 2 * 4e-3);
}

TEST(LinearAttentionLayer, ReadsAnotherSequence) {
  torch::manual_seed(22);
  auto layer = double_layer(LinearAttentionOptions(8, 2));
  const auto x = random_input({2, 5, 8}), context = random_input({2, 7, 8});
  const auto lengths = torch::tensor({7, 3}, torch::kInt64);
  const auto out = layer->forward(x, {.context = context, .key_lengths = lengths});
  EXPECT_LT(max_difference(out[1], layer->forward(x.narrow(0, 1, 1),
                                                  {.context = context.narrow(0, 1, 1).narrow(1, 0, 3)})[0]),
            kExact);
}

TEST(LinearAttentionLayer, RefusesWhatDoesNotFit) {
  using Options = LinearAttentionOptions;
  const auto made = [](const Options& options) { return error_of([&] { LinearAttention layer(options); }); };
  EXPECT_THAT(made(Options(10, 3)), HasSubstr("10 is not a multiple of 3 heads"));
  EXPECT_THAT(made(Options(8, 0)), HasSubstr("heads = 0"));
  EXPECT_THAT(made(Options(8, 4).kv_heads(3)), HasSubstr("4 heads is not a multiple of 3 kv_heads"));
  EXPECT_THAT(made(Options(8, 4).head_dim(0)), HasSubstr("head_dim = 0"));
  EXPECT_THAT(made(Options(8, 4).feature_map("softmax")), HasSubstr("'softmax'"));
  EXPECT_THAT(made(Options(8, 4).chunk(0)), HasSubstr("chunk = 0"));
  LinearAttention layer(8, 2);
  LinearAttentionState state;
  EXPECT_THAT(error_of([&] { layer->step(torch::ones({1, 1, 8}), state); }), HasSubstr("causal(true)"));
  EXPECT_THAT(error_of([&] { layer(torch::ones({1, 1, 7})); }), HasSubstr("expected [B, N, 8]"));
  LinearAttention decoder(LinearAttentionOptions(8, 2).causal(true));
  EXPECT_THAT(error_of([&] {
                decoder->forward(torch::ones({1, 1, 8}), {.context = torch::ones({1, 1, 8})});
              }),
              HasSubstr("context for a causal layer"));
}

}  // namespace
}  // namespace iha::nn
