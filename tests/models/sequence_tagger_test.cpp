// The sequence tagger: what tells it of places, hardening, configuration, errors.
#include "iha/models/sequence_tagger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "iha/patterns/parse.h"

namespace iha::models {
namespace {

using testing::HasSubstr;

SequenceTaggerConfig tagger_of(const std::string& patterns) {
  SequenceTaggerConfig config;
  config.vocabulary = 7, config.outputs = 3, config.d_model = 8;
  config.layers[0].kind = "modes";
  config.layers[0].heads = 2;
  config.layers[0].patterns = parse_patterns(patterns);
  return config;
}

double difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(SequenceTagger, KnowsPlacesByItsPatternsAlone) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const auto symbols = torch::randint(7, {2, 12}, torch::kInt64);
  const auto order = torch::randperm(12, torch::kInt64);
  SequenceTagger everywhere(tagger_of("global"));
  const auto out = everywhere->forward(symbols);
  EXPECT_EQ(out.sizes(), at::IntArrayRef({2, 12, 3}));
  EXPECT_LT(difference(everywhere->forward(symbols.index_select(1, order)), out.index_select(1, order)),
            1e-5);
  SequenceTagger nearby(tagger_of("sliding:1*2"));
  EXPECT_GT(difference(nearby->forward(symbols.index_select(1, order)),
                       nearby->forward(symbols).index_select(1, order)),
            1e-3);
}

TEST(SequenceTagger, HardensWithItsConfiguration) {
  torch::manual_seed(2);
  SequenceTagger model(tagger_of("learned(causal|global),learned(causal|strided:2|sliding:1)"));
  {
    const torch::NoGradGuard no_grad;
    model->named_parameters()["blocks.0.attention.gates.logits"].copy_(
        torch::tensor({{0.0, 1.0, 9.0}, {0.0, 0.5, 0.2}}));
    for (auto& buffer : model->named_buffers()) buffer->zero_();  // the temperature
  }
  model->eval();
  const auto symbols = torch::randint(7, {2, 12}, torch::kInt64);
  const auto before = model->forward(symbols);
  EXPECT_EQ(model->harden(), 0);
  EXPECT_EQ(to_text(model->config.layers[0].patterns), "global,strided:2");
  EXPECT_TRUE(model->forward(symbols).equal(before));
  // The configuration makes a model that takes its parameters.
  SequenceTagger again(nlohmann::json(model->config).get<SequenceTaggerConfig>());
  EXPECT_EQ(again->config, model->config);
  EXPECT_EQ(again->named_parameters().keys(), model->named_parameters().keys());
  EXPECT_TRUE(again->named_buffers().is_empty());
}

TEST(SequenceTagger, ConfigurationsGoThroughJson) {
  SequenceTaggerConfig config = tagger_of("learned(causal|global),dynamic:4:2");
  config.layers[0].gate_noise = 0.5, config.layers[0].index_dim = 3, config.layers[0].index_tile = 2;
  EXPECT_EQ(nlohmann::json(config).get<SequenceTaggerConfig>(), config);
  const SequenceTagger model(config);
  EXPECT_EQ(nlohmann::json(model->config).get<SequenceTaggerConfig>(), model->config);
  EXPECT_EQ(*model->config.feed_forward, 32);
}

TEST(SequenceTagger, RefusesWhatDoesNotFit) {
  const auto refused = [](SequenceTaggerConfig config, const std::string& part) {
    try {
      SequenceTagger model(config);
      ADD_FAILURE() << "taken, expected: " << part;
    } catch (const c10::ValueError& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr(part));
    }
  };
  auto config = tagger_of("causal,global");
  config.autoregressive = true;
  refused(config, "1 (global)");
  config = tagger_of("global");
  config.outputs = 0;
  refused(config, "0 outputs");
  config = tagger_of("global");
  config.layers[0].gate_noise = 1;
  refused(config, "gate_noise without learned heads");
  config = tagger_of("global");
  config.layers[0].index_dim = 4;
  refused(config, "without dynamic heads");
  SequenceTagger model(tagger_of("global"));
  EXPECT_THROW(model->forward(torch::zeros({3}, torch::kInt64)), c10::ValueError);
}

TEST(PairShare, IsThatOfLearnedHeadsOfAllLayers) {
  auto config = tagger_of("learned(causal_sliding:0|global),causal");
  config.layers.push_back(config.layers[0]);
  config.layers[1].patterns = parse_patterns("learned(causal_sliding:0)*2");
  SequenceTagger model(config);
  // Per head and 10 tokens: (10 + 100) / 2, 10, 10 of 100 pairs.
  EXPECT_NEAR(expected_pair_share(*model, 10).item<double>(), (0.55 + 0.1 + 0.1) / 3, 1e-7);
  SequenceTagger fixed(tagger_of("global"));
  EXPECT_FALSE(expected_pair_share(*fixed, 10).defined());
}

}  // namespace
}  // namespace iha::models
