// Files that lie, and files broken by chance: an error each, without a crash and without memory beyond the
// file's size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "iha/core/philox.h"
#include "iha/io/safetensors.h"
#include "tests/io/largest_allocation.h"
#include "tests/io/scratch.h"

namespace iha::io {
namespace {

using testing::HasSubstr;

std::string with_length(uint64_t length, const std::string& rest) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + rest;
}
std::string file_of(const std::string& header, std::size_t data_bytes = 0) {
  return with_length(header.size(), header + std::string(data_bytes, 'x'));
}
// A header of one tensor "a".
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

SafeTensors parse(const std::string& file) {
  const auto bytes = std::as_bytes(std::span(file));
  return SafeTensors::parse({bytes.begin(), bytes.end()}, "bad");
}

// What the error says; "" where there is none.
std::string error_of(const std::string& file) {
  try {
    parse(file);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

struct Hostile {
  std::string what;
  std::string file;
  std::string says;
};

std::vector<Hostile> hostile_files() {
  const std::string fine = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  return {
      {"no length", "\x01\x02\x03", "3 bytes, expected at least 8"},
      {"length 2^64-1", with_length(~uint64_t{0}, "{}"), "18446744073709551615 bytes, expected at most 2"},
      {"length 2^64-8, wraps to 0", with_length(~uint64_t{7}, "{}"), "expected at most 2"},
      {"length beyond the file", with_length(3, "{}"), "a header of 3 bytes, expected at most 2"},
      {"no header", with_length(0, ""), "does not begin with '{'"},
      {"blank before the header", file_of(" {}"), "does not begin with '{'"},
      {"byte order mark", file_of("\xEF\xBB\xBF{}"), "does not begin with '{'"},
      {"an array", file_of("[]"), "does not begin with '{'"},
      {"half an object", file_of("{"), "not JSON"},
      {"two objects", file_of("{}{}"), "not JSON"},
      {"rubbish behind", file_of("{}x"), "not JSON"},
      {"NUL behind", file_of(std::string("{}\0", 3)), "not JSON"},
      {"not UTF-8", file_of("{\"\xFF\":" + fine + "}", 4), "not JSON"},
      {"lone surrogate", file_of("{\"\\ud800\":" + fine + "}", 4), "not JSON"},
      {"1000 x 1000 F32 over 4 bytes", file_of(one("F32", "[1000,1000]", "[0,4]"), 4),
       "4 bytes, expected 4000000"},
      {"2^62 x 4 wraps to 0", file_of(one("U8", "[4611686018427387904,4]", "[0,0]")), "beyond 2^63 bits"},
      {"2^61 bytes wrap as bits", file_of(one("U8", "[2305843009213693952]", "[0,0]")), "beyond 2^63 bits"},
      {"product wraps behind a 0", file_of(one("U8", "[0,4611686018427387904,4]", "[0,0]")),
       "beyond 2^63 bits"},
      {"2^63", file_of(one("U8", "[9223372036854775808]", "[0,0]")), "expected less than 2^63"},
      {"2^64", file_of(one("U8", "[18446744073709551616]", "[0,0]")), "no integer"},
      {"2^1024", file_of(one("U8", "[1e999]", "[0,0]")), "not JSON"},
      {"-1", file_of(one("U8", "[-1]", "[0,0]")), "a negative number"},
      {"1.0", file_of(one("U8", "[1.0]", "[0,1]"), 1), "no integer"},
      {"reversed", file_of(one("F32", "[1]", "[4,0]"), 4), "expected them to rise"},
      {"gap in front", file_of(one("F32", "[1]", "[4,8]"), 8), "(a gap)"},
      {"data behind", file_of(one("F32", "[1]", "[0,4]"), 5), "5 bytes of data, expected 4"},
      {"data missing", file_of(one("F32", "[1]", "[0,4]"), 3), "3 bytes of data, expected 4"},
      {"span 0 for one element", file_of(one("F32", "[1]", "[0,0]")), "0 bytes, expected 4"},
      {"span for no element", file_of(one("F32", "[0]", "[0,4]"), 4), "4 bytes, expected 0"},
      {"overlap",
       file_of(
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
           6),
       "(an overlap)"},
      {"one span twice",
       file_of(
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
           4),
       "(an overlap)"},
      {"gap between",
       file_of(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
           3),
       "(a gap)"},
      {"half a byte", file_of(one("F4", "[3]", "[0,2]"), 2), "whole bytes"},
      {"three offsets", file_of(one("U8", "[1]", "[0,1,1]"), 1), "3 data_offsets"},
      {"one offset", file_of(one("U8", "[1]", "[0]"), 1), "1 data_offsets"},
      {"nested shape", file_of(one("U8", "[[1]]", "[0,1]"), 1), "found an array"},
      {"shape of strings", file_of(one("U8", "[\"1\"]", "[0,1]"), 1), "found a string"},
      {"shape of null", file_of(one("U8", "null", "[0,1]"), 1), "found null"},
      {"unknown dtype", file_of(one("F128", "[1]", "[0,16]"), 16), "has dtype 'F128'"},
      {"dtype in small letters", file_of(one("f32", "[1]", "[0,4]"), 4), "has dtype 'f32'"},
      {"no dtype", file_of(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), "2 keys"},
      {"unknown field", file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}})", 1),
       "'strides'"},
      {"field twice", file_of(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
       "twice"},
      {"tensor twice", file_of("{\"a\":" + fine + ",\"a\":" + fine + "}", 4), "'a' is there twice"},
      {"tensor twice, escaped", file_of("{\"a\":" + fine + ",\"\\u0061\":" + fine + "}", 4),
       "'a' is there twice"},
      {"tensor is a number", file_of(R"({"a":1})"), "found a number"},
      {"tensor is true", file_of(R"({"a":true})"), "found a boolean"},
      {"metadata is a string", file_of(R"({"__metadata__":"x"})"), "found a string"},
      {"metadata is null", file_of(R"({"__metadata__":null})"), "found null"},
      {"metadata is a tensor", file_of("{\"__metadata__\":" + fine + "}", 4), "found an array"},
      {"metadata of numbers", file_of(R"({"__metadata__":{"a":1}})"),
       "in __metadata__, expected strings only"},
      {"metadata nested", file_of(R"({"__metadata__":{"a":{}}})"), "found an object"},
      {"metadata key twice", file_of(R"({"__metadata__":{"a":"1","a":"2"}})"),
       "'a' is there twice in __metadata__"},
      {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})"), "twice"},
      {"deep arrays", file_of("{\"a\":" + std::string(1'000'000, '['), 0), "found an array"},
      {"deep objects", file_of("{\"__metadata__\":{\"a\":" + std::string(1'000'000, '{'), 0),
       "found an object"},
  };
}

TEST(HostileSafeTensors, EachLieIsAnErrorThatNamesIt) {
  for (const Hostile& hostile : hostile_files()) {
    SCOPED_TRACE(hostile.what);
    largest_allocation = 0;
    const std::string error = error_of(hostile.file);
    EXPECT_LE(largest_allocation, 4 * hostile.file.size() + 4096);
    EXPECT_THAT(error, testing::StartsWith("bad: "));
    EXPECT_THAT(error, HasSubstr(hostile.says));
  }
}

// A header longer than any file should have is refused before it is read.
TEST(HostileSafeTensors, HeadersHaveALimit) {
  const Scratch scratch;
  std::ofstream(scratch / "long") << with_length(100'000'001, "{}");
  std::filesystem::resize_file(scratch / "long", 200'000'000);  // a hole: it takes no space
  try {
    SafeTensors::open(scratch / "long");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("a header of 100000001 bytes, expected at most 100000000"));
  }
}

std::string valid_file() {
  static const std::vector<float> floats{1, 2, 3, 4};
  static const std::vector<uint8_t> bytes{9, 8, 7};
  const std::vector<TensorEntry> entries{
      {"first", TensorType::kF32, {2, 2}, std::as_bytes(std::span(floats))},
      {"second", TensorType::kU8, {3}, std::as_bytes(std::span(bytes))},
      {"empty", TensorType::kI64, {0, 5}, {}},
  };
  const std::vector<std::byte> file = serialize(entries, {{"format", "pt"}, {"b", ""}});
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

// Either an error or a file whose every view can be read to its end. True where it parsed.
bool survives(const std::string& file) {
  largest_allocation = 0;
  bool parsed = false;
  try {
    const SafeTensors tensors = parse(file);
    parsed = true;
    for (const auto& [name, tensor] : tensors.tensors()) {
      unsigned sum = 0;
      for (const std::byte byte : tensor.bytes) sum += static_cast<unsigned>(byte);
      EXPECT_LE(sum, 255 * file.size());
      EXPECT_EQ(static_cast<std::size_t>(tensor.count() * bits_of(tensor.type)), tensor.bytes.size() * 8);
    }
  } catch (const std::invalid_argument&) {
  }
  EXPECT_LE(largest_allocation, 4 * file.size() + 4096);
  return parsed;
}

TEST(HostileSafeTensors, EveryTruncationIsAnError) {
  const std::string file = valid_file();
  ASSERT_TRUE(survives(file));
  for (std::size_t size = 0; size < file.size(); ++size) ASSERT_FALSE(survives(file.substr(0, size))) << size;
  ASSERT_FALSE(survives(file + 'x'));
}

TEST(HostileSafeTensors, EveryByteMayBeAnything) {
  const std::string file = valid_file();
  for (std::size_t i = 0; i < file.size(); ++i) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string broken = file;
      broken[i] = static_cast<char>(byte);
      survives(broken);
    }
  }
}

TEST(HostileSafeTensors, PiecesMayBeCutDoubledAndPutAnywhere) {
  const std::vector<std::string> pieces{"{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\"",
                                        "0",
                                        "9",
                                        "-",
                                        "1e9",
                                        "null",
                                        "18446744073709551615",
                                        "__metadata__",
                                        "\"shape\"",
                                        "\\u0000",
                                        "\xC3",
                                        std::string(1, '\0'),
                                        "F64"};
  const std::string file = valid_file();
  PhiloxStream random(7);
  int parsed = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string header = file.substr(8, file.size() - 8);
    for (int64_t edits = 1 + random.next_below(3); edits > 0; --edits) {
      const auto at = static_cast<std::size_t>(random.next_below(static_cast<int64_t>(header.size())));
      const auto length = static_cast<std::size_t>(random.next_below(12));
      switch (random.next_below(3)) {
        case 0:
          header.erase(at, length);
          break;
        case 1:
          header.insert(at, header.substr(at, length));
          break;
        default:
          header.insert(
              at, pieces[static_cast<std::size_t>(random.next_below(static_cast<int64_t>(pieces.size())))]);
      }
      header += ' ';  // never empty
    }
    // The length as it was, or as the edit made it.
    uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    if (random.next_below(2) == 0) length += header.size() - (file.size() - 8);
    parsed += survives(with_length(length, header));
  }
  EXPECT_LT(parsed, 20000);
}

}  // namespace
}  // namespace iha::io
