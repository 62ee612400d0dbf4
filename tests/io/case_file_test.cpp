#include "iha/io/case_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <string>

#include "iha/patterns/parse.h"
#include "tests/case_folder.h"
#include "tests/io/scratch.h"

namespace iha::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A case in the making, small enough to be changed in one place by each test.
struct Draft {
  struct Tensor {
    TensorType type;
    std::vector<int64_t> shape;
  };
  Metadata metadata;
  std::map<std::string, Tensor> tensors;

  // Every element is 1.
  SafeTensors file() const {
    std::map<std::string, std::vector<std::byte>> bytes;
    std::vector<TensorEntry> entries;
    for (const auto& [name, tensor] : tensors) {
      const int64_t count =
          std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
      bytes[name] = ones(tensor.type, count);
      entries.push_back({name, tensor.type, tensor.shape, bytes[name]});
    }
    return SafeTensors::parse(serialize(entries, metadata));
  }

  static std::vector<std::byte> ones(TensorType type, int64_t count) {
    const auto repeat = [count](auto one) {
      std::vector<std::byte> bytes(sizeof(one) * static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < bytes.size(); i += sizeof(one))
        std::memcpy(bytes.data() + i, &one, sizeof(one));
      return bytes;
    };
    switch (type) {
      case TensorType::kF64:
        return repeat(1.0);
      case TensorType::kF32:
        return repeat(1.0f);
      case TensorType::kBF16:
        return repeat(uint16_t{0x3F80});
      case TensorType::kF16:
        return repeat(uint16_t{0x3C00});
      case TensorType::kI64:
        return repeat(int64_t{1});
      default:
        return repeat(int32_t{1});
    }
  }
};

constexpr auto kF32 = TensorType::kF32;
constexpr auto kF64 = TensorType::kF64;
constexpr auto kI64 = TensorType::kI64;

// B 2, Hq 4, Hkv 2, Nq 3, Nk 5, d 6, dv 7, P 2, everything that an attention case may have.
Draft attention() {
  return {{{"format", "iha-case-1"},
           {"op", "attention"},
           {"patterns", "causal*3,sliding:2"},
           {"layout", "parallel"},
           {"order", "token"},
           {"rope", "virtual"},
           {"rope_theta", "5e5"},
           {"rope_style", "adjacent"},
           {"scale", "0.25"},
           {"query_offset", "-1"},
           {"collapse", "global"}},
          {{"q", {kF32, {2, 4, 3, 6}}},
           {"k", {kF32, {2, 2, 5, 6}}},
           {"v", {kF32, {2, 2, 5, 7}}},
           {"alpha_q", {kF32, {4, 4, 2}}},
           {"alpha_k", {kF32, {2, 2, 2}}},
           {"alpha_v", {kF32, {2, 2, 2}}},
           {"collapse", {kF32, {4, 4, 2}}},
           {"sinks", {kF32, {4}}},
           {"key_lengths", {kI64, {2}}},
           {"grad_out", {kF32, {2, 4, 3, 7}}},
           {"grad_lse", {kF32, {2, 4, 3, 2}}},
           {"expected.out", {kF64, {2, 4, 3, 7}}},
           {"expected.lse", {kF64, {2, 4, 3, 2}}},
           {"expected.parts", {kF64, {2, 4, 3, 2, 7}}},
           {"expected.grad_q", {kF64, {2, 4, 3, 6}}},
           {"expected.grad_alpha_k", {kF64, {2, 2, 2}}},
           {"expected.grad_collapse", {kF64, {4, 4, 2}}},
           {"expected.grad_sinks", {kF64, {4}}}}};
}

Draft plain_attention() {
  return {{{"format", "iha-case-1"}, {"op", "attention"}},
          {{"q", {kF32, {1, 2, 3, 4}}}, {"k", {kF32, {1, 2, 5, 4}}}, {"v", {kF32, {1, 2, 5, 4}}}}};
}

// B 1, N 3, D 4, 2 heads.
Draft mixed_modes() {
  Draft draft{{{"format", "iha-case-1"},
               {"op", "module"},
               {"module", "mixed_modes"},
               {"heads", "2"},
               {"patterns", "causal,global"}},
              {{"x", {kF32, {1, 3, 4}}},
               {"grad_out", {kF32, {1, 3, 4}}},
               {"expected.out", {kF64, {1, 3, 4}}},
               {"expected.grad_x", {kF64, {1, 3, 4}}},
               {"expected.grad_W_k.bias", {kF64, {4}}}}};
  for (const std::string name : {"W_q", "W_k", "W_v", "W_o"}) {
    draft.tensors[name + ".weight"] = {kF32, {4, 4}};
    draft.tensors[name + ".bias"] = {kF32, {4}};
  }
  return draft;
}

Draft averaged_pseudo_heads() {
  Draft draft{{{"format", "iha-case-1"},
               {"op", "module"},
               {"module", "averaged_pseudo_heads"},
               {"heads", "2"},
               {"pseudo_heads", "3"},
               {"mode", "decoder"},
               {"bitnet", "true"}},
              {{"x", {kF32, {1, 3, 4}}}}};
  for (const std::string name : {"q_proj", "k_proj", "v_proj", "out_proj"})
    draft.tensors[name + ".weight"] = {kF32, {4, 4}};
  for (const std::string name : {"q_mix", "k_mix", "v_mix"}) draft.tensors[name] = {kF32, {6, 2}};
  return draft;
}

template <class Kind>
Kind read(const Draft& draft) {
  return std::get<Kind>(read_case(draft.file(), "x.safetensors"));
}

TEST(CaseFile, EveryFileOfTheFolderIsRead) {
  const auto files = case_files();
  if (files.empty()) GTEST_SKIP() << "no case files in " << case_folder();
  int attentions = 0, modules = 0;
  for (const auto& path : files) {
    SCOPED_TRACE(path.filename().string());
    const Case read = read_case(path);
    const auto* attention = std::get_if<AttentionCase>(&read);
    attentions += attention != nullptr;
    modules += attention == nullptr;
    const Arrays& expected = attention ? attention->expected : std::get<ModuleCase>(read).expected;
    EXPECT_TRUE(expected.contains("out"));
    EXPECT_FALSE(attention && attention->inputs.contains("grad_out") && !expected.contains("grad_q"));
  }
  EXPECT_GT(attentions, 0);
  EXPECT_GT(modules, 0);
}

TEST(CaseFile, HeadsThatChooseBringTheirWeights) {
  Draft draft = attention();
  draft.metadata["patterns"] = "learned(causal|global)*2,causal_dynamic:2:1*2";
  EXPECT_THROW(read<AttentionCase>(draft), std::invalid_argument);
  draft.tensors["mode_weights"] = {kF32, {4, 2}};
  draft.tensors["block_weights"] = {kF32, {2, 4, 3, 3}};
  draft.tensors["expected.grad_mode_weights"] = {kF64, {4, 2}};
  draft.tensors["expected.grad_block_weights"] = {kF64, {2, 4, 3, 3}};
  const auto read_case = read<AttentionCase>(draft);
  EXPECT_EQ(read_case.inputs.at("block_weights").values.size(), 72u);
  EXPECT_TRUE(read_case.expected.contains("grad_mode_weights"));
  draft.tensors["mode_weights"] = {kF32, {4, 3}};
  EXPECT_THROW(read<AttentionCase>(draft), std::invalid_argument);
  draft = attention();
  draft.tensors["mode_weights"] = {kF32, {4, 2}};  // no head reads it
  EXPECT_THROW(read<AttentionCase>(draft), std::invalid_argument);
}

TEST(CaseFile, EverythingIsUnderstood) {
  const auto read_case = read<AttentionCase>(attention());
  const Problem& problem = read_case.problem;
  EXPECT_EQ(problem.batch, 2);
  EXPECT_EQ(problem.query_heads, 4);
  EXPECT_EQ(problem.key_heads, 2);
  EXPECT_EQ(problem.queries, 3);
  EXPECT_EQ(problem.keys, 5);
  EXPECT_EQ(problem.head_dim, 6);
  EXPECT_EQ(problem.value_dim, 7);
  EXPECT_EQ(problem.pseudo_heads, 2);
  EXPECT_EQ(problem.patterns, parse_patterns("causal*3,sliding:2").expand(4));
  EXPECT_EQ(problem.layout, Layout::kParallel);
  EXPECT_EQ(problem.order, Order::kToken);
  EXPECT_EQ(problem.rope.kind, RopeKind::kVirtual);
  EXPECT_EQ(problem.rope.style, RopeStyle::kAdjacent);
  EXPECT_EQ(problem.rope.theta, 5e5);
  EXPECT_EQ(problem.scale, 0.25);
  EXPECT_EQ(problem.collapse, CollapseKind::kGlobal);
  EXPECT_THAT(problem.query_offset, ElementsAre(-1, -1));
  EXPECT_THAT(problem.key_lengths, ElementsAre(1, 1));
  EXPECT_TRUE(read_case.query_offset_given);
  EXPECT_EQ(read_case.dtype, DType::kFloat32);
  EXPECT_EQ(read_case.metadata, attention().metadata);
  EXPECT_EQ(read_case.inputs.size(), 10u);
  EXPECT_THAT(read_case.inputs.at("sinks").values, ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(data_of(read_case.inputs, "q"), read_case.inputs.at("q").values.data());
  EXPECT_EQ(data_of(read_case.inputs, "rope"), nullptr);
  EXPECT_EQ(read_case.expected.size(), 7u);
  EXPECT_THAT(read_case.expected.at("parts").shape, ElementsAre(2, 4, 3, 2, 7));
}

TEST(CaseFile, WhatIsAbsentHasItsDefault) {
  const auto read_case = read<AttentionCase>(plain_attention());
  const Problem& problem = read_case.problem;
  EXPECT_EQ(problem.patterns, std::vector<Pattern>(2, global()));
  EXPECT_EQ(problem.pseudo_heads, 1);
  EXPECT_EQ(problem.layout, Layout::kInterleaved);
  EXPECT_EQ(problem.order, Order::kFlat);
  EXPECT_EQ(problem.rope.kind, RopeKind::kNone);
  EXPECT_EQ(problem.rope.theta, 10000);
  EXPECT_EQ(problem.scale, 0.5);
  EXPECT_EQ(problem.collapse, CollapseKind::kMean);
  EXPECT_THAT(problem.query_offset, ElementsAre(2));  // Nk - Nq
  EXPECT_FALSE(read_case.query_offset_given);
  EXPECT_TRUE(problem.key_lengths.empty());
  EXPECT_TRUE(problem.documents.empty());
  EXPECT_TRUE(read_case.expected.empty());
}

TEST(CaseFile, OffsetsDocumentsAndFrequenciesAsTensors) {
  Draft draft = plain_attention();
  draft.tensors["query_offset"] = {kI64, {1}};
  draft.tensors["documents"] = {kI64, {1, 5}};
  draft.tensors["rope_freqs"] = {kF64, {1}};
  draft.metadata["rope"] = "token";
  draft.metadata["rope_theta"] = "not read";
  const auto read_case = read<AttentionCase>(draft);
  EXPECT_THAT(read_case.problem.query_offset, ElementsAre(1));
  EXPECT_TRUE(read_case.query_offset_given);
  EXPECT_THAT(read_case.problem.documents, ElementsAre(1, 1, 1, 1, 1));
  EXPECT_THAT(read_case.problem.rope.frequencies, ElementsAre(1));
}

TEST(CaseFile, Bfloat16InputsAreExact) {
  Draft draft = plain_attention();
  for (auto& [name, tensor] : draft.tensors) tensor.type = TensorType::kBF16;
  const auto read_case = read<AttentionCase>(draft);
  EXPECT_EQ(read_case.dtype, DType::kBFloat16);
  EXPECT_EQ(read_case.inputs.at("q").values, std::vector<double>(24, 1.0));
}

TEST(CaseFile, Modules) {
  const auto mixed = read<ModuleCase>(mixed_modes());
  EXPECT_EQ(mixed.kind, ModuleKind::kMixedModes);
  EXPECT_EQ(mixed.heads, 2);
  EXPECT_EQ(mixed.patterns, parse_patterns("causal,global"));
  EXPECT_EQ(mixed.parameters.size(), 8u);
  EXPECT_THAT(mixed.parameters.at("W_o.bias").shape, ElementsAre(4));
  EXPECT_EQ(mixed.expected.size(), 3u);

  const auto averaged = read<ModuleCase>(averaged_pseudo_heads());
  EXPECT_EQ(averaged.kind, ModuleKind::kAveragedPseudoHeads);
  EXPECT_EQ(averaged.pseudo_heads, 3);
  EXPECT_TRUE(averaged.decoder);
  EXPECT_TRUE(averaged.bitnet);
  EXPECT_THAT(averaged.parameters.at("v_mix").shape, ElementsAre(6, 2));
  EXPECT_TRUE(averaged.expected.empty());
}

struct Fault {
  std::string says;
  std::function<void(Draft&)> change;
};

void expect_faults(const Draft& sound, const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.says);
    Draft draft = sound;
    fault.change(draft);
    try {
      read_case(draft.file(), "x.safetensors");
      ADD_FAILURE() << "no error";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("x.safetensors"));
      EXPECT_THAT(error.what(), HasSubstr(fault.says));
    }
  }
}

Fault value(const std::string& key, const std::string& value, const std::string& says) {
  return {says, [=](Draft& draft) { draft.metadata[key] = value; }};
}
Fault tensor(const std::string& name, TensorType type, const std::vector<int64_t>& shape,
             const std::string& says) {
  return {says, [=](Draft& draft) { draft.tensors[name] = {type, shape}; }};
}
Fault without(const std::string& name, const std::string& says) {
  return {says, [=](Draft& draft) {
            draft.metadata.erase(name);
            draft.tensors.erase(name);
          }};
}

TEST(CaseFile, FaultsOfAttentionCasesAreNamed) {
  expect_faults(
      attention(),
      {without("format", "no metadata key format"),
       value("format", "iha-case-2", "format = 'iha-case-2', expected iha-case-1"),
       without("op", "no metadata key op"),
       value("op", "convolution", "op = 'convolution', expected attention or module"),
       value("Rope", "token", "unknown metadata key 'Rope'"),
       value("module", "mixed_modes", "unknown metadata key 'module'"),
       value("patterns", "causl*4", "patterns: "),
       value("patterns", "causal*3", "patterns: "),
       value("layout", "Parallel", "layout = 'Parallel', expected interleaved, parallel"),
       value("order", "", "order = '', expected flat, token"),
       value("rope", "yes", "expected none, token, virtual"),
       value("rope_style", "full", "expected half, adjacent"),
       value("rope_theta", "1e4x", "rope_theta = '1e4x', expected a number"),
       value("rope_theta", "inf", "expected a number"),
       value("rope_theta", "-1", "rope_theta"),
       value("scale", "nan", "scale = 'nan', expected a number"),
       value("scale", " 1", "expected a number"),
       value("query_offset", "1.5", "query_offset = '1.5', expected an integer"),
       value("query_offset", "99999999999999999999", "expected an integer"),
       value("query_offset", "9007199254740992", "query offset"),
       value("collapse", "max", "collapse = 'max', expected mean, per_head, global"),
       value("collapse", "mean", "unknown tensor 'collapse'"),
       value("collapse", "per_head", "collapse has shape [4, 4, 2], expected [4, 2]"),
       without("q", "no tensor q"),
       without("collapse", "unknown tensor"),
       without("query_offset", "no query_offset, expected one with key_lengths and 3 queries for 5 keys"),
       without("grad_out", "unknown tensor"),
       tensor("q", kF32, {2, 4, 18}, "q has shape [2, 4, 18], expected [*, *, *, *]"),
       tensor("q", kF64, {2, 4, 3, 6}, "q is F64, expected F32 or BF16"),
       tensor("q", TensorType::kF16, {2, 4, 3, 6}, "q is F16, expected F32 or BF16"),
       tensor("k", TensorType::kBF16, {2, 2, 5, 6}, "k is BF16, expected F32 like the inputs before it"),
       tensor("k", kF32, {2, 2, 5, 8}, "k has shape [2, 2, 5, 8], expected [2, *, *, 6]"),
       tensor("v", kF32, {2, 2, 4, 7}, "v has shape [2, 2, 4, 7], expected [2, 2, 5, *]"),
       tensor("alpha_q", kF32, {2, 2, 2}, "alpha_q has shape [2, 2, 2], expected [4, 4, *]"),
       tensor("alpha_k", kF32, {2, 2, 3}, "alpha_k has shape [2, 2, 3], expected [2, 2, 2]"),
       tensor("sinks", kF32, {2}, "sinks has shape [2], expected [4]"),
       tensor("key_lengths", TensorType::kI32, {2}, "key_lengths is I32, expected I64"),
       tensor("key_lengths", kI64, {1}, "key_lengths has shape [1], expected [2]"),
       tensor("query_offset", kI64, {2}, "query_offset as metadata and as a tensor"),
       tensor("documents", kI64, {2, 3}, "documents has shape [2, 3], expected [2, 5]"),
       tensor("rope_freqs", kF64, {4}, "RoPE frequencies"),
       tensor("rope_freqs", kF64, {0}, "rope_freqs has no element"),
       tensor("rope_freqs", kF32, {3}, "rope_freqs is F32, expected F64"),
       tensor("grad_out", kF32, {2, 4, 3, 6}, "grad_out has shape"),
       tensor("grad_lse", kF32, {2, 4, 3}, "grad_lse has shape"),
       tensor("mask", kF32, {3, 5}, "unknown tensor 'mask'"),
       tensor("expected.mask", kF64, {1}, "unknown tensor 'expected.mask'"),
       tensor("expected.out", kF32, {2, 4, 3, 7}, "expected.out is F32, expected F64"),
       tensor("expected.lse", kF64, {2, 4, 3}, "expected.lse has shape"),
       tensor("expected.grad_v", kF64, {2, 2, 5, 6}, "expected.grad_v has shape")});
}

TEST(CaseFile, FaultsBetweenTensorsAreNamed) {
  expect_faults(plain_attention(),
                {tensor("k", kF32, {1, 3, 5, 4}, "v has shape"),
                 tensor("rope_freqs", kF64, {2}, "rope_freqs with rope = none"),
                 tensor("grad_lse", kF32, {1, 2, 3, 1}, "unknown tensor 'grad_lse'"),
                 tensor("expected.grad_q", kF64, {1, 2, 3, 4}, "unknown tensor 'expected.grad_q'"),
                 {"2 query heads is not a multiple of 3 key heads",
                  [](Draft& draft) {
                    draft.tensors["k"].shape = {1, 3, 5, 4};
                    draft.tensors["v"].shape = {1, 3, 5, 4};
                  }},
                 {"pseudo-tokens of 2 heads, expected at most",
                  [](Draft& draft) {
                    for (const std::string name : {"q", "k", "v"})
                      draft.tensors[name].shape = {1, 2, int64_t{1} << 40, 0};
                    for (auto& [name, tensor] : draft.tensors) tensor.type = TensorType::kBF16;
                  }},
                 {"288230376151711744 sequences or heads", [](Draft& draft) {
                    for (const std::string name : {"q", "k", "v"})
                      draft.tensors[name].shape = {int64_t{1} << 58, 0, 0, 0};
                    for (auto& [name, tensor] : draft.tensors) tensor.type = TensorType::kBF16;
                  }}});
}

TEST(CaseFile, FaultsOfModuleCasesAreNamed) {
  expect_faults(
      mixed_modes(),
      {value("module", "Mixed", "module = 'Mixed', expected"), without("module", "no metadata key module"),
       without("heads", "no metadata key heads"), value("heads", "0", "heads = 0, expected 1 or more"),
       value("heads", "two", "heads = 'two', expected an integer"),
       value("heads", "3", "x is 4 wide, expected a multiple of 3 heads"),
       without("patterns", "no metadata key patterns"),
       value("mode", "decoder", "unknown metadata key 'mode'"), without("W_v.bias", "no tensor W_v.bias"),
       tensor("W_v.bias", kF32, {2}, "W_v.bias has shape [2], expected [4]"),
       tensor("x", kF32, {3, 4}, "x has shape [3, 4], expected [*, *, *]"),
       without("grad_out", "unknown tensor 'expected.grad_W_k.bias'")});
  expect_faults(averaged_pseudo_heads(),
                {value("mode", "Decoder", "mode = 'Decoder', expected encoder or decoder"),
                 without("mode", "no metadata key mode"),
                 value("bitnet", "True", "bitnet = 'True', expected false, true"),
                 value("pseudo_heads", "0", "pseudo_heads = 0, expected 1 or more"),
                 value("pseudo_heads", "2.9", "expected an integer"),
                 value("pseudo_heads", "9999999999", "expected 1 or more"),
                 value("pseudo_heads", "2", "q_mix has shape [6, 2], expected [4, 2]"),
                 tensor("q_proj.bias", kF32, {4}, "unknown tensor 'q_proj.bias'")});
}

TEST(CaseFile, ResultsAreSaved) {
  const Scratch scratch;
  save_arrays(scratch / "out.safetensors", {{"out", {{2, 1}, {0.1, -3}}}, {"lse", {{0}, {}}}});
  const SafeTensors file = SafeTensors::open(scratch / "out.safetensors");
  EXPECT_THAT(file.at("out").shape, ElementsAre(2, 1));
  EXPECT_EQ(file.at("out").type, TensorType::kF64);
  EXPECT_THAT(to_doubles(file.at("out")), ElementsAre(0.1, -3));
}

}  // namespace
}  // namespace iha::io
