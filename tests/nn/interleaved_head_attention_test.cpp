// The attention layer against compositions of plain torch operations, its presets, initialisations, modes and
// errors.
#include "iha/nn/interleaved_head_attention.h"

#include <torch/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "iha/nn/bit_linear.h"
#include "tests/nn/support.h"

namespace iha::nn {
namespace {

using Options = InterleavedHeadAttentionOptions;
using testing::HasSubstr;

// The layer from its parameters by plain operations: every head's pseudo-tokens as one long sequence with an
// explicit mask. No RoPE, no sinks; token order (the mask repeats each token's row and column P times).
torch::Tensor composition(InterleavedHeadAttentionImpl& layer, const torch::Tensor& x,
                          const torch::Tensor& context, int64_t offset = 0) {
  const auto& options = layer.options;
  const auto heads = options.heads();
  const auto pseudo_heads = *options.pseudo_heads();
  const auto group = heads / *options.kv_heads();
  const auto split = [](const torch::Tensor& flat, int64_t count) {
    return flat.unflatten(2, {count, -1}).transpose(1, 2);  // [B, H, N, d]
  };
  const auto mix = [](const torch::Tensor& split, const torch::Tensor& alpha) {
    if (!alpha.defined()) return split;
    return torch::einsum("mhp,bmnd->bhnpd", {alpha, split}).flatten(2, 3);  // row n P + p
  };
  const auto query = mix(split(layer.q_proj.forward(x), heads), layer.alpha_q);
  const auto key = mix(split(layer.k_proj.forward(context), *options.kv_heads()), layer.alpha_k);
  const auto value = mix(split(layer.v_proj.forward(context), *options.kv_heads()), layer.alpha_v);
  const auto patterns = options.patterns().expand(heads);
  std::vector<torch::Tensor> parts;
  for (int64_t head = 0; head < heads; ++head) {
    const auto mask = visibility(patterns[head], x.size(1), context.size(1), offset)
                          .repeat_interleave(pseudo_heads, 0)
                          .repeat_interleave(pseudo_heads, 1);
    const auto part =
        plain_head(query.select(1, head), key.select(1, head / group), value.select(1, head / group), mask);
    parts.push_back(part.unflatten(1, {-1, pseudo_heads}));  // [B, N, P, d]
  }
  auto out = torch::stack(parts, 1);  // [B, H, N, P, d]
  if (options.collapse() == "mean") {
    out = out.mean(3);
  } else if (options.collapse() == "per_head") {
    out = torch::einsum("hp,bhnpd->bhnd", {layer.collapse, out});
  } else {
    out = torch::einsum("hmp,bmnpd->bhnd", {layer.collapse, out});
  }
  return layer.out_proj.forward(out.transpose(1, 2).flatten(2));
}

void randomize(InterleavedHeadAttentionImpl& layer) {
  torch::NoGradGuard no_grad;
  for (auto& parameter : layer.named_parameters(/*recurse=*/false)) parameter->normal_();
}

TEST(Layer, PlainHeadsEqualTheComposition) {
  torch::manual_seed(1);
  for (const bool bias : {false, true}) {
    auto layer =
        double_layer(Options::per_head_modes(24, causal() + sliding(1) + global() + strided(2)).bias(bias));
    for (const int64_t tokens : {1, 2, 9}) {
      const auto x = random_input({2, tokens, 24});
      EXPECT_LT(max_difference(layer(x), composition(*layer, x, x)), 1e-12) << tokens;
    }
  }
}

TEST(Layer, PseudoHeadsEqualTheComposition) {
  torch::manual_seed(2);
  for (const auto* collapse : {"mean", "per_head", "global"}) {
    for (const int64_t kv_heads : {1, 2, 4}) {
      SCOPED_TRACE(c10::str(collapse, " kv_heads ", kv_heads));
      auto layer = double_layer(Options(16, 4)
                                    .kv_heads(kv_heads)
                                    .head_dim(3)
                                    .pseudo_heads(3)
                                    .patterns(causal() * 2 + global() * 2)
                                    .order("token")
                                    .collapse(collapse)
                                    .bias(true));
      randomize(*layer);
      const auto x = random_input({2, 6, 16});
      EXPECT_LT(max_difference(layer(x), composition(*layer, x, x)), 1e-11);
    }
  }
}

TEST(Layer, GradientsEqualThoseOfTheComposition) {
  torch::manual_seed(3);
  auto layer =
      double_layer(Options(12, 2).kv_heads(1).pseudo_heads(2).patterns(sliding(1) + causal()).order("token"));
  randomize(*layer);
  auto x = random_input({2, 5, 12}).requires_grad_();
  const auto grad_out = random_input({2, 5, 12});
  auto inputs = layer->parameters();
  inputs.push_back(x);
  const auto actual = torch::autograd::grad({layer(x)}, inputs, {grad_out});
  const auto expected = torch::autograd::grad({composition(*layer, x, x)}, inputs, {grad_out});
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_LT(max_difference(actual[i], expected[i]), 1e-10) << i;
}

TEST(Layer, FewerKeyHeadsEqualRepeatedOnes) {
  torch::manual_seed(4);
  auto grouped = double_layer(Options::per_head_modes(8, causal() * 4).kv_heads(2));
  auto full = double_layer(Options::per_head_modes(8, causal() * 4));
  const auto repeat = [](const torch::Tensor& weight) {
    return weight.unflatten(0, {2, 2}).repeat_interleave(2, 0).flatten(0, 1);  // kv heads 0, 0, 1, 1
  };
  torch::NoGradGuard no_grad;
  auto from = grouped->named_parameters();
  for (auto& parameter : full->named_parameters()) {
    const bool key_side = parameter.key()[0] == 'k' || parameter.key()[0] == 'v';
    parameter->copy_(key_side ? repeat(from[parameter.key()]) : from[parameter.key()]);
  }
  const auto x = random_input({2, 6, 8});
  EXPECT_LT(max_difference(grouped(x), full(x)), 1e-13);
}

TEST(Layer, CrossAttentionReadsTheContext) {
  torch::manual_seed(5);
  auto layer =
      double_layer(Options(12, 3).pseudo_heads(2).order("token").patterns(causal() + global() + sliding(2)));
  randomize(*layer);
  const auto x = random_input({2, 4, 12});
  const auto context = random_input({2, 9, 12});
  // Queries are the last tokens of the context unless the call says otherwise.
  EXPECT_LT(max_difference(layer->forward(x, {.context = context}), composition(*layer, x, context, 5)),
            1e-11);
  EXPECT_LT(max_difference(layer->forward(x, {.context = context, .query_offset = torch::tensor({2})}),
                           composition(*layer, x, context, 2)),
            1e-11);
  const auto weights = layer->weights(x, torch::arange(4), {.context = context});
  EXPECT_EQ(weights.sizes(), at::IntArrayRef({2, 3, 4, 2, 9, 2}));
  EXPECT_LT(max_difference(weights.flatten(4).sum(-1), torch::ones({2, 3, 4, 2}, torch::kFloat64)), 1e-13);
}

TEST(Layer, LengthsAndDocumentsHideTokens) {
  torch::manual_seed(6);
  auto layer = double_layer(Options::interleaved(8, 2));
  const auto x = random_input({2, 6, 8});
  auto changed = x.clone();
  changed.select(0, 1).slice(0, 4) += 1;
  const AttentionCall lengths{.key_lengths = torch::tensor({6, 4})};
  expect_same_bits(layer->forward(x, lengths).slice(1, 0, 4),
                   layer->forward(changed, lengths).slice(1, 0, 4));
  const AttentionCall documents{.documents = torch::tensor({{0, 0, 0, 0, 0, 0}, {3, 3, 3, 3, 1, 1}})};
  expect_same_bits(layer->forward(x, documents).slice(1, 0, 4),
                   layer->forward(changed, documents).slice(1, 0, 4));
  EXPECT_GT(max_difference(layer(x).slice(1, 0, 4), layer(changed).slice(1, 0, 4)), 1e-6);
}

TEST(Layer, WeightsAreThoseOfTheForwardPass) {
  torch::manual_seed(7);
  auto layer = double_layer(Options::per_head_modes(8, causal() + sliding(1)).dropout(0.5));
  const auto x = random_input({2, 5, 8});
  const auto weights = layer->weights(x, torch::tensor({4, 0}));
  ASSERT_EQ(weights.sizes(), at::IntArrayRef({2, 2, 2, 1, 5, 1}));
  const auto rows = weights.squeeze(-1).squeeze(3);  // [B, H, R, N]
  EXPECT_LT(max_difference(rows.sum(-1), torch::ones({2, 2, 2}, torch::kFloat64)), 1e-13);
  layer->eval();
  const auto value = layer->v_proj.forward(x).unflatten(2, {2, 4}).transpose(1, 2);
  const auto out = layer->out_proj.forward(rows.matmul(value).transpose(1, 2).flatten(2));
  EXPECT_LT(max_difference(out, layer(x).index_select(1, torch::tensor({4, 0}))), 1e-12);
  auto wide = double_layer(Options::interleaved(8, 2, 3));
  EXPECT_EQ(wide->weights(x, torch::tensor({1})).sizes(), at::IntArrayRef({2, 2, 1, 3, 5, 3}));
}

TEST(Layer, EmptyBatchesAndSequencesWork) {
  InterleavedHeadAttention layer(Options::interleaved(8, 2));
  EXPECT_EQ(layer(torch::ones({0, 3, 8})).sizes(), at::IntArrayRef({0, 3, 8}));
  EXPECT_EQ(layer(torch::ones({2, 0, 8})).sizes(), at::IntArrayRef({2, 0, 8}));
}

TEST(Layer, FitsIntoASequential) {
  InterleavedHeadAttention layer(Options::mixed_heads(8, 2));
  torch::nn::Sequential sequence(layer, torch::nn::Linear(8, 3));
  EXPECT_EQ(sequence->forward(torch::ones({2, 4, 8})).sizes(), at::IntArrayRef({2, 4, 3}));
}

TEST(Layer, DropoutActsInTrainingOnly) {
  torch::manual_seed(8);
  InterleavedHeadAttention layer(Options::interleaved(8, 2).dropout(0.8));
  const auto x = torch::randn({1, 9, 8});
  EXPECT_GT(max_difference(layer(x), layer(x)), 0);
  torch::manual_seed(9);
  const auto once = layer(x);
  torch::manual_seed(9);
  expect_same_bits(once, layer(x));
  layer->eval();
  const auto quiet = layer(x);
  expect_same_bits(quiet, layer(x));
  layer->train();
  layer->options.dropout(0);
  expect_same_bits(quiet, layer(x));
}

TEST(Layer, BitLinearIsOneOptionForEveryProjection) {
  torch::manual_seed(10);
  auto layer = double_layer(Options::per_head_modes(8, causal() * 2).bit_linear(true));
  for (auto* projection : {&layer->q_proj, &layer->k_proj, &layer->v_proj, &layer->out_proj}) {
    EXPECT_NE(projection->ptr()->as<BitLinearImpl>(), nullptr);
  }
  const auto x = random_input({2, 5, 8});
  EXPECT_LT(max_difference(layer(x), composition(*layer, x, x)), 1e-12);
}

TEST(Presets, AreTheFourDesigns) {
  const auto interleaved = resolve(Options::interleaved(24, 3));
  EXPECT_EQ(*interleaved.pseudo_heads(), 3);
  EXPECT_EQ(interleaved.layout(), "interleaved");
  EXPECT_EQ(interleaved.order(), "flat");
  EXPECT_EQ(interleaved.rope(), "virtual");
  EXPECT_EQ(interleaved.collapse(), "global");
  const auto averaged = resolve(Options::averaged(24, 3, 5));
  EXPECT_EQ(*averaged.pseudo_heads(), 5);
  EXPECT_EQ(averaged.layout(), "parallel");
  EXPECT_EQ(averaged.collapse(), "mean");
  EXPECT_EQ(averaged.rope(), "none");
  const auto modes = resolve(Options::per_head_modes(24, causal() * 2 + sliding(3)));
  EXPECT_EQ(modes.heads(), 3);
  EXPECT_EQ(*modes.pseudo_heads(), 1);
  EXPECT_FALSE(modes.mixing());
  const auto mixed = resolve(Options::mixed_heads(24, 3));
  EXPECT_EQ(*mixed.pseudo_heads(), 1);
  EXPECT_TRUE(mixed.mixing());
  EXPECT_EQ(*mixed.head_dim(), 8);
  EXPECT_EQ(*mixed.kv_heads(), 3);
}

TEST(Presets, OwnTheParametersOfTheirDesign) {
  const auto shapes = [](const Options& options) {
    InterleavedHeadAttention layer(options);
    std::string text;
    for (const auto& parameter : layer->named_parameters(/*recurse=*/false)) {
      text += c10::str(parameter.key(), parameter->sizes(), " ");
    }
    return text;
  };
  EXPECT_EQ(shapes(Options::interleaved(8, 2, 3)),
            "alpha_q[2, 2, 3] alpha_k[2, 2, 3] alpha_v[2, 2, 3] collapse[2, 2, 3] ");
  EXPECT_EQ(shapes(Options::interleaved(8, 4, 3).kv_heads(2).collapse("per_head").sinks(true)),
            "alpha_q[4, 4, 3] alpha_k[2, 2, 3] alpha_v[2, 2, 3] collapse[4, 3] sinks[4] ");
  EXPECT_EQ(shapes(Options::averaged(8, 2)), "alpha_q[2, 2, 2] alpha_k[2, 2, 2] alpha_v[2, 2, 2] ");
  EXPECT_EQ(shapes(Options::mixed_heads(8, 2)), "alpha_q[2, 2, 1] alpha_k[2, 2, 1] alpha_v[2, 2, 1] ");
  EXPECT_EQ(shapes(Options::per_head_modes(8, causal() * 2)), "");
  EXPECT_EQ(shapes(Options(8, 2).mixing(false)), "");
}

template <class Count>
concept TakenAsPseudoHeads = requires(Options options, Count count) {
  options.pseudo_heads(count);
};
static_assert(TakenAsPseudoHeads<int> && TakenAsPseudoHeads<std::optional<int64_t>>);
static_assert(!TakenAsPseudoHeads<double>);

TEST(Errors, NameWhatWasFoundAndExpected) {
  const std::vector<std::pair<Options, std::string>> refused = {
      {Options(8, 0), "heads = 0, expected at least 1"},
      {Options(0, 2), "d_model = 0, expected at least 1"},
      {Options(10, 3), "d_model 10 is not a multiple of 3 heads"},
      {Options(8, 4).kv_heads(0), "kv_heads = 0, expected at least 1"},
      {Options(8, 4).kv_heads(3), "4 heads is not a multiple of 3 kv_heads"},
      {Options(8, 2).head_dim(0), "head_dim = 0, expected at least 1"},
      {Options(8, 2).pseudo_heads(0), "pseudo_heads = 0, expected at least 1"},
      {Options(8, 2).pseudo_heads(-1), "pseudo_heads = -1, expected at least 1"},
      {Options(8, 2).pseudo_heads(2).mixing(false), "2 pseudo_heads without mixing, expected 1"},
      {Options(8, 2).layout("Parallel"), "layout = 'Parallel', expected one of 'interleaved', 'parallel'"},
      {Options(8, 2).order("rows"), "order = 'rows', expected one of 'flat', 'token'"},
      {Options(8, 2).rope("yes"), "rope = 'yes', expected one of 'none', 'token', 'virtual'"},
      {Options(8, 2).rope_style("neox"), "rope_style = 'neox', expected one of 'half', 'adjacent'"},
      {Options(8, 2).collapse(""), "collapse = '', expected one of 'mean', 'per_head', 'global'"},
      {Options(6, 2).rope("token"), "head_dim 3 with rope = 'token', expected an even number"},
      {Options(8, 2).rope("token").rope_theta(0), "rope_theta = 0, expected a positive number"},
      {Options(8, 2).dropout(-0.1), "dropout = -0.1, expected a probability"},
      {Options(8, 2).dropout(std::nan("")), "dropout = nan, expected a probability"},
      {Options(8, 2).mixing_noise(-1), "mixing_noise = -1, expected a number of at least 0"},
      {Options(8, 2).patterns(causal() * 3), "3 patterns for 2 heads"},
      {Options(8, 2).rope("virtual").mixing_init(MixingInit::kWarmStart),
       "a warm start with rope = 'virtual'"},
      {Options(8, 2).collapse("mean").mixing_init(MixingInit::kWarmStart),
       "a warm start with collapse = 'mean'"},
  };
  for (const auto& [options, message] : refused) {
    try {
      InterleavedHeadAttention layer(options);
      ADD_FAILURE() << "taken, expected: " << message;
    } catch (const c10::ValueError& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("iha::nn::InterleavedHeadAttention: "));
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr(message));
    }
  }
  EXPECT_THROW(Options::per_head_modes(8, causal()), c10::ValueError);
}

TEST(Errors, AutoregressiveLayersNameTheHeadsThatSeeTheFuture) {
  const auto patterns = causal() + global() + causal_sliding(2) + sliding(3) + window(4, 0);
  try {
    InterleavedHeadAttention layer(Options(10, 5).patterns(patterns).autoregressive(true));
    FAIL() << "taken";
  } catch (const c10::ValueError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("heads 1 (global), 3 (sliding:3) are not causal"));
  }
  InterleavedHeadAttention taken(Options(8, 2).patterns(causal() + sliding(0)).autoregressive(true));
  EXPECT_THROW(InterleavedHeadAttention(Options(8, 2).autoregressive(true)), c10::ValueError);
}

TEST(Errors, ShapesOfTheCall) {
  InterleavedHeadAttention layer(Options::interleaved(8, 2));
  const auto x = torch::ones({2, 3, 8});
  EXPECT_THROW(layer(torch::ones({2, 3, 9})), c10::ValueError);
  EXPECT_THROW(layer(torch::ones({3, 8})), c10::ValueError);
  EXPECT_THROW(layer(torch::Tensor()), c10::ValueError);
  EXPECT_THROW(layer->forward(x, {.context = torch::ones({2, 3, 7})}), c10::ValueError);
  EXPECT_THROW(layer->weights(torch::ones({3, 8}), torch::tensor({0})), c10::ValueError);
}

}  // namespace
}  // namespace iha::nn
