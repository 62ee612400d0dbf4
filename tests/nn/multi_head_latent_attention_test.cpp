// Multi-head latent attention against its formula in float64, decoding in both forms and in any split, the
// cache, and RoPE in torch operations.
#include "iha/nn/multi_head_latent_attention.h"

#include <ATen/autocast_mode.h>
#include <torch/autograd.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "iha/nn/rope.h"
#include "iha/patterns/parse.h"
#include "tests/nn/support.h"

namespace iha::nn {
namespace {

using testing::HasSubstr;
using Options = MultiHeadLatentAttentionOptions;
// Chains of four products of widths below 100 in float64.
constexpr double kExact = 1e-12;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

MultiHeadLatentAttention double_layer(const Options& options) {
  MultiHeadLatentAttention layer(options);
  layer->to(torch::kFloat64);
  torch::NoGradGuard no_grad;
  for (auto& parameter : layer->parameters()) parameter.add_(torch::randn_like(parameter) * 0.1);
  return layer;
}

// The rotation to `position` as a matrix [r, r], entry by entry: row vectors times it are turned.
torch::Tensor rotation(int64_t position, int64_t width, double theta, bool half) {
  auto matrix = torch::zeros({width, width}, torch::kFloat64);
  for (int64_t c = 0; c < width / 2; ++c) {
    const double angle = static_cast<double>(position) * std::pow(theta, -2.0 * c / width);
    const auto a = half ? c : 2 * c, b = half ? c + width / 2 : 2 * c + 1;
    matrix[a][a] = matrix[b][b] = std::cos(angle);
    matrix[a][b] = std::sin(angle);
    matrix[b][a] = -std::sin(angle);
  }
  return matrix;
}

torch::Tensor turned(const torch::Tensor& x, const Options& options) {
  std::vector<torch::Tensor> rows;
  for (int64_t n = 0; n < x.size(1); ++n) {
    const auto matrix = rotation(n, x.size(2), options.rope_theta(), options.rope_style() == "half");
    rows.push_back(x.select(1, n).matmul(matrix));
  }
  return torch::stack(rows, 1);
}

torch::Tensor rms(const torch::Tensor& x, const RMSNorm& norm) {
  return x / (x.square().mean(-1, true) + norm->options.eps()).sqrt() * norm->weight;
}

// The formula of the header, head by head, with an N x N mask.
torch::Tensor formula(MultiHeadLatentAttentionImpl& layer, const torch::Tensor& x) {
  const auto& o = layer.options;
  const auto rank = *o.kv_rank(), rope = *o.rope_dim(), nope = *o.nope_dim(), dv = *o.value_dim();
  const auto down = x.matmul(layer.kv_a_proj_with_mqa->weight.t());
  const auto latent = rms(down.slice(2, 0, rank), layer.kv_a_layernorm);
  const auto rope_key = turned(down.slice(2, rank), o);
  const auto query =
      o.query_rank()
          ? rms(x.matmul(layer.q_a_proj->weight.t()), layer.q_a_layernorm).matmul(layer.q_b_proj->weight.t())
          : x.matmul(layer.q_proj->weight.t());
  const auto patterns = o.patterns().expand(o.heads());
  std::vector<torch::Tensor> heads;
  for (int64_t h = 0; h < o.heads(); ++h) {
    const auto q = query.slice(2, h * (nope + rope), (h + 1) * (nope + rope));
    const auto kv =
        latent.matmul(layer.kv_b_proj->weight.slice(0, h * (nope + dv), (h + 1) * (nope + dv)).t());
    const auto whole_query = torch::cat({q.slice(2, 0, nope), turned(q.slice(2, nope), o)}, 2);
    const auto whole_key = torch::cat({kv.slice(2, 0, nope), rope_key}, 2);
    heads.push_back(
        plain_head(whole_query, whole_key, kv.slice(2, nope), visibility(patterns[h], x.size(1), x.size(1))));
  }
  return torch::cat(heads, 2).matmul(layer.o_proj->weight.t());
}

std::vector<Options> variants() {
  const Options base = Options(12, 3).nope_dim(4).rope_dim(6).value_dim(5).kv_rank(7);
  return {base, Options(base).query_rank(5).rope_style("half"), Options(base).rope_dim(0),
          Options(base).patterns(causal_sliding(2) + causal() + causal_strided(2)).rope_theta(100),
          Options(16, 2)};
}

TEST(LatentAttention, EqualsTheFormula) {
  torch::manual_seed(1);
  for (const auto& options : variants()) {
    auto layer = double_layer(options);
    SCOPED_TRACE(printed(*layer));
    for (const int64_t tokens : {1, 2, 9}) {
      const auto x = random_input({2, tokens, options.d_model()});
      EXPECT_LT(max_difference(layer(x), formula(*layer, x)), kExact);
    }
  }
  auto both_ways = double_layer(Options(12, 2).patterns(global() + sliding(1)));
  const auto x = random_input({2, 7, 12});
  EXPECT_LT(max_difference(both_ways(x), formula(*both_ways, x)), kExact);
}

TEST(LatentAttention, GradientsEqualThoseOfTheFormula) {
  torch::manual_seed(2);
  for (const auto& options : variants()) {
    auto layer = double_layer(options);
    auto x = random_input({2, 6, options.d_model()}).requires_grad_();
    const auto grad_out = random_input({2, 6, options.d_model()});
    auto wanted = layer->parameters();
    wanted.push_back(x);
    const auto actual = torch::autograd::grad({layer(x)}, wanted, {grad_out});
    const auto expected = torch::autograd::grad({formula(*layer, x)}, wanted, {grad_out});
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_LT(max_difference(actual[i], expected[i]), 1e-10) << i;
  }
}

TEST(LatentAttention, AnySplitOfDecodingInEitherFormEqualsOnePass) {
  torch::manual_seed(3);
  const std::vector<std::vector<int64_t>> splits{
      {11}, std::vector<int64_t>(11, 1), {0, 4, 0, 7}, {5, 1, 1, 4}, {10, 1}};
  for (const auto& options : variants()) {
    auto layer = double_layer(options);
    const auto x = random_input({2, 11, options.d_model()});
    const auto whole = layer(x);
    for (const auto form : {std::optional<LatentForm>(), std::optional(LatentForm::kPlain),
                            std::optional(LatentForm::kAbsorbed)}) {
      for (const auto& split : splits) {
        auto cache = layer->make_cache(2);
        std::vector<torch::Tensor> parts;
        int64_t at = 0;
        for (const auto count : split) {
          parts.push_back(layer->decode(x.narrow(1, at, count), cache, form));
          at += count;
        }
        EXPECT_LT(max_difference(torch::cat(parts, 1), whole), kExact);
        EXPECT_EQ(cache.tokens(), 11);
        EXPECT_EQ(cache.bytes(), 2 * 11 * layer->cache_bytes_per_token());
      }
    }
  }
}

TEST(LatentAttention, DecodesOnTheEngineToo) {
  torch::manual_seed(4);
  MultiHeadLatentAttention layer(Options(64, 4).query_rank(24));
  layer->eval();
  const auto x = torch::randn({2, 70, 64});
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    layer->to(dtype);
    torch::NoGradGuard no_grad;
    const auto whole = layer(x.to(dtype));
    for (const auto form : {LatentForm::kPlain, LatentForm::kAbsorbed}) {
      auto cache = layer->make_cache(2, 70);
      std::vector<torch::Tensor> parts{layer->decode(x.to(dtype).narrow(1, 0, 66), cache, form)};
      for (int64_t at = 66; at < 70; ++at)
        parts.push_back(layer->decode(x.to(dtype).narrow(1, at, 1), cache, form));
      // A handful of roundings of the dtype, of outputs of this size.
      const double unit = dtype == torch::kFloat32 ? 6e-8 : 4e-3;
      EXPECT_LT(max_difference(torch::cat(parts, 1), whole),
                16 * unit * (1 + whole.abs().max().item<double>()));
    }
  }
}

TEST(LatentAttention, NothingAfterATokenChangesABitBeforeIt) {
  torch::manual_seed(5);
  MultiHeadLatentAttention layer(Options(32, 4));
  torch::NoGradGuard no_grad;
  for (const double put : {3.0, std::numeric_limits<double>::quiet_NaN()}) {
    for (const int64_t token : {0, 1, 31, 32, 39}) {
      const auto x = torch::randn({2, 40, 32});
      const auto before = layer(x);
      x.select(1, token).fill_(put);
      const auto after = layer(x);
      expect_same_bits(before.narrow(1, 0, token), after.narrow(1, 0, token));
      EXPECT_FALSE(torch::equal(before.select(1, token), after.select(1, token)));
    }
  }
}

TEST(LatentAttention, LengthsAndDocumentsHideKeys) {
  torch::manual_seed(6);
  auto layer = double_layer(Options(12, 2).patterns(global()));
  const auto x = random_input({2, 6, 12});
  const auto out = layer->forward(x, {.key_lengths = torch::tensor({6, 3}, torch::kInt64)});
  EXPECT_LT(max_difference(out[1].narrow(0, 0, 3), layer(x.narrow(0, 1, 1).narrow(1, 0, 3))[0]), kExact);
  const auto documents = torch::tensor({{0, 0, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0}}, torch::kInt64);
  const auto apart = layer->forward(x, {.documents = documents});
  EXPECT_LT(max_difference(apart[0].narrow(0, 0, 2), layer(x.narrow(0, 0, 1).narrow(1, 0, 2))[0]), kExact);
  EXPECT_LT(max_difference(apart[1], layer(x)[1]), kExact);
}

TEST(LatentAttention, DropoutIsForTrainingOnly) {
  torch::manual_seed(7);
  auto layer = double_layer(Options(12, 2).dropout(0.5));
  const auto x = random_input({1, 6, 12});
  EXPECT_GT(max_difference(layer(x), layer(x)), 0);
  auto cache = layer->make_cache(1);
  const auto decoded = layer->decode(x, cache);
  EXPECT_FALSE(decoded.requires_grad());
  layer->eval();
  expect_same_bits(layer(x), layer(x));
  EXPECT_LT(max_difference(layer(x), decoded), kExact);
}

TEST(LatentAttention, RunsUnderAutocast) {
  torch::manual_seed(11);
  MultiHeadLatentAttention layer(Options(32, 2).query_rank(16));
  torch::NoGradGuard no_grad;
  const auto x = torch::randn({2, 64, 32});
  const auto expected = layer(x);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto out = layer(x);
  auto cache = layer->make_cache(2);
  const auto decoded =
      torch::cat({layer->decode(x.narrow(1, 0, 63), cache), layer->decode(x.narrow(1, 63, 1), cache)}, 1);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(out.scalar_type(), torch::kBFloat16);
  EXPECT_LT(max_difference(out, expected), 0.02);
  EXPECT_LT(max_difference(decoded, expected), 0.02);
}

TEST(LatentAttention, TheCheaperFormFollowsTheShape) {
  MultiHeadLatentAttention layer(Options(512, 8).nope_dim(64).rope_dim(32).kv_rank(256));
  EXPECT_EQ(layer->cheaper_form(1, 4096), LatentForm::kAbsorbed);
  EXPECT_EQ(layer->cheaper_form(4096, 4096), LatentForm::kPlain);
  EXPECT_EQ(layer->cache_bytes_per_token(), (256 + 32) * 4);
  layer->to(torch::kBFloat16);
  EXPECT_EQ(layer->cache_bytes_per_token(), (256 + 32) * 2);
}

TEST(LatentAttention, ARewoundCacheGoesOnAsIfTheRestHadNotBeen) {
  torch::manual_seed(8);
  auto layer = double_layer(Options(12, 2));
  const auto x = random_input({1, 9, 12});
  auto cache = layer->make_cache(1);
  layer->decode(x.narrow(1, 0, 5), cache);
  LatentCache branch = cache;
  const auto expected = layer(x).narrow(1, 5, 4);
  const auto first = layer->decode(x.narrow(1, 5, 2), branch);
  layer->decode(random_input({1, 4, 12}), cache);  // must not reach the branch
  const auto second = layer->decode(x.narrow(1, 7, 2), branch);
  EXPECT_LT(max_difference(torch::cat({first, second}, 1), expected), kExact);
  cache.truncate(5);
  EXPECT_LT(max_difference(layer->decode(x.narrow(1, 5, 4), cache), expected), kExact);
}

TEST(LatentAttention, ZeroSizes) {
  MultiHeadLatentAttention layer(Options(8, 2));
  for (const auto& [batch, tokens] : {std::pair<int64_t, int64_t>{0, 3}, {2, 0}}) {
    const auto x = torch::randn({batch, tokens, 8});
    EXPECT_EQ(layer(x).sizes(), x.sizes());
    auto cache = layer->make_cache(batch);
    EXPECT_EQ(layer->decode(x, cache, LatentForm::kAbsorbed).sizes(), x.sizes());
    EXPECT_EQ(cache.tokens(), tokens);
  }
}

TEST(LatentAttention, RefusesWhatDoesNotFit) {
  const auto made = [](const Options& options) {
    return error_of([&] { MultiHeadLatentAttention layer(options); });
  };
  EXPECT_THAT(made(Options(10, 3)), HasSubstr("10 is not a multiple of 3 heads; give nope_dim"));
  EXPECT_THAT(made(Options(8, 0)), HasSubstr("heads = 0"));
  EXPECT_THAT(made(Options(8, 2).rope_dim(3)), HasSubstr("rope_dim = 3"));
  EXPECT_THAT(made(Options(8, 2).kv_rank(0)), HasSubstr("kv_rank = 0"));
  EXPECT_THAT(made(Options(8, 2).query_rank(0)), HasSubstr("query_rank = 0"));
  EXPECT_THAT(made(Options(8, 2).value_dim(0)), HasSubstr("value_dim = 0"));
  EXPECT_THAT(made(Options(8, 2).rope_style("whole")), HasSubstr("rope_style = 'whole'"));
  EXPECT_THAT(made(Options(8, 2).rope_theta(0)), HasSubstr("rope_theta = 0"));
  EXPECT_THAT(made(Options(8, 2).dropout(1.5)), HasSubstr("dropout = 1.5"));
  EXPECT_THAT(made(Options(8, 2).norm_eps(-1)), HasSubstr("eps -1"));
  EXPECT_THAT(made(Options(8, 2).patterns(causal() * 3)), HasSubstr("3 patterns for 2 heads"));
  MultiHeadLatentAttention layer(Options(8, 2).patterns(causal() + sliding(1)));
  EXPECT_THAT(error_of([&] { layer(torch::ones({1, 2, 7})); }), HasSubstr("expected [B, N, 8]"));
  auto cache = layer->make_cache(1);
  EXPECT_THAT(error_of([&] {
                layer->decode(torch::ones({1, 1, 8}), cache);
              }),
              HasSubstr("heads 1 (sliding:1)"));
  MultiHeadLatentAttention decoder(8, 2);
  LatentCache narrow(1, 3, torch::kFloat32);
  EXPECT_THAT(error_of([&] {
                decoder->decode(torch::ones({1, 1, 8}), narrow);
              }),
              HasSubstr("3 numbers a token"));
  EXPECT_THAT(error_of([&] {
                decoder->decode(torch::ones({2, 1, 8}), cache);
              }),
              HasSubstr("rows of Float of shape [2, 1"));
  EXPECT_EQ(cache.tokens(), 0);
}

TEST(LatentCache, GrowsWithoutTouchingWhatItHolds) {
  torch::manual_seed(9);
  LatentCache cache(2, 3, torch::kFloat32);
  const auto rows = torch::randn({2, 200, 3});
  for (const int64_t count : {1, 62, 1, 1, 0, 135}) cache.append(rows.narrow(1, cache.tokens(), count));
  expect_same_bits(cache.rows(), rows);
  EXPECT_EQ(cache.bytes(), 2 * 200 * 3 * 4);
  cache.append(rows.transpose(1, 2).contiguous().transpose(1, 2));  // other strides
  expect_same_bits(cache.rows().narrow(1, 200, 200), rows);
}

TEST(LatentCache, RefusesWhatDoesNotFit) {
  LatentCache cache(2, 3, torch::kFloat32, 5);
  EXPECT_THAT(error_of([&] { cache.append(torch::ones({2, 1, 4})); }), HasSubstr("expected Float [2, n, 3]"));
  EXPECT_THAT(error_of([&] { cache.append(torch::ones({2, 1, 3}, torch::kFloat64)); }), HasSubstr("Double"));
  EXPECT_THAT(error_of([&] { cache.truncate(1); }), HasSubstr("expected 0 to 0"));
  EXPECT_THAT(error_of([&] { cache.truncate(-1); }), HasSubstr("truncated to -1"));
  EXPECT_THAT(error_of([&] { LatentCache(-1, 3, torch::kFloat32); }), HasSubstr("batch = -1"));
}

TEST(Rotate, TurnsAsTheFormulaAndBackInTheGradient) {
  torch::manual_seed(10);
  for (const auto style : {RopeStyle::kHalf, RopeStyle::kAdjacent}) {
    for (const int64_t position : {0, 7, 100000}) {
      auto x = random_input({2, 3, 5, 6}).requires_grad_();
      const auto out = rotate(x, position, 10000, style);
      const auto grad_out = random_input({2, 3, 5, 6});
      const auto grad = torch::autograd::grad({out}, {x}, {grad_out})[0];
      for (int64_t n = 0; n < 5; ++n) {
        const auto matrix = rotation(position + n, 6, 10000, style == RopeStyle::kHalf);
        EXPECT_LT(max_difference(out.select(2, n), x.select(2, n).matmul(matrix)), 1e-14);
        EXPECT_LT(max_difference(grad.select(2, n), grad_out.select(2, n).matmul(matrix.t())), 1e-14);
      }
    }
  }
  EXPECT_THAT(error_of([] {
                rotate(torch::ones({1, 3}), 0, 10000, RopeStyle::kHalf);
              }),
              HasSubstr("3 channels"));
}

TEST(Rotate, AnglesOf16BitInputsAreNot16Bit) {
  const auto x = torch::ones({1, 2}, torch::kBFloat16);
  for (const int64_t position : {257, 4095, 99999}) {
    const auto out = rotate(x, position, 10000, RopeStyle::kHalf);
    const auto expected = torch::ones({1, 2}, torch::kFloat64).matmul(rotation(position, 2, 10000, true));
    EXPECT_LT(max_difference(out, expected), 4e-3 * 1.5);  // one rounding to 8 bits of numbers below sqrt(2)
  }
  EXPECT_FALSE(
      torch::equal(rotate(x, 256, 10000, RopeStyle::kHalf), rotate(x, 257, 10000, RopeStyle::kHalf)));
}

}  // namespace
}  // namespace iha::nn
