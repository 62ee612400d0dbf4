// Dynamic heads: the choice against its formula, causality and hidden tokens bit for bit, tiles, gradients,
// threads.
#include "iha/nn/block_index.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <limits>

#include "iha/nn/interleaved_head_attention.h"
#include "iha/patterns/parse.h"
#include "tests/nn/support.h"

namespace iha::nn {
namespace {

using Options = InterleavedHeadAttentionOptions;
using testing::HasSubstr;

BlockIndex double_index(const std::string& patterns, int64_t dim = 3, int64_t tile = 1) {
  BlockIndex index(BlockIndexOptions(6, parse_patterns(patterns).entries()).dim(dim).tile(tile));
  index->to(torch::kFloat64);
  return index;
}

// The weights from the formulas, one at a time: index queries, mean of index keys, the K highest.
torch::Tensor formula(BlockIndexImpl& index, const torch::Tensor& x, const torch::Tensor& context,
                      int64_t offset) {
  const auto& heads = index.options.heads();
  const int64_t size = dynamic_block(heads, "test"), dim = index.options.dim(), keys = context.size(1);
  const int64_t blocks = (keys + size - 1) / size;
  auto weights =
      torch::zeros({x.size(0), static_cast<int64_t>(heads.size()), x.size(1), blocks}, torch::kFloat64);
  const auto queries = index.query(x).unflatten(2, {-1, dim}),
             all_keys = index.key(context).unflatten(2, {-1, dim});
  int64_t dynamic = 0;
  for (size_t h = 0; h < heads.size(); ++h) {
    if (!heads[h].dynamic()) continue;
    for (int64_t b = 0; b < x.size(0); ++b) {
      for (int64_t i = 0; i < x.size(1); ++i) {
        const int64_t own = (i + offset) / size;
        std::vector<std::pair<double, int64_t>> scores;
        for (int64_t block = 0; block < blocks; ++block) {
          const auto mean = all_keys[b].slice(0, block * size, std::min(keys, (block + 1) * size)).mean(0);
          const double score = queries[b][i][dynamic].dot(mean[dynamic]).item<double>();
          if (block != own && (!heads[h].causal() || block < own)) scores.emplace_back(-score, block);
        }
        std::ranges::sort(scores);
        scores.resize(std::min<size_t>(scores.size(), heads[h].chosen));
        auto row = weights[b][static_cast<int64_t>(h)][i];
        if (own < blocks) row[own] = 1;
        for (const auto& [score, block] : scores) row[block] = 1 / (1 + std::exp(score));
      }
    }
    ++dynamic;
  }
  return weights;
}

TEST(BlockIndex, WeightsAreTheFormula) {
  torch::manual_seed(1);
  auto index = double_index("dynamic:4:2,causal,causal_dynamic:4:1");
  torch::NoGradGuard no_grad;
  for (const int64_t tokens : {1, 3, 4, 5, 18}) {
    const auto x = random_input({2, tokens, 6}) * 3;
    EXPECT_LT(max_difference(index->forward(x, x, {}, {}), formula(*index, x, x, 0)), 1e-12) << tokens;
  }
  const auto x = random_input({2, 5, 6}), context = random_input({2, 14, 6});
  EXPECT_LT(max_difference(index->forward(x, context, {}, {}), formula(*index, x, context, 9)), 1e-12);
  EXPECT_LT(
      max_difference(index->forward(x, context, torch::tensor({2}), {}), formula(*index, x, context, 2)),
      1e-12);
  EXPECT_EQ(index->forward(torch::ones({2, 0, 6}, torch::kFloat64), x, {}, {}).sizes(),
            at::IntArrayRef({2, 3, 0, 2}));
  EXPECT_EQ(index->forward(x, torch::ones({2, 0, 6}, torch::kFloat64), torch::tensor({0}), {}).sizes(),
            at::IntArrayRef({2, 3, 5, 0}));
}

TEST(BlockIndex, TokensPastALengthAreInNoMean) {
  torch::manual_seed(2);
  torch::NoGradGuard no_grad;
  for (const int64_t tile : {1, 3}) {
    auto index = double_index("dynamic:4:2", 3, tile);
    const auto x = random_input({2, 14, 6});
    auto changed = x.clone();
    changed.slice(1, 10).fill_(std::numeric_limits<double>::quiet_NaN());
    const auto lengths = torch::tensor({10, 10});
    const auto weights = index->forward(x, x, {}, lengths);
    expect_same_bits(weights.slice(2, 0, 10), index->forward(changed, changed, {}, lengths).slice(2, 0, 10));
    EXPECT_EQ(weights.select(3, 3).slice(2, 0, 10).sum().item<double>(), 0);  // a block without a token
    const auto cut = x.slice(1, 0, 10);
    EXPECT_LT(max_difference(weights.slice(2, 0, 10).slice(3, 0, 3), index->forward(cut, cut, {}, {})),
              1e-12);
  }
}

TEST(BlockIndex, ATileChoosesByItsMeanQuery) {
  torch::manual_seed(3);
  torch::NoGradGuard no_grad;
  auto index = double_index("dynamic:4:2", 3, 4);
  const auto x = random_input({2, 18, 6});
  auto means = torch::empty_like(x);
  for (int64_t begin = 0; begin < 18; begin += 4) {
    means.slice(1, begin, begin + 4)
        .copy_(x.slice(1, begin, begin + 4).mean(1, true).expand_as(x.slice(1, begin, begin + 4)));
  }
  EXPECT_LT(max_difference(index->forward(x, x, {}, {}), formula(*index, means, x, 0)), 1e-12);
}

TEST(BlockIndex, IsTheSameForAnyNumberOfThreads) {
  torch::manual_seed(4);
  const int before = at::get_num_threads();
  for (const int64_t tile : {1, 16}) {
    BlockIndex index(BlockIndexOptions(64, parse_patterns("dynamic:16:3*4").entries()).tile(tile));
    auto x = random_input({2, 700, 64}, torch::kFloat32).requires_grad_();
    const auto run = [&](int threads) {
      at::set_num_threads(threads);
      index->zero_grad();
      x.mutable_grad() = torch::Tensor();
      const auto weights = index->forward(x, x, {}, {});
      (weights * weights.detach().flip(3)).sum().backward();
      return std::vector<torch::Tensor>{weights.detach(), x.grad(), index->query->weight.grad().clone(),
                                        index->key->weight.grad().clone()};
    };
    const auto one = run(1);
    for (const int threads : {2, 3, 7}) {
      const auto many = run(threads);
      for (size_t i = 0; i < one.size(); ++i)
        EXPECT_TRUE(torch::equal(one[i], many[i])) << threads << " " << i;
    }
  }
  at::set_num_threads(before);
}

TEST(BlockIndex, GradientsAreThoseOfTheChosenSigmoids) {
  torch::manual_seed(5);
  for (const int64_t tile : {1, 3}) {
    auto index =
        double_index(tile == 1 ? "causal_dynamic:4:2,global,dynamic:4:1" : "dynamic:4:2,global", 3, tile);
    auto x = random_input({2, 13, 6}).requires_grad_();
    const auto weights = index->forward(x, x, {}, {});
    const auto upstream = random_input(weights.sizes());
    (weights * upstream).sum().backward();
    // Finite differences of entries; steps so small that no choice changes.
    torch::NoGradGuard no_grad;
    const auto loss = [&] { return (index->forward(x, x, {}, {}) * upstream).sum().item<double>(); };
    for (auto& [tensor, grad] :
         {std::pair(x, x.grad()), std::pair(index->query->weight, index->query->weight.grad()),
          std::pair(index->key->weight, index->key->weight.grad())}) {
      for (const int64_t entry : {int64_t{0}, tensor.numel() / 2, tensor.numel() - 1}) {
        auto value = tensor.flatten()[entry];  // a view
        const double step = 1e-6;
        value.add_(step);
        const double up = loss();
        value.sub_(2 * step);
        const double down = loss();
        value.add_(step);
        EXPECT_NEAR(grad.flatten()[entry].template item<double>(), (up - down) / (2 * step), 1e-7) << entry;
      }
    }
  }
}

TEST(BlockIndex, NanReachesNoGradientOfOthers) {
  torch::manual_seed(6);
  auto index = double_index("dynamic:4:2");
  auto x = random_input({1, 16, 6});
  x[0][5].fill_(std::numeric_limits<double>::quiet_NaN());
  x.requires_grad_();
  const auto weights = index->forward(x, x, {}, {});
  EXPECT_TRUE(weights.isfinite().all().item<bool>());
  EXPECT_EQ(weights.select(3, 1).slice(2, 8).sum().item<double>(), 0);  // its block is not chosen
  weights.sum().backward();
  EXPECT_TRUE(index->query->weight.grad().isfinite().all().item<bool>());
  EXPECT_TRUE(index->key->weight.grad().isfinite().all().item<bool>());
}

TEST(BlockIndex, RefusesTheGradientOfAGradient) {
  auto index = double_index("dynamic:4:2");
  auto x = random_input({1, 16, 6}).requires_grad_();
  const auto weights = index->forward(x, x, {}, {});
  const auto gradient = torch::autograd::grad({weights.square().sum()}, {x}, {}, /*retain_graph=*/true,
                                              /*create_graph=*/true)[0];
  try {
    torch::autograd::grad({gradient.square().sum()}, {x});
    FAIL() << "a second derivative passed";
  } catch (const c10::NotImplementedError& error) {
    EXPECT_NE(std::string(error.what_without_backtrace()).find("double backward"), std::string::npos)
        << error.what_without_backtrace();
  }
}

TEST(BlockIndex, RefusesWhatDoesNotFit) {
  const auto refused = [](auto make, const std::string& part) {
    try {
      make();
      ADD_FAILURE() << "taken, expected: " << part;
    } catch (const c10::ValueError& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr(part));
    }
  };
  refused([] { double_index("causal"); }, "no dynamic head");
  refused([] { double_index("causal_dynamic:4:1", 3, 2); }, "index_tile = 2 with a causal dynamic head");
  refused([] { double_index("dynamic:4:1", 0); }, "index_dim = 0");
  refused([] { InterleavedHeadAttention(Options(8, 2).index_dim(0)); }, "index_dim = 0, expected at least 1");
  auto index = double_index("dynamic:4:1");
  const auto x = random_input({2, 5, 6});
  refused([&] { index->forward(x, x, torch::tensor({1, 2, 3}), {}); }, "query_offset [3]");
  refused([&] { index->forward(x, x, {}, torch::tensor({6, 1})); }, "a key length of 6, expected 0..5");
  refused([&] { index->forward(x, x.slice(0, 0, 1), {}, {}); }, "a context of 1 sequences for 2");
  auto layer = double_layer(Options(6, 2).patterns(dynamic(4, 1)));
  refused(
      [&] {
        layer->forward(x, {.documents = torch::zeros({2, 5}, torch::kInt64)});
      },
      "documents with dynamic heads");
}

// Softmax over keys weighted by w, from plain operations.
TEST(DynamicHeads, ReadTheBlocksThatTheyChose) {
  torch::manual_seed(7);
  auto layer =
      double_layer(Options(8, 2).mixing(false).patterns(parse_patterns("dynamic:3:1,causal_dynamic:3:2")));
  const auto x = random_input({2, 11, 8});
  const auto blocks = layer->index->forward(x, x, {}, {});
  auto w = blocks.repeat_interleave(3, 3).slice(3, 0, 11).clone();
  w.select(1, 1).mul_(visibility(causal(), 11, 11));
  const auto split = [](const torch::Tensor& flat) { return flat.unflatten(2, {2, 4}).transpose(1, 2); };
  const auto scores =
      split(layer->q_proj.forward(x)).matmul(split(layer->k_proj.forward(x)).transpose(2, 3)) / 2;
  const auto heads = (scores + w.log()).softmax(-1).matmul(split(layer->v_proj.forward(x)));
  EXPECT_LT(max_difference(layer(x), layer->out_proj.forward(heads.transpose(1, 2).flatten(2))), 1e-12);
}

TEST(DynamicHeads, WithAllBlocksChosenAndScoresHighAreThePlainLayer) {
  torch::manual_seed(8);
  auto layer = double_layer(Options(8, 2).mixing(false).patterns(dynamic(3, 9)));
  auto plain = double_layer(Options(8, 2).mixing(false));
  torch::NoGradGuard no_grad;
  layer->index->query->weight.zero_();  // scores of 0, weights of 1/2
  auto from = layer->named_parameters();
  for (auto& parameter : plain->named_parameters()) parameter->copy_(from[parameter.key()]);
  auto x = random_input({2, 11, 8});
  x.select(2, 0).fill_(1);
  layer->index->query->weight.select(1, 0).fill_(100);  // index queries of 100, keys of 1: weights of 1
  layer->index->key->weight.zero_();
  layer->index->key->weight.select(1, 0).fill_(1);
  EXPECT_LT(max_difference(layer(x), plain(x)), 1e-13);
}

// Nothing after token j changes an output at or before j, whatever its block: bit for bit, through the whole
// layer, with several kinds of heads.
TEST(DynamicHeads, NoLaterTokenChangesABit) {
  torch::manual_seed(9);
  for (const auto dtype : {torch::kFloat64, torch::kFloat32}) {
    for (const auto& options : {Options(12, 3).mixing(false).rope("token"), Options::interleaved(12, 3, 2)}) {
      auto layer = InterleavedHeadAttention(
          Options(options).patterns(parse_patterns("causal_dynamic:4:1,causal_dynamic:4:2,causal")));
      layer->to(dtype);
      const auto x = random_input({2, 19, 12}, dtype);
      const auto before = layer(x);
      for (int64_t j = 0; j < 19; ++j) {
        auto changed = x.clone();
        changed.slice(1, j + 1) = random_input({2, 18 - j, 12}, dtype) * 5;
        expect_same_bits(before.slice(1, 0, j + 1), layer(changed).slice(1, 0, j + 1));
        if (j + 1 < 19) {
          EXPECT_GT(max_difference(before, layer(changed)), 0);
        }
        changed.slice(1, j + 1).fill_(std::numeric_limits<double>::quiet_NaN());
        expect_same_bits(before.slice(1, 0, j + 1), layer(changed).slice(1, 0, j + 1));
      }
    }
  }
}

TEST(DynamicHeads, PaddingChangesNoBit) {
  torch::manual_seed(10);
  auto layer = double_layer(Options(8, 2).pseudo_heads(2).index_tile(2).patterns(dynamic(4, 1)));
  const auto x = random_input({2, 14, 8});
  auto changed = x.clone();
  changed.select(0, 1).slice(0, 9) += 3;
  const AttentionCall lengths{.key_lengths = torch::tensor({14, 9})};
  expect_same_bits(layer->forward(x, lengths).slice(1, 0, 9),
                   layer->forward(changed, lengths).slice(1, 0, 9));
  EXPECT_GT(max_difference(layer(x).slice(1, 0, 9), layer(changed).slice(1, 0, 9)), 1e-9);
}

TEST(DynamicHeads, ServeGroupedHeadsContextAndSixteenBits) {
  torch::manual_seed(11);
  InterleavedHeadAttention layer(
      Options(16, 4).kv_heads(2).pseudo_heads(2).patterns(parse_patterns("dynamic:4:2*2,causal*2")));
  const auto x = torch::randn({2, 5, 16}), context = torch::randn({2, 21, 16});
  const AttentionCall call{
      .context = context, .key_lengths = torch::tensor({21, 8}), .query_offset = torch::tensor({16})};
  const auto single = layer->forward(x, call);
  EXPECT_EQ(single.sizes(), at::IntArrayRef({2, 5, 16}));
  const auto weights = layer->weights(x, torch::tensor({4}), call);
  EXPECT_LT(max_difference(weights.flatten(4).sum(-1), torch::ones({2, 4, 1, 2})), 1e-5);
  layer->to(torch::kBFloat16);
  const auto half = layer->forward(x.to(torch::kBFloat16), {.context = context.to(torch::kBFloat16)});
  EXPECT_TRUE(half.isfinite().all().item<bool>());
}

TEST(DynamicHeads, TheBackwardPassReadsTheForwardPassesChoice) {
  torch::manual_seed(12);
  auto layer = double_layer(Options(8, 2).mixing(false).patterns(causal_dynamic(4, 1)));
  const auto x = random_input({1, 15, 8});
  (layer(x) * random_input({1, 15, 8})).sum().backward();
  for (const auto& parameter : layer->named_parameters()) {
    ASSERT_TRUE(parameter->grad().defined()) << parameter.key();
    EXPECT_GT(parameter->grad().abs().max().item<double>(), 0) << parameter.key();
  }
}

}  // namespace
}  // namespace iha::nn
