// Export of BitLinear maps: a whole module from its file alone, map by map and bit for bit.
#include "iha/nn/ternary_export.h"

#include <torch/nn/modules/container/sequential.h>

#include <map>
#include <string>

#include "iha/nn/tensor_file.h"
#include "iha/nn/transformer_block.h"
#include "tests/io/scratch.h"
#include "tests/nn/support.h"

namespace iha::nn {
namespace {

using testing::ElementsAre;

TransformerBlock ternary_block(bool bias) {
  return TransformerBlock(TransformerBlockOptions(
      InterleavedHeadAttentionOptions::interleaved(16, 2).bit_linear(true).bias(bias)));
}

TEST(TernaryExport, BakesEveryMapUnderItsName) {
  torch::manual_seed(1);
  auto block = ternary_block(true);
  const auto baked = bake_all(*block);
  std::vector<std::string> names;
  for (const auto& [name, layer] : baked) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("attention.q_proj", "attention.k_proj", "attention.v_proj",
                                 "attention.out_proj", "feed_forward.up", "feed_forward.down"));
  const auto modules = block->named_modules();
  for (const auto& [name, layer] : baked) {
    auto& trained = *modules[name]->as<BitLinearImpl>();
    const auto x = torch::randn({3, trained.options.in_features()});
    auto holder = layer;
    expect_same_bits(holder(x), trained.forward(x));
  }
}

TEST(TernaryExport, AFileIsTheWholeModule) {
  torch::manual_seed(2);
  const io::Scratch scratch;
  for (const bool bias : {false, true}) {
    auto block = ternary_block(bias);
    const auto path = scratch / "block.safetensors";
    export_ternary(*block, path);
    const auto file = io::SafeTensors::open(path);
    EXPECT_EQ(file.metadata().at("format"), "iha-ternary-1");
    size_t expected = 0;
    for (const auto& parameter : block->named_parameters()) {
      const auto& name = parameter.key();
      const bool mapped = name.find("_proj.weight") != std::string::npos || name.find("feed_forward") == 0;
      if (!mapped || name.find(".bias") != std::string::npos) {
        expect_same_bits(to_tensor(file.at(name), name), parameter.value());
        ++expected;
      } else {
        EXPECT_FALSE(file.contains(name)) << name;
      }
    }
    for (const auto& [name, layer] : bake_all(*block)) {
      const auto& view = file.at(name + ".ternary");
      EXPECT_EQ(view.type, io::TensorType::kI8);
      TernaryLinear loaded(layer->options);
      loaded->ternary.set_data(to_tensor(view, name));
      loaded->scale.set_data(to_tensor(file.at(name + ".scale"), name));
      if (bias) loaded->bias.set_data(to_tensor(file.at(name + ".bias"), name));
      const auto x = torch::randn({3, layer->options.in_features()});
      auto trained = layer;
      expect_same_bits(loaded(x), trained(x));
      expected += 2;
    }
    EXPECT_EQ(file.tensors().size(), expected);
  }
}

TEST(TernaryExport, TakesALoneMapAndModulesWithoutAny) {
  torch::manual_seed(3);
  const io::Scratch scratch;
  BitLinear layer(BitLinearOptions(4, 3).bias(true));
  const auto baked = bake_all(*layer);
  ASSERT_EQ(baked.size(), 1u);
  EXPECT_EQ(baked[0].first, "");
  export_ternary(*layer, scratch / "one.safetensors");
  const auto file = io::SafeTensors::open(scratch / "one.safetensors");
  EXPECT_EQ(file.tensors().size(), 3u);
  expect_same_bits(to_tensor(file.at("ternary"), "ternary"), ternary(layer->weight).values);
  InterleavedHeadAttention plain(8, 2);
  EXPECT_TRUE(bake_all(*plain).empty());
  export_ternary(*plain, scratch / "plain.safetensors");
  EXPECT_EQ(io::SafeTensors::open(scratch / "plain.safetensors").tensors().size(),
            plain->parameters().size());
}

}  // namespace
}  // namespace iha::nn
