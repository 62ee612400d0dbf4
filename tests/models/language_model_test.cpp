#include "iha/models/language_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "iha/models/loss.h"

namespace iha::models {
namespace {

using testing::HasSubstr;
using testing::Property;
using testing::Throws;

LanguageModelConfig config_of(const std::string& mixer, int64_t layers = 2) {
  LanguageModelConfig config;
  config.vocabulary = 11, config.d_model = 16, config.context = 32;
  MixerConfig base;
  base.heads = 2;
  base.patterns = causal();
  config.layers = layer_schedule(mixer, layers, config.context, base);
  return config;
}

LanguageModelConfig modes_config() {
  LanguageModelConfig config = config_of("modes");
  config.layers[0].patterns = causal_sliding(2) * 1 + (causal_strided(3).with_first(1)) * 1;
  config.layers[1].patterns = causal_chunked(4) * 1 + causal_every(2) * 1;
  return config;
}

std::vector<LanguageModelConfig> all_configs() {
  std::vector<LanguageModelConfig> configs;
  for (const std::string& kind : mixer_kinds()) configs.push_back(config_of(kind));
  configs.push_back(config_of("paper", 5));
  configs.push_back(modes_config());
  return configs;
}

// Embeddings begin small; this makes the logits lively.
void enlarge(LanguageModel& model) {
  const torch::NoGradGuard no_grad;
  model->named_parameters()["embedding.weight"].mul_(10);
}

torch::Tensor some_tokens(int64_t batch, int64_t tokens) {
  return torch::randint(0, 11, {batch, tokens}, torch::kInt64);
}

TEST(LanguageModel, ShowsNoTokenToThoseBefore) {
  torch::manual_seed(0);
  const torch::NoGradGuard no_grad;
  for (const LanguageModelConfig& config : all_configs()) {
    LanguageModel model(config);
    const auto tokens = some_tokens(2, 20);
    const auto logits = model->forward(tokens);
    for (const int64_t changed : {0, 1, 7, 18, 19}) {
      auto other = tokens.clone();
      other.select(1, changed).add_(1).remainder_(11);
      const auto moved = model->forward(other);
      EXPECT_TRUE(moved.slice(1, 0, changed).equal(logits.slice(1, 0, changed))) << changed << " " << *model;
      EXPECT_FALSE(moved.select(1, changed).equal(logits.select(1, changed))) << changed << " " << *model;
    }
  }
}

TEST(LanguageModel, RefusesPatternsThatSeeTheFuture) {
  LanguageModelConfig config = modes_config();
  config.layers[1].patterns = causal() * 1 + sliding(3) * 1;
  EXPECT_THAT(
      [&] { LanguageModel{config}; },
      Throws<c10::ValueError>(Property(&c10::Error::what_without_backtrace,
                                       testing::AllOf(HasSubstr("layer 1"), HasSubstr("1 (sliding:3)")))));
}

TEST(LanguageModel, KeepsShapesAtTheEdges) {
  for (const LanguageModelConfig& config : all_configs()) {
    LanguageModel model(config);
    for (const auto& [batch, tokens] : {std::pair{1, 1}, {0, 5}, {2, 0}, {0, 0}, {3, 40}}) {
      EXPECT_EQ(model->forward(some_tokens(batch, tokens)).sizes(),
                (std::vector<int64_t>{batch, tokens, 11}));
    }
  }
  LanguageModelConfig none = config_of("plain");
  none.layers.clear();  // a bigram model
  EXPECT_EQ(LanguageModel(none)->forward(some_tokens(2, 3)).sizes(), (std::vector<int64_t>{2, 3, 11}));
  EXPECT_THROW(LanguageModel(none)->forward(torch::zeros({3}, torch::kInt64)), c10::ValueError);
  EXPECT_THROW(LanguageModel(none)->forward(torch::zeros({1, 3}, torch::kInt32)), c10::ValueError);
}

TEST(LanguageModel, TiesItsWeights) {
  LanguageModelConfig config = config_of("plain");
  LanguageModel tied(config);
  config.tied = false;
  LanguageModel untied(config);
  EXPECT_EQ(parameter_count(*untied) - parameter_count(*tied), 11 * 16);
  EXPECT_FALSE(tied->named_parameters().contains("readout.weight"));
  EXPECT_TRUE(untied->named_parameters().contains("readout.weight"));
  // A token that is neither in the input nor a target still gets a gradient through the read-out, if tied.
  const auto tokens = torch::tensor({{1, 2, 3}}, torch::kInt64);
  const auto gradient = [&](LanguageModel& model) {
    next_token_loss(model->forward(tokens), tokens).sum.backward();
    return model->named_parameters()["embedding.weight"].grad()[7].abs().sum().item<float>();
  };
  EXPECT_GT(gradient(tied), 0);
  EXPECT_EQ(gradient(untied), 0);
  // And a clone is tied to its own embedding.
  const auto clone = std::dynamic_pointer_cast<LanguageModelImpl>(tied->clone());
  const auto before = tied->forward(tokens);
  EXPECT_TRUE(clone->forward(tokens).equal(before));
  const torch::NoGradGuard no_grad;
  clone->named_parameters()["embedding.weight"].mul_(2);
  EXPECT_TRUE(tied->forward(tokens).equal(before));
  EXPECT_FALSE(clone->forward(tokens).equal(before));
}

TEST(LanguageModel, BeginsAtTheUniformGuess) {
  torch::manual_seed(1);
  LanguageModelConfig config = config_of("interleaved");
  config.vocabulary = 256;
  const auto tokens = torch::randint(0, 256, {4, 30}, torch::kInt64);
  const LossSum loss = next_token_loss(LanguageModel(config)->forward(tokens), tokens.roll(-1, 1));
  // Logits have a deviation of 0.02 * sqrt(16); half its square is what it costs on average.
  EXPECT_NEAR(loss.sum.item<double>() / static_cast<double>(loss.count), std::log(256.0), 0.05);
}

TEST(LanguageModel, DocumentsDoNotSeeEachOther) {
  torch::manual_seed(2);
  const torch::NoGradGuard no_grad;
  LanguageModel model(config_of("interleaved"));
  const auto tokens = some_tokens(1, 12);
  const auto documents = torch::tensor({{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1}}, torch::kInt64);
  const auto logits = model->forward(tokens, documents);
  EXPECT_FALSE(logits.equal(model->forward(tokens)));
  auto other = tokens.clone();
  other.slice(1, 0, 5).add_(1).remainder_(11);
  EXPECT_TRUE(model->forward(other, documents).slice(1, 5).equal(logits.slice(1, 5)));
}

TEST(Generate, IsDeterministicBySeed) {
  torch::manual_seed(3);
  LanguageModel model(config_of("interleaved"));
  enlarge(model);
  const auto prompt = some_tokens(1, 5)[0];
  SamplingOptions options;
  options.tokens = 40;  // more than the context
  const auto first = model->generate(prompt, options);
  EXPECT_EQ(first.sizes(), (std::vector<int64_t>{40}));
  const auto drawn = torch::rand({1});
  torch::manual_seed(4);
  EXPECT_TRUE(model->generate(prompt, options).equal(first));  // whatever torch's generator does
  torch::manual_seed(4);
  const auto expected = torch::rand({1});
  torch::manual_seed(4);
  model->generate(prompt, options);
  EXPECT_TRUE(torch::rand({1}).equal(expected));  // and it is left alone
  options.seed = 1;
  EXPECT_FALSE(model->generate(prompt, options).equal(first));
}

TEST(Generate, GreedyFollowsTheLargestLogitOfTheLastWindow) {
  torch::manual_seed(5);
  LanguageModel model(config_of("modes"));
  enlarge(model);
  const torch::NoGradGuard no_grad;
  const auto prompt = some_tokens(1, 30)[0];
  SamplingOptions options;
  options.tokens = 10, options.temperature = 0;
  const auto greedy = model->generate(prompt, options);
  auto window = prompt;
  for (int64_t n = 0; n < 10; ++n) {
    window = window.slice(0, std::max<int64_t>(0, window.size(0) - 32));
    const auto next = model->forward(window.unsqueeze(0))[0][-1].argmax();
    EXPECT_EQ(greedy[n].item<int64_t>(), next.item<int64_t>());
    window = torch::cat({window, next.unsqueeze(0)});
  }
  options.temperature = 1.3, options.top_k = 1;
  EXPECT_TRUE(model->generate(prompt, options).equal(greedy));
}

TEST(Generate, ReadsTheLastContextOnly) {
  torch::manual_seed(10);
  LanguageModel model(config_of("plain"));
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : model->named_parameters()) {
    if (parameter.key().find("out_proj") != std::string::npos)
      parameter.value().mul_(100);  // far tokens matter
  }
  const auto recent = some_tokens(1, 32)[0];
  const auto after = [&](const torch::Tensor& older) { return model->generate(torch::cat({older, recent})); };
  EXPECT_TRUE(after(some_tokens(1, 50)[0]).equal(after(some_tokens(1, 50)[0])));
  const auto inside = some_tokens(1, 32)[0];
  EXPECT_FALSE(model->generate(inside).equal(model->generate(recent)));
}

TEST(Generate, DrawsFromTheSoftmax) {
  torch::manual_seed(6);
  LanguageModelConfig config = config_of("plain", 1);
  config.vocabulary = 4;
  LanguageModel model(config);
  enlarge(model);
  const torch::NoGradGuard no_grad;
  const auto prompt = torch::tensor({2}, torch::kInt64);
  for (const std::optional<int64_t> top_k : {std::optional<int64_t>{}, {2}, {100}}) {
    SamplingOptions options;
    options.tokens = 1, options.temperature = 3, options.top_k = top_k;
    auto logits = model->forward(prompt.unsqueeze(0))[0][-1].to(torch::kFloat64) / 3;
    if (top_k == 2) {
      const auto third = std::get<0>(logits.sort(-1, true))[1];
      logits = logits.masked_fill(logits.lt(third), -INFINITY);
    }
    const auto probabilities = logits.softmax(0);
    constexpr int kDraws = 2000;
    std::vector<int> counts(4);
    for (options.seed = 0; options.seed < kDraws; ++options.seed) {
      ++counts[model->generate(prompt, options)[0].item<int64_t>()];
    }
    for (int64_t id = 0; id < 4; ++id) {
      const double p = probabilities[id].item<double>();
      EXPECT_NEAR(counts[id], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p))) << id;
    }
  }
}

TEST(Generate, RunsWithoutDropoutAndKeepsTheMode) {
  torch::manual_seed(7);
  LanguageModelConfig config = config_of("averaged");
  config.dropout = 0.5;
  for (MixerConfig& layer : config.layers) layer.dropout = 0.5;
  LanguageModel model(config);
  enlarge(model);
  const auto prompt = some_tokens(1, 5)[0];
  model->eval();
  const auto expected = model->generate(prompt);
  const auto weights = model->attention_weights(prompt, 1);
  EXPECT_FALSE(model->is_training());
  model->train();
  EXPECT_TRUE(model->generate(prompt).equal(expected));
  EXPECT_TRUE(model->attention_weights(prompt, 1).equal(weights));
  EXPECT_TRUE(model->is_training());
  EXPECT_FALSE(model->forward(prompt.unsqueeze(0)).equal(model->forward(prompt.unsqueeze(0))));
}

TEST(Generate, RefusesWhatDoesNotFit) {
  LanguageModel model(config_of("plain"));
  const auto prompt = torch::zeros({3}, torch::kInt64);
  const auto refuses = [&](auto change) {
    SamplingOptions options;
    change(options);
    EXPECT_THROW(model->generate(prompt, options), c10::ValueError);
  };
  refuses([](auto& o) { o.tokens = -1; });
  refuses([](auto& o) { o.temperature = -1; });
  refuses([](auto& o) { o.temperature = std::nan(""); });
  refuses([](auto& o) { o.top_k = 0; });
  EXPECT_THROW(model->generate(prompt.slice(0, 0, 0)), c10::ValueError);
  EXPECT_THROW(model->generate(prompt.unsqueeze(0)), c10::ValueError);
  SamplingOptions none;
  none.tokens = 0;
  EXPECT_EQ(model->generate(prompt, none).numel(), 0);
  const torch::NoGradGuard no_grad;
  model->named_parameters()["norm.weight"].fill_(NAN);
  EXPECT_THROW(model->generate(prompt), c10::ValueError);
}

TEST(AttentionWeights, AreCausalAndSumToOne) {
  torch::manual_seed(8);
  for (const LanguageModelConfig& config : all_configs()) {
    LanguageModel model(config);
    enlarge(model);
    const auto tokens = some_tokens(1, 9)[0];
    for (size_t layer = 0; layer < config.layers.size(); ++layer) {
      const int64_t p = *model->config.layers[layer].pseudo_heads;
      const auto weights = model->attention_weights(tokens, static_cast<int64_t>(layer));
      ASSERT_EQ(weights.sizes(), (std::vector<int64_t>{2, 9, p, 9, p}));
      EXPECT_TRUE(weights.sum({3, 4}).allclose(torch::ones({2, 9, p}), 1e-5, 1e-5));
      const auto later = torch::ones({9, 9}).triu(1).to(torch::kBool);
      EXPECT_EQ(weights.sum({0, 2, 4}).masked_select(later).abs().max().item<float>(), 0);
    }
    EXPECT_THROW(model->attention_weights(tokens, static_cast<int64_t>(config.layers.size())),
                 c10::ValueError);
    EXPECT_THROW(model->attention_weights(tokens, -1), c10::ValueError);
    EXPECT_THROW(model->attention(-1), c10::ValueError);
    // A part of the rows, by hand.
    const auto rows = torch::tensor({8, 0, 3}, torch::kInt64);
    const auto some = model->attention(0)->weights(model->attention_input(tokens, 0), rows).squeeze(0);
    EXPECT_TRUE(some.allclose(model->attention_weights(tokens, 0).index_select(1, rows), 1e-5, 1e-6));
    EXPECT_THROW(model->attention_weights(tokens.unsqueeze(0), 0), c10::ValueError);
  }
}

TEST(LanguageModel, CountsItsFlops) {
  LanguageModelConfig config = config_of("plain", 3);
  config.feed_forward = 20;
  // 5 tokens: 15 causal pairs in each of 2 heads of width 8.
  const int64_t layer = 4 * 2 * 5 * 16 * 16 + 2 * 2 * 5 * 16 * 20;
  EXPECT_EQ(LanguageModel(config)->flops(5), (Flops{3 * layer + 2 * 5 * 16 * 11, 0, 3 * 4 * 8 * 15 * 2}));
}

TEST(LanguageModel, GoesFromConfigToModelAndBack) {
  for (LanguageModelConfig config : all_configs()) {
    config.tied = false, config.dropout = 0.25;
    const LanguageModel model(config);
    EXPECT_EQ(model->config.feed_forward, 64);  // written out
    const auto json = nlohmann::json::parse(nlohmann::json(model->config).dump());
    EXPECT_EQ(json.get<LanguageModelConfig>(), model->config);
    EXPECT_EQ(LanguageModel(json.get<LanguageModelConfig>())->config, model->config);
  }
  EXPECT_THAT(
      [] { nlohmann::json::parse(R"({"vocab": 1})").get<LanguageModelConfig>(); },
      Throws<std::invalid_argument>(Property(&std::exception::what, HasSubstr("unknown field `vocab`"))));
}

TEST(LanguageModel, ClonesSerialisesAndPrints) {
  for (const LanguageModelConfig& config : all_configs()) {
    LanguageModel model(config);
    const auto tokens = some_tokens(2, 7);
    const auto logits = model->forward(tokens);
    EXPECT_TRUE(std::dynamic_pointer_cast<LanguageModelImpl>(model->clone())->forward(tokens).equal(logits));
    std::stringstream stream;
    torch::save(model, stream);
    LanguageModel loaded(config);
    EXPECT_FALSE(loaded->forward(tokens).equal(logits));
    torch::load(loaded, stream);
    EXPECT_TRUE(loaded->forward(tokens).equal(logits));
    std::ostringstream text;
    text << model;
    EXPECT_THAT(text.str(), HasSubstr("iha::models::LanguageModel("));
  }
}

TEST(LanguageModel, RunsInOtherTypes) {
  torch::manual_seed(9);
  LanguageModel model(config_of("paper", 5));
  const auto tokens = some_tokens(2, 7);
  const auto logits = model->forward(tokens);
  model->to(torch::kFloat64);
  EXPECT_TRUE(model->forward(tokens).to(torch::kFloat32).allclose(logits, 1e-3, 1e-4));
  model->to(torch::kBFloat16);
  EXPECT_EQ(model->forward(tokens).scalar_type(), torch::kBFloat16);
}

TEST(LanguageModel, RefusesWhatDoesNotFit) {
  const auto refuses = [](auto change) {
    LanguageModelConfig config = config_of("plain");
    change(config);
    EXPECT_THROW(LanguageModel{config}, c10::ValueError);
  };
  refuses([](auto& c) { c.vocabulary = 0; });
  refuses([](auto& c) { c.context = 0; });
  refuses([](auto& c) { c.d_model = 15; });
  refuses([](auto& c) { c.feed_forward = 0; });
  refuses([](auto& c) { c.dropout = 1.5; });
}

}  // namespace
}  // namespace iha::models
