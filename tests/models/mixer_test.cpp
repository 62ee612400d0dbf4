#include "iha/models/mixer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "iha/patterns/parse.h"

namespace iha::models {
namespace {

using testing::HasSubstr;
using testing::Property;
using testing::Throws;

auto value_error(const std::string& part) {
  return Throws<c10::ValueError>(Property(&c10::Error::what_without_backtrace, HasSubstr(part)));
}

MixerConfig of_kind(const std::string& kind) {
  MixerConfig config;
  config.kind = kind;
  return config;
}

TEST(Mixer, KindsAreTheFourDesignsAndPlainHeads) {
  const auto options = [](const std::string& kind) { return layer_options(of_kind(kind), 64, false); };
  for (const char* kind : {"plain", "modes"}) {
    EXPECT_EQ(*options(kind).pseudo_heads(), 1) << kind;
    EXPECT_FALSE(options(kind).mixing()) << kind;
  }
  EXPECT_EQ(*options("averaged").pseudo_heads(), 4);
  EXPECT_EQ(options("averaged").layout(), "parallel");
  EXPECT_EQ(options("averaged").collapse(), "mean");
  EXPECT_EQ(*options("interleaved").pseudo_heads(), 4);
  EXPECT_EQ(options("interleaved").layout(), "interleaved");
  EXPECT_EQ(options("interleaved").collapse(), "global");
  EXPECT_EQ(options("interleaved").rope(), "none");  // the configuration's, not the preset's
  EXPECT_EQ(*options("mixed").pseudo_heads(), 1);
  EXPECT_TRUE(options("mixed").mixing());
}

TEST(Mixer, FieldsReachTheLayer) {
  MixerConfig config = of_kind("interleaved");
  config.heads = 8, config.kv_heads = 2, config.head_dim = 6, config.pseudo_heads = 3;
  config.patterns = causal() * 4 + causal_sliding(0) * 4;
  config.rope = "token", config.rope_theta = 500, config.collapse = "per_head", config.mixing_init = "random";
  config.mixing_noise = 0.1, config.dropout = 0.2, config.sinks = true, config.bit_linear = true;
  const auto options = layer_options(config, 64, true);
  EXPECT_EQ(options.heads(), 8);
  EXPECT_EQ(*options.kv_heads(), 2);
  EXPECT_EQ(*options.head_dim(), 6);
  EXPECT_EQ(*options.pseudo_heads(), 3);
  EXPECT_EQ(options.patterns(), config.patterns);
  EXPECT_EQ(options.rope(), "token");
  EXPECT_EQ(options.rope_theta(), 500);
  EXPECT_EQ(options.collapse(), "per_head");
  EXPECT_EQ(options.mixing_init(), nn::MixingInit::kRandom);
  EXPECT_EQ(options.mixing_noise(), 0.1);
  EXPECT_EQ(options.dropout(), 0.2);
  EXPECT_TRUE(options.sinks());
  EXPECT_TRUE(options.bit_linear());
  EXPECT_TRUE(options.autoregressive());
  EXPECT_EQ(resolved(config, 64), config);
  EXPECT_EQ(nlohmann::json(config).get<MixerConfig>(), config);
}

TEST(Mixer, ResolvedWritesOutWhatWasAbsent) {
  for (const std::string& kind : mixer_kinds()) {
    const MixerConfig full = resolved(of_kind(kind), 64);
    EXPECT_EQ(full.kv_heads, 4) << kind;
    EXPECT_EQ(full.head_dim, 16) << kind;
    EXPECT_EQ(full.pseudo_heads, kind == "averaged" || kind == "interleaved" ? 4 : 1) << kind;
    EXPECT_EQ(full.rope, "none") << kind;
    EXPECT_EQ(resolved(full, 64), full) << kind;
    EXPECT_EQ(nlohmann::json::parse(nlohmann::json(full).dump()).get<MixerConfig>(), full) << kind;
  }
  EXPECT_EQ(resolved(of_kind("averaged"), 64).collapse, "mean");
  EXPECT_EQ(resolved(of_kind("mixed"), 64).mixing_init, "identity_noise");
  EXPECT_EQ(resolved(of_kind("plain"), 64).collapse, std::nullopt);
}

TEST(Mixer, RefusesWhatDoesNotFit) {
  const auto refuses = [](const std::string& kind, auto change, const std::string& part) {
    MixerConfig config = of_kind(kind);
    change(config);
    EXPECT_THAT([&] { layer_options(config, 64, false); }, value_error(part));
  };
  refuses(
      "plane", [](auto&) {}, "kind `plane`, expected one of plain, modes, averaged, interleaved, mixed");
  refuses(
      "plain", [](auto& c) { c.pseudo_heads = 2; }, "2 pseudo-heads for the kind `plain`, expected 1");
  refuses(
      "interleaved", [](auto& c) { c.pseudo_heads = 0; }, "pseudo_heads = 0, expected at least 1");
  refuses(
      "interleaved", [](auto& c) { c.kv_heads = 0; }, "kv_heads = 0");
  refuses(
      "modes", [](auto& c) { c.collapse = "mean"; }, "mixes no heads");
  refuses(
      "plain", [](auto& c) { c.patterns = causal() * 4; }, "4 patterns for the kind `plain`");
  refuses(
      "modes", [](auto& c) { c.patterns = causal() * 3; }, "3 patterns for 4 heads");
  refuses(
      "plain", [](auto& c) { c.heads = 5; }, "64 is not a multiple of 5");
  refuses(
      "plain", [](auto& c) { c.rope = "both"; }, "rope = 'both'");
  refuses(
      "mixed", [](auto& c) { c.mixing_init = "zeros"; }, "mixing_init `zeros`");
  refuses(
      "mixed", [](auto& c) { c.collapse = "sum"; }, "collapse = 'sum'");
  MixerConfig future = of_kind("modes");
  future.patterns = causal() * 2 + sliding(3) + global();
  EXPECT_THAT([&] { layer_options(future, 64, true); }, value_error("2 (sliding:3), 3 (global)"));
}

TEST(Mixer, JsonRefusesUnknownNamesAndTypes) {
  const auto parse = [](const char* text) { return nlohmann::json::parse(text).get<MixerConfig>(); };
  const auto refuses = [&](const char* text, const std::string& part) {
    EXPECT_THAT([&] { parse(text); },
                Throws<std::invalid_argument>(Property(&std::exception::what, HasSubstr(part))))
        << text;
  };
  EXPECT_EQ(parse(R"({"patterns": "causal*2,global*2", "heads": 4})").patterns, causal() * 2 + global() * 2);
  EXPECT_EQ(parse("{}"), MixerConfig());
  refuses(R"({"head": 4})", "unknown field `head`");
  refuses(R"({"heads": "four"})", "`heads` is \"four\"");
  refuses(R"({"patterns": "causl"})", "causal");
  refuses(R"([1])", "found array, expected an object");
}

TEST(PaperSchedule, IsFourLocalLayersToOneGlobal) {
  MixerConfig base;
  base.heads = 4, base.dropout = 0.1;
  const auto schedule = layer_schedule("paper", 11, 512, base);
  ASSERT_EQ(schedule.size(), 11u);
  for (size_t layer = 0; layer < schedule.size(); ++layer) {
    const MixerConfig& mixer = schedule[layer];
    const bool is_global = layer == 4 || layer == 9;
    EXPECT_EQ(mixer.kind, is_global ? "plain" : "interleaved") << layer;
    // N / (2 P^2) = 512 / 32.
    EXPECT_EQ(to_text(mixer.patterns), is_global ? "causal" : "causal_sliding:16") << layer;
    EXPECT_EQ(mixer.rope, is_global ? "token" : "virtual") << layer;
    EXPECT_EQ(mixer.dropout, 0.1) << layer;
    EXPECT_NO_THROW(layer_options(mixer, 64, true)) << layer;
  }
}

TEST(PaperSchedule, FollowsPseudoHeads) {
  MixerConfig base;
  base.pseudo_heads = 2;
  EXPECT_EQ(to_text(layer_schedule("paper", 1, 512, base)[0].patterns), "causal_sliding:64");
  base.pseudo_heads = 8;  // windows of 127 / 128 tokens
  EXPECT_THROW(layer_schedule("paper", 1, 127, base), std::invalid_argument);
}

TEST(LayerSchedule, KindsServeEveryLayer) {
  MixerConfig base;
  base.patterns = causal();
  base.pseudo_heads = 2, base.mixing_init = "normal", base.collapse = "per_head";
  for (const std::string& kind : mixer_kinds()) {
    for (const MixerConfig& mixer : layer_schedule(kind, 3, 64, base)) {
      EXPECT_EQ(mixer.kind, kind);
      EXPECT_EQ(mixer.patterns, base.patterns);
      EXPECT_EQ(mixer.rope, kind == "interleaved" ? "virtual" : "token");
      EXPECT_NO_THROW(layer_options(mixer, 64, true)) << kind;
    }
  }
  base.rope = "none";
  EXPECT_EQ(layer_schedule("interleaved", 1, 64, base)[0].rope, "none");
  EXPECT_THAT([&] { layer_schedule("papr", 1, 64, base); }, value_error("interleaved, mixed, paper"));
  EXPECT_THAT([&] { layer_schedule("plain", 0, 64, base); }, value_error("0 layers"));
}

}  // namespace
}  // namespace iha::models
