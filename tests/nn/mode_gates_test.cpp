// Learned heads: gates and their limits, noise, the cost in closed form, hardening.
#include "iha/nn/mode_gates.h"

#include <torch/nn/init.h>
#include <torch/serialize.h>

#include <cmath>
#include <sstream>

#include "iha/nn/transformer_block.h"
#include "iha/patterns/count.h"
#include "iha/patterns/parse.h"
#include "tests/nn/support.h"

namespace iha::nn {
namespace {

using Options = InterleavedHeadAttentionOptions;
using testing::HasSubstr;

constexpr auto kPatterns = "learned(global|sliding:2|strided:3),causal,learned(causal_sliding:1|global)";

void set_logits(ModeGatesImpl& gates, const torch::Tensor& logits) {
  torch::NoGradGuard no_grad;
  gates.logits.copy_(logits);
}

// Layers of learned heads with logits of which the first head's largest is `strided:3`, the third's `global`.
InterleavedHeadAttention decided_layer(Options options) {
  auto layer = double_layer(options.patterns(parse_patterns(kPatterns)));
  set_logits(*layer->gates, torch::tensor({{0.5, -1.0, 2.0}, {-1.0, 0.25, 0.0}}, torch::kFloat64));
  return layer;
}

// The same parameters under other patterns.
InterleavedHeadAttention with_patterns(InterleavedHeadAttention& layer, const std::string& patterns) {
  auto options = layer->options;
  auto other = double_layer(options.patterns(parse_patterns(patterns)));
  torch::NoGradGuard no_grad;
  auto from = layer->named_parameters();
  for (auto& parameter : other->named_parameters()) parameter->copy_(from[parameter.key()]);
  return other;
}

TEST(ModeGates, AreTheSoftmaxOfLogitsOverTemperature) {
  ModeGates gates(parse_patterns(kPatterns).entries(), 1.0, 0.0);
  EXPECT_EQ(gates->logits.sizes(), at::IntArrayRef({2, 3}));
  const auto third = 1.0F / 3;
  EXPECT_LT(max_difference(gates->gates(), torch::tensor({{third, third, third}, {0.5F, 0.5F, 0.0F}})), 1e-7);
  set_logits(*gates, torch::tensor({{0.0, 1.0, 2.0}, {3.0, 1.0, 99.0}}));  // the third head has 2 candidates
  gates->set_temperature(0.5);
  const auto first = torch::tensor({0.0, 2.0, 4.0}).softmax(0), second = torch::tensor({6.0, 2.0}).softmax(0);
  EXPECT_LT(max_difference(gates->gates()[0], first), 1e-7);
  EXPECT_LT(max_difference(gates->gates()[1].slice(0, 0, 2), second), 1e-7);
  EXPECT_EQ(gates->gates()[1][2].item<float>(), 0);
  const auto weights = gates->mode_weights(gates->gates());
  expect_same_bits(weights.index_select(0, torch::tensor({0, 2})), gates->gates());
  EXPECT_EQ(weights[1].abs().sum().item<float>(), 0);
}

TEST(ModeGates, AtTemperature0TheFirstOfTheLargestHasAll) {
  ModeGates gates(parse_patterns(kPatterns).entries(), 0.0, 0.0);
  set_logits(*gates, torch::tensor({{1.0, 2.0, 2.0}, {0.0, 0.0, 99.0}}));
  expect_same_bits(gates->gates(), torch::tensor({{0.0F, 1.0F, 0.0F}, {1.0F, 0.0F, 0.0F}}));
  EXPECT_EQ(to_text(gates->chosen(gates->gates())), "sliding:2,causal,causal_sliding:1");
}

TEST(ModeGates, NoiseIsGumbelInTrainingOnly) {
  torch::manual_seed(1);
  ModeGates gates(parse_patterns("learned(global|causal|strided:2)").expand(1), 0.0, 1.0);
  set_logits(*gates, torch::tensor({{0.7, 0.2, 0.1}}).log());
  auto counts = torch::zeros({1, 3});
  constexpr int kDraws = 3000;
  for (int draw = 0; draw < kDraws; ++draw) counts += gates->forward();
  // Draws from softmax(logits): five standard deviations of the largest count are 0.042 of the draws.
  EXPECT_LT(max_difference(counts / kDraws, torch::tensor({{0.7, 0.2, 0.1}})), 0.042);
  torch::manual_seed(2);
  gates->set_temperature(0.7);
  const auto once = gates->forward();
  EXPECT_GT(max_difference(once, gates->gates()), 0);
  torch::manual_seed(2);
  expect_same_bits(once, gates->forward());
  gates->eval();
  expect_same_bits(gates->forward(), gates->gates());
}

TEST(ModeGates, ExpectedPairsAreInClosedFormAndDifferentiable) {
  ModeGates gates(parse_patterns(kPatterns).entries(), 1.0, 0.0);
  gates->to(torch::kFloat64);
  set_logits(*gates, torch::tensor({{0.3, -0.2, 0.8}, {0.1, 0.9, 5.0}}, torch::kFloat64));
  const int64_t tokens = 11;
  const auto sum = [&](int64_t row, const std::vector<Pattern>& candidates) {
    double pairs = 0;
    for (size_t m = 0; m < candidates.size(); ++m) {
      const double seen = visibility(candidates[m], tokens, tokens).sum().item<double>();
      pairs += gates->gates()[row][static_cast<int64_t>(m)].item<double>() * seen;
    }
    return pairs;
  };
  const auto pairs = gates->expected_pairs(tokens, tokens, 0);
  EXPECT_NEAR(pairs.item<double>(),
              sum(0, {global(), sliding(2), strided(3)}) + sum(1, {causal_sliding(1), global()}), 1e-9);
  pairs.backward();
  // Dearer than the mean of its head: its logit falls.
  EXPECT_GT(gates->logits.grad()[0][0].item<double>(), 0);
  EXPECT_LT(gates->logits.grad()[0][2].item<double>(), 0);
  EXPECT_EQ(gates->logits.grad()[1][2].item<double>(), 0);
}

TEST(ModeGates, RefuseWhatDoesNotFit) {
  const auto learned = parse_patterns(kPatterns).entries();
  EXPECT_THROW(ModeGates(learned, -1.0, 0.0), c10::ValueError);
  EXPECT_THROW(ModeGates(learned, 1.0, std::nan("")), c10::ValueError);
  EXPECT_THROW(ModeGates(std::vector<Pattern>{causal()}, 1.0, 0.0), c10::ValueError);
  EXPECT_THROW(ModeGates(learned, 1.0, 0.0)->set_temperature(-0.5), c10::ValueError);
  EXPECT_THROW(InterleavedHeadAttention(Options(8, 2).gate_temperature(-1)), c10::ValueError);
  EXPECT_THROW(InterleavedHeadAttention(Options(8, 2).gate_noise(-1)), c10::ValueError);
}

// softmax over keys weighted by w, from plain operations.
TEST(LearnedHeads, WeighWhatTheirModesShow) {
  torch::manual_seed(3);
  auto layer = decided_layer(Options(12, 3).mixing(false));
  const auto x = random_input({2, 7, 12});
  const auto gates = layer->gates->gates();
  const auto split = [](const torch::Tensor& flat) { return flat.unflatten(2, {3, 4}).transpose(1, 2); };
  const auto query = split(layer->q_proj.forward(x)), key = split(layer->k_proj.forward(x)),
             value = split(layer->v_proj.forward(x));
  const auto shown = [&](const Pattern& pattern) { return visibility(pattern, 7, 7).to(torch::kFloat64); };
  const auto w = torch::stack(
      {gates[0][0] * shown(global()) + gates[0][1] * shown(sliding(2)) + gates[0][2] * shown(strided(3)),
       shown(causal()), gates[1][0] * shown(causal_sliding(1)) + gates[1][1] * shown(global())});
  const auto scores = query.matmul(key.transpose(2, 3)) / 2 + w.log();
  const auto out = scores.softmax(-1).matmul(value).transpose(1, 2).flatten(2);
  EXPECT_LT(max_difference(layer(x), layer->out_proj.forward(out)), 1e-12);
}

TEST(LearnedHeads, TheZeroTemperatureLimitIsTheFixedPattern) {
  torch::manual_seed(4);
  for (const auto& options :
       {Options(12, 3).mixing(false), Options(12, 3).pseudo_heads(2), Options::averaged(12, 3, 2)}) {
    auto layer = decided_layer(options);
    auto fixed = with_patterns(layer, "strided:3,causal,global");
    const auto x = random_input({2, 9, 12});
    const auto expected = fixed(x);
    layer->gates->set_temperature(0);
    expect_same_bits(layer(x), expected);
    // At 0.001 the gates are one-hot to the last bit, and weights of 1 and 0 must say the same.
    layer->gates->set_temperature(1e-3);
    EXPECT_EQ(layer->gates->gates().max().item<double>(), 1);
    EXPECT_LT(max_difference(layer(x), expected), 1e-13);
    layer->gates->set_temperature(1);
    EXPECT_GT(max_difference(layer(x), expected), 1e-4);
  }
}

TEST(LearnedHeads, HardeningKeepsTheZeroTemperatureOutputBitForBit) {
  torch::manual_seed(5);
  for (const auto dtype : {torch::kFloat64, torch::kFloat32}) {
    auto layer = decided_layer(Options(12, 3).pseudo_heads(2).rope("token"));
    layer->to(dtype);
    layer->gates->set_temperature(0);
    const auto x = random_input({2, 9, 12}, dtype);
    const auto before = layer(x);
    EXPECT_EQ(layer->harden(), 0);
    EXPECT_EQ(to_text(layer->options.patterns()), "strided:3,causal,global");
    EXPECT_TRUE(layer->gates.is_empty());
    EXPECT_FALSE(layer->named_parameters().contains("gates.logits"));
    expect_same_bits(layer(x), before);
    // It opens as a layer of fixed patterns.
    std::stringstream file;
    torch::save(layer, file);
    InterleavedHeadAttention loaded(layer->options);
    loaded->to(dtype);
    torch::load(loaded, file);
    expect_same_bits(loaded(x), before);
    EXPECT_EQ(layer->harden(), 0);
  }
}

TEST(LearnedHeads, HardeningLeavesUndecidedHeadsAsTheyAre) {
  torch::manual_seed(6);
  auto layer = decided_layer(Options(12, 3).mixing(false));  // gates of .79 and .78 at most
  EXPECT_EQ(layer->harden(0.95), 2);
  EXPECT_EQ(layer->options.patterns(), parse_patterns(kPatterns));
  set_logits(*layer->gates, torch::tensor({{0.5, -1.0, 9.0}, {-1.0, 0.25, 0.0}}, torch::kFloat64));
  layer->gates->set_temperature(0.75);
  layer->eval();
  const auto x = random_input({2, 9, 12});
  const auto before = layer(x), gates = layer->gates->gates();
  EXPECT_EQ(layer->harden(0.9), 1);
  EXPECT_EQ(to_text(layer->options.patterns()), "strided:3,causal,learned(causal_sliding:1|global)");
  EXPECT_EQ(layer->gates->logits.sizes(), at::IntArrayRef({1, 2}));
  expect_same_bits(layer->gates->gates(), gates.slice(0, 1).slice(1, 0, 2));
  EXPECT_EQ(layer->gates->temperature(), 0.75);
  EXPECT_FALSE(layer->gates->is_training());
  // A gate of 1 - 1e-5 became 1.
  EXPECT_LT(max_difference(layer(x), before), 1e-4);
  EXPECT_EQ(layer->named_parameters()["gates.logits"].data_ptr(), layer->gates->logits.data_ptr());
}

TEST(LearnedHeads, GatesAndTemperatureAreSavedAndCloned) {
  torch::manual_seed(7);
  auto layer = decided_layer(Options(12, 3).mixing(false));
  layer->gates->set_temperature(0.3);
  const auto x = random_input({2, 9, 12});
  std::stringstream file;
  torch::save(layer, file);
  auto loaded = double_layer(layer->options);
  torch::load(loaded, file);
  EXPECT_EQ(loaded->gates->temperature(), 0.3);
  expect_same_bits(loaded(x), layer(x));
  auto copy = std::dynamic_pointer_cast<InterleavedHeadAttentionImpl>(layer->clone());
  expect_same_bits(copy->forward(x), layer(x));
  copy->gates->set_temperature(0);
  EXPECT_EQ(layer->gates->temperature(), 0.3);
}

TEST(LearnedHeads, LogitsGetTheGradientOfFiniteDifferences) {
  torch::manual_seed(8);
  auto layer = decided_layer(Options(12, 3).pseudo_heads(2));
  const auto x = random_input({1, 6, 12}), upstream = random_input({1, 6, 12});
  const auto loss = [&] { return (layer(x) * upstream).sum(); };
  loss().backward();
  const auto gradient = layer->gates->logits.grad().clone();
  torch::NoGradGuard no_grad;
  for (const auto& [l, m] : {std::pair(0, 0), std::pair(0, 2), std::pair(1, 0)}) {
    const double step = 1e-6;
    const auto entry = layer->gates->logits[l][m];
    entry.add_(step);
    const double up = loss().item<double>();
    entry.sub_(2 * step);
    const double down = loss().item<double>();
    entry.add_(step);
    EXPECT_NEAR(gradient[l][m].item<double>(), (up - down) / (2 * step), 1e-7);
  }
}

TEST(LearnedHeads, AreCausalWhereAllModesAre) {
  const auto options = Options(8, 2).mixing(false).autoregressive(true);
  InterleavedHeadAttention taken(
      Options(options).patterns(parse_patterns("learned(causal|causal_strided:2)*2")));
  try {
    InterleavedHeadAttention layer(
        Options(options).patterns(parse_patterns("causal,learned(causal|global)")));
    FAIL() << "taken";
  } catch (const c10::ValueError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("heads 1 (learned(causal|global)) are not causal"));
  }
}

TEST(LearnedHeads, AWarmStartIsThePlainLayerUnderEveryMode) {
  torch::manual_seed(9);
  const auto patterns = parse_patterns("learned(causal|global),learned(global|causal_sliding:2)");
  auto warm =
      double_layer(Options(8, 2).pseudo_heads(2).patterns(patterns).mixing_init(MixingInit::kWarmStart));
  auto plain = double_layer(Options(8, 2).mixing(false).patterns(patterns));
  torch::NoGradGuard no_grad;
  auto from = warm->named_parameters();
  for (auto& parameter : plain->named_parameters()) parameter->copy_(from[parameter.key()]);
  const auto x = random_input({2, 6, 8});
  EXPECT_LT(max_difference(warm(x), plain(x)), 1e-12);
}

}  // namespace
}  // namespace iha::nn
