#include "iha/models/token_tagger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "iha/models/loss.h"
#include "iha/nn/transformer_block.h"

namespace iha::models {
namespace {

// Grids of the given sides, padded to the largest; padding holds `filler` where that is a legal value.
GridTokens grids(const std::vector<int64_t>& sides, int64_t filler = 0) {
  int64_t tokens = 0;
  for (const int64_t side : sides) tokens = std::max(tokens, side * side);
  const auto batch = static_cast<int64_t>(sides.size());
  GridTokens input;
  input.values = torch::full({batch, tokens}, filler, torch::kInt64);
  input.rows = input.values.clone();
  input.columns = input.values.clone();
  input.lengths = torch::zeros({batch}, torch::kInt64);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t side = sides[b];
    input.lengths[b] = side * side;
    for (int64_t n = 0; n < side * side; ++n) {
      input.values[b][n] = (n * n + b) % 3 % 2;
      input.rows[b][n] = n / side;
      input.columns[b][n] = n % side;
    }
  }
  return input;
}

TokenTaggerConfig config_of(const std::string& layer, const std::string& kind = "interleaved") {
  TokenTaggerConfig config;
  config.max_side = 4, config.d_model = 16, config.layer = layer;
  config.layers[0].heads = 2;
  config.layers[0].kind = kind;
  return config;
}

const std::vector<std::string> kLayers = {"bare", "residual_norm", "pre_norm"};

TEST(TokenTagger, KeepsShapesAtTheEdges) {
  for (const std::string& layer : kLayers) {
    TokenTagger tagger(config_of(layer));
    EXPECT_EQ(tagger->forward(grids({1})).sizes(), (std::vector<int64_t>{1, 1}));
    EXPECT_EQ(tagger->forward(grids({4, 1, 2})).sizes(), (std::vector<int64_t>{3, 16}));
    EXPECT_EQ(tagger->forward(grids({})).sizes(), (std::vector<int64_t>{0, 0}));
    EXPECT_EQ(tagger->forward(grids({0, 0})).sizes(), (std::vector<int64_t>{2, 0}));
    EXPECT_TRUE(tagger->forward(grids({0, 2})).slice(0, 1).isfinite().all().item<bool>());
  }
}

// Of two layers without anything around them the second one's input is the first one's output, and the
// read-out of its own output the logits.
TEST(TokenTagger, ShowsWhatEachAttentionReads) {
  torch::manual_seed(2);
  for (const std::string& layer : kLayers) {
    TokenTaggerConfig config = config_of(layer);
    config.layers.push_back(config.layers[0]);
    TokenTagger tagger(config);
    const torch::NoGradGuard no_grad;
    const GridTokens input = grids({3});
    const auto first = tagger->attention_input(input, 0), second = tagger->attention_input(input, 1);
    EXPECT_EQ(first.sizes(), (std::vector<int64_t>{1, 9, 16}));
    const auto answer = tagger->attention(0)->forward(first);
    EXPECT_EQ(second.equal(answer), layer == "bare");
    if (layer == "bare") {
      const auto parameters = tagger->named_parameters();
      const auto logits = tagger->attention(1)->forward(second).matmul(parameters["readout.weight"].t()) +
                          parameters["readout.bias"];
      EXPECT_TRUE(logits.squeeze(-1).allclose(tagger->forward(input), 1e-5, 1e-6));
    }
    EXPECT_THROW(tagger->attention_input(input, 2), c10::ValueError);
    EXPECT_THROW(tagger->attention(-1), c10::ValueError);
  }
}

TEST(TokenTagger, PaddingReachesNoCell) {
  torch::manual_seed(1);
  for (const std::string& layer : kLayers) {
    for (const std::string& kind : mixer_kinds()) {
      TokenTaggerConfig config = config_of(layer, kind);
      config.layers.push_back(config.layers[0]);  // in a second layer padding has had its chance
      TokenTagger tagger(config);
      const torch::NoGradGuard no_grad;
      const GridTokens input = grids({2, 4, 3});
      const auto logits = tagger->forward(input), other = tagger->forward(grids({2, 4, 3}, 1));
      const auto valid = valid_tokens(input.lengths, 16);
      EXPECT_TRUE(logits.masked_select(valid).equal(other.masked_select(valid))) << layer << " " << kind;
      EXPECT_FALSE(logits.equal(other)) << layer << " " << kind;
      // And a grid alone, without padding, is tagged alike up to rounding.
      const auto alone = tagger->forward(grids({2}));
      EXPECT_TRUE(alone[0].allclose(logits[0].slice(0, 0, 4), 1e-4, 1e-5)) << layer << " " << kind;
    }
  }
}

// The parts put together by hand from the parameters.
TEST(TokenTagger, IsItsFormula) {
  torch::manual_seed(2);
  for (const std::string& layer : kLayers) {
    TokenTaggerConfig config = config_of(layer);
    config.free_embedding = true;
    TokenTagger tagger(config);
    const GridTokens input = grids({3, 3});
    const auto parameters = tagger->named_parameters();
    const auto embedded = [&](const std::string& name, const torch::Tensor& ids) {
      return parameters[name + ".weight"].index({ids});
    };
    torch::Tensor x = embedded("value", input.values) + embedded("row", input.rows) +
                      embedded("column", input.columns) + embedded("free", input.rows * 4 + input.columns);
    if (layer == "residual_norm") x = torch::layer_norm(x, {16});
    const auto inner = tagger->named_modules()["layers.0"];
    if (layer == "pre_norm") {
      x = inner->as<nn::TransformerBlockImpl>()->forward(x);
      x = x / (x.square().mean(-1, true) + 1e-5).sqrt();
    } else {
      const auto mixed = inner->as<nn::InterleavedHeadAttentionImpl>()->forward(x);
      x = layer == "bare" ? mixed : torch::layer_norm(x + mixed, {16});
    }
    const auto expected = x.matmul(parameters["readout.weight"][0]) + parameters["readout.bias"];
    EXPECT_TRUE(tagger->forward(input).allclose(expected, 1e-5, 1e-5)) << layer;
  }
}

TEST(TokenTagger, EmbeddingsBeginStandardNormal) {
  torch::manual_seed(3);
  TokenTaggerConfig config = config_of("bare");
  config.d_model = 1000, config.free_embedding = true;
  config.layers[0].head_dim = 4;
  const auto parameters = TokenTagger(config)->named_parameters();
  for (const char* name : {"value.weight", "row.weight", "column.weight", "free.weight"}) {
    const auto n = static_cast<double>(parameters[name].numel());
    EXPECT_NEAR(parameters[name].mean().item<double>(), 0, 5 / std::sqrt(n)) << name;
    EXPECT_NEAR(parameters[name].var().item<double>(), 1, 5 * std::sqrt(2 / n)) << name;
  }
}

TEST(TokenTagger, CountsItsFlops) {
  TokenTaggerConfig config = config_of("bare", "plain");
  // Two heads of width 8 over 9 cells; the read-out.
  EXPECT_EQ(TokenTagger(config)->flops(9), (Flops{4 * 2 * 9 * 16 * 16 + 2 * 9 * 16, 0, 4 * 8 * 81 * 2}));
  config = config_of("pre_norm", "plain");
  config.feed_forward = 24;
  EXPECT_EQ(TokenTagger(config)->flops(9).projections,
            4 * 2 * 9 * 16 * 16 + 2 * 9 * 16 + 2 * 2 * 9 * 16 * 24);
}

TEST(TokenTagger, GoesFromConfigToModelAndBack) {
  for (const std::string& layer : kLayers) {
    TokenTaggerConfig config = config_of(layer);
    config.values = 3, config.free_embedding = true;
    config.layers.push_back(MixerConfig());
    config.layers[1].patterns = sliding(2);
    const TokenTagger tagger(config);
    const auto json = nlohmann::json::parse(nlohmann::json(tagger->config).dump());
    EXPECT_EQ(json.get<TokenTaggerConfig>(), tagger->config);
    const TokenTagger again(json.get<TokenTaggerConfig>());
    EXPECT_EQ(again->config, tagger->config);
    EXPECT_EQ(again->parameters().size(), tagger->parameters().size());
    EXPECT_EQ(tagger->config.layers[0].pseudo_heads, 2);  // written out
    EXPECT_EQ(tagger->config.feed_forward.has_value(), layer == "pre_norm");
  }
  EXPECT_THAT([] { nlohmann::json::parse(R"({"layers": [{"kid": 1}]})").get<TokenTaggerConfig>(); },
              testing::Throws<std::invalid_argument>(
                  testing::Property(&std::exception::what, testing::HasSubstr("unknown field `kid`"))));
}

TEST(TokenTagger, ClonesAndSerialises) {
  for (const std::string& layer : kLayers) {
    TokenTagger tagger(config_of(layer));
    const GridTokens input = grids({3, 4});
    const auto logits = tagger->forward(input);
    const auto clone = std::dynamic_pointer_cast<TokenTaggerImpl>(tagger->clone());
    EXPECT_TRUE(clone->forward(input).equal(logits));
    torch::NoGradGuard no_grad;
    clone->parameters()[0].add_(1);
    EXPECT_TRUE(tagger->forward(input).equal(logits));  // of its own

    std::stringstream stream;
    torch::save(tagger, stream);
    TokenTagger loaded(config_of(layer));
    EXPECT_FALSE(loaded->forward(input).equal(logits));
    torch::load(loaded, stream);
    EXPECT_TRUE(loaded->forward(input).equal(logits));
    tagger->to(torch::kFloat64);
    EXPECT_TRUE(tagger->forward(input).to(torch::kFloat32).allclose(logits, 1e-4, 1e-5));
  }
}

TEST(TokenTagger, PrintsItself) {
  std::ostringstream stream;
  stream << TokenTagger(config_of("bare"));
  EXPECT_THAT(stream.str(), testing::HasSubstr("iha::models::TokenTagger("));
  EXPECT_THAT(stream.str(), testing::HasSubstr("interleaved"));
}

TEST(TokenTagger, RefusesWhatDoesNotFit) {
  const auto refuses = [](auto change) {
    TokenTaggerConfig config = config_of("bare");
    change(config);
    EXPECT_THROW(TokenTagger{config}, c10::ValueError);
  };
  refuses([](auto& c) { c.layer = "pre-norm"; });
  refuses([](auto& c) { c.values = 0; });
  refuses([](auto& c) { c.max_side = 0; });
  refuses([](auto& c) { c.d_model = 15; });
  refuses([](auto& c) { c.d_model = 0; });
  refuses([](auto& c) { c.feed_forward = 8; });
  TokenTagger tagger(config_of("bare"));
  GridTokens input = grids({2});
  input.rows = input.rows.slice(1, 1);
  EXPECT_THROW(tagger->forward(input), c10::ValueError);
}

}  // namespace
}  // namespace iha::models
