#include "iha/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <system_error>

#include "iha/core/dtype.h"
#include "iha/io/atomic_file.h"
#include "tests/io/scratch.h"

namespace iha::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::byte> bytes_of_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

template <class T>
std::span<const std::byte> view(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<double> doubles_of(TensorType type, std::span<const std::byte> bytes, int64_t count) {
  return to_doubles(TensorView{type, {count}, bytes});
}

TEST(SafeTensors, WhatIsWrittenIsRead) {
  const std::vector<float> weights{1.5f, -2, 0.1f, 4, 5, 6};
  const std::vector<int64_t> lengths{7, -1};
  const std::vector<uint8_t> flags{1, 0, 1};
  const std::vector<TensorEntry> entries{{"layer.flags", TensorType::kBool, {3}, view(flags)},
                                         {"weight", TensorType::kF32, {2, 3}, view(weights)},
                                         {"lengths", TensorType::kI64, {2}, view(lengths)}};
  const Metadata metadata{{"format", "pt"}, {"quoted \"key\"\n", "Grüße \\ \t 🙂"}};
  const SafeTensors file = SafeTensors::parse(serialize(entries, metadata));
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.at("weight").type, TensorType::kF32);
  EXPECT_THAT(file.at("weight").shape, ElementsAre(2, 3));
  EXPECT_THAT(to_doubles(file.at("weight")), ElementsAre(1.5, -2, static_cast<double>(0.1f), 4, 5, 6));
  EXPECT_THAT(to_int64s(file.at("lengths")), ElementsAre(7, -1));
  EXPECT_THAT(to_int64s(file.at("layer.flags")), ElementsAre(1, 0, 1));
  EXPECT_FALSE(file.contains("layer"));
}

TEST(SafeTensors, EmptyTensorsAndScalarsRoundTrip) {
  const std::vector<double> scalar{2.5};
  const std::vector<TensorEntry> entries{{"none", TensorType::kF32, {0}, {}},
                                         {"none too", TensorType::kF32, {0}, {}},
                                         {"flat", TensorType::kF16, {3, 0, 2}, {}},
                                         {"", TensorType::kF64, {}, view(scalar)}};
  const SafeTensors file = SafeTensors::parse(serialize(entries));
  EXPECT_EQ(file.at("none").count(), 0);
  EXPECT_EQ(file.at("none too").count(), 0);
  EXPECT_THAT(file.at("flat").shape, ElementsAre(3, 0, 2));
  EXPECT_THAT(to_doubles(file.at("")), ElementsAre(2.5));
  EXPECT_TRUE(SafeTensors::parse(serialize({})).tensors().empty());
}

TEST(SafeTensors, LayoutIsDeterministicAndAligned) {
  const std::vector<uint8_t> bytes{1, 2, 3};
  const std::vector<uint16_t> halves{4};
  const std::vector<double> doubles{5};
  const std::vector<TensorEntry> entries{{"c", TensorType::kU8, {3}, view(bytes)},
                                         {"b", TensorType::kF16, {1}, view(halves)},
                                         {"a", TensorType::kU8, {3}, view(bytes)},
                                         {"z", TensorType::kF64, {1}, view(doubles)}};
  const std::vector<TensorEntry> reversed(entries.rbegin(), entries.rend());
  const std::vector<std::byte> file = serialize(entries, {{"x", "1"}});
  EXPECT_EQ(file, serialize(reversed, {{"x", "1"}}));
  const SafeTensors parsed = SafeTensors::parse(file);
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  EXPECT_EQ(header % 8, 0u);
  const std::byte* first = parsed.at("z").bytes.data();
  EXPECT_EQ(parsed.at("b").bytes.data() - first, 8);
  EXPECT_EQ(parsed.at("a").bytes.data() - first, 10);
  EXPECT_EQ(parsed.at("c").bytes.data() - first, 13);
}

TEST(SafeTensors, ViewsOutliveAMove) {
  const std::vector<float> values{3};
  SafeTensors file =
      SafeTensors::parse(serialize(std::vector<TensorEntry>{{"a", TensorType::kF32, {1}, view(values)}}));
  const TensorView tensor = file.at("a");
  const SafeTensors moved = std::move(file);
  EXPECT_THAT(to_doubles(tensor), ElementsAre(3));
}

TEST(SafeTensors, FilesAreSavedAndMapped) {
  const Scratch scratch;
  const std::vector<float> values{1, 2};
  const std::vector<TensorEntry> entries{{"a", TensorType::kF32, {2}, view(values)}};
  save_safetensors(scratch / "a.safetensors", entries, {{"k", "v"}});
  EXPECT_EQ(read_file(scratch / "a.safetensors"), serialize(entries, {{"k", "v"}}));
  const SafeTensors file = SafeTensors::open(scratch / "a.safetensors");
  save_safetensors(scratch / "a.safetensors", {});  // replaced, not rewritten: the old bytes live on
  EXPECT_THAT(to_doubles(file.at("a")), ElementsAre(1, 2));
  EXPECT_TRUE(SafeTensors::open(scratch / "a.safetensors").tensors().empty());
}

TEST(SafeTensors, FilesThatAreNoneAreErrors) {
  const Scratch scratch;
  EXPECT_THROW(SafeTensors::open(scratch / "absent"), std::system_error);
  EXPECT_THROW(SafeTensors::open(scratch.path()), std::invalid_argument);
  EXPECT_THROW(SafeTensors::open("/dev/zero"), std::invalid_argument);
  replace_file(scratch / "empty", "");
  EXPECT_THROW(SafeTensors::open(scratch / "empty"), std::invalid_argument);
  ASSERT_EQ(mkfifo((scratch / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(SafeTensors::open(scratch / "pipe"), std::invalid_argument);  // and does not wait for a writer
  try {
    SafeTensors::open(scratch / "empty");
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("empty: 0 bytes, expected at least 8"));
  }
}

TEST(SafeTensors, EveryTypeHasItsNameAndSize) {
  for (int i = 0; i <= static_cast<int>(TensorType::kU64); ++i) {
    const auto type = static_cast<TensorType>(i);
    const std::vector<std::byte> bytes(static_cast<std::size_t>(bits_of(type)) * 3);  // 24 elements
    const std::vector<TensorEntry> entries{{"a", type, {4, 6}, bytes}};
    const SafeTensors file = SafeTensors::parse(serialize(entries));
    EXPECT_EQ(file.at("a").type, type);
    EXPECT_EQ(file.at("a").bytes.size(), bytes.size());
  }
  // Half a byte, and 18 bits, do not fill bytes.
  const std::vector<std::byte> bytes(3);
  EXPECT_THROW(serialize(std::vector<TensorEntry>{{"a", TensorType::kF4, {5}, bytes}}),
               std::invalid_argument);
  EXPECT_THROW(serialize(std::vector<TensorEntry>{{"a", TensorType::kF6E2M3, {3}, bytes}}),
               std::invalid_argument);
}

TEST(SafeTensors, ElementsWidenExactlyOrAreRefused) {
  const std::vector<uint16_t> halves{float_to_float16(-0.375f), 0x7c00};
  EXPECT_THAT(doubles_of(TensorType::kF16, view(halves), 2),
              ElementsAre(-0.375, std::numeric_limits<double>::infinity()));
  const std::vector<uint16_t> brains{float_to_bfloat16(3.0f), 0x7fc0};
  EXPECT_EQ(doubles_of(TensorType::kBF16, view(brains), 2)[0], 3.0);
  EXPECT_TRUE(std::isnan(doubles_of(TensorType::kBF16, view(brains), 2)[1]));
  EXPECT_THAT(doubles_of(TensorType::kI8, view(std::vector<int8_t>{-128}), 1), ElementsAre(-128));
  EXPECT_THAT(doubles_of(TensorType::kU32, view(std::vector<uint32_t>{4294967295u}), 1),
              ElementsAre(4294967295.0));
  const int64_t largest = int64_t{1} << 53;
  EXPECT_THAT(doubles_of(TensorType::kI64, view(std::vector<int64_t>{largest, -largest}), 2),
              ElementsAre(9007199254740992.0, -9007199254740992.0));
  EXPECT_THROW(doubles_of(TensorType::kI64, view(std::vector<int64_t>{largest + 1}), 1),
               std::invalid_argument);
  EXPECT_THROW(doubles_of(TensorType::kU64, view(std::vector<uint64_t>{~uint64_t{0}}), 1),
               std::invalid_argument);
  EXPECT_THROW(doubles_of(TensorType::kF8E4M3, view(std::vector<uint8_t>{1}), 1), std::invalid_argument);
  EXPECT_THROW(to_int64s({TensorType::kF32, {1}, view(std::vector<float>{1})}), std::invalid_argument);
  EXPECT_THROW(to_int64s({TensorType::kU64, {1}, view(std::vector<uint64_t>{~uint64_t{0}})}),
               std::invalid_argument);
}

TEST(SafeTensors, UnalignedTensorsOfOtherWritersAreRead) {
  const std::string header =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}} )";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  file += header + '\x05';
  const double value = 0.1;
  file.append(reinterpret_cast<const char*>(&value), sizeof value);
  EXPECT_THAT(to_doubles(SafeTensors::parse(bytes_of_text(file)).at("b")), ElementsAre(0.1));
}

TEST(SafeTensors, TheWriterRefusesWhatNobodyCouldRead) {
  const std::vector<float> values{1, 2};
  const auto write = [&](const std::vector<TensorEntry>& entries, const Metadata& metadata = {}) {
    serialize(entries, metadata);
  };
  EXPECT_THROW(write({{"a", TensorType::kF32, {3}, view(values)}}), std::invalid_argument);
  EXPECT_THROW(write({{"a", TensorType::kF32, {-2}, view(values)}}), std::invalid_argument);
  EXPECT_THROW(write({{"__metadata__", TensorType::kF32, {2}, view(values)}}), std::invalid_argument);
  EXPECT_THROW(
      write({{"a", TensorType::kF32, {2}, view(values)}, {"a", TensorType::kF64, {1}, view(values)}}),
      std::invalid_argument);
  EXPECT_THROW(write({{"\xFF", TensorType::kF32, {2}, view(values)}}), std::invalid_argument);
  EXPECT_THROW(write({}, {{"k", "\xC3"}}), std::invalid_argument);
}

}  // namespace
}  // namespace iha::io
