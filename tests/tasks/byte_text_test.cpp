#include "iha/tasks/byte_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "iha/core/philox.h"
#include "iha/models/loss.h"
#include "tests/io/scratch.h"

namespace iha::tasks {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Property;
using testing::Throws;

auto throws_with(const std::string& part) {
  return Throws<std::invalid_argument>(Property(&std::exception::what, HasSubstr(part)));
}

class Folder : public io::Scratch {
 public:
  std::string write(const std::string& name, const std::string& content) const {
    const fs::path file = *this / name;
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file.string();
  }
};

ByteTextOptions options_of(std::vector<std::string> paths) {
  ByteTextOptions options;
  options.paths = std::move(paths);
  options.validation = 0.25;
  return options;
}

TEST(ReadText, ReadsFoldersInTheOrderOfPaths) {
  const Folder folder;
  folder.write("b.txt", "BB");
  folder.write("a/z.txt", "ZZ");
  folder.write("a/b/c.txt", "CC");
  folder.write("a.txt", "AA");
  folder.write("a/skip.bin", "no");
  const std::string extra = folder.write("extra.md", "EE");
  ByteTextOptions options = options_of({extra, folder.path().string()});
  options.extensions = {".txt", ".text"};
  const ByteText text = read_text(options);
  // '.' sorts before '/'.
  EXPECT_EQ(text.train + text.validation, "EEAACCZZBB");
  EXPECT_EQ(text.validation, "BB");
  EXPECT_EQ(text.files.size(), 5u);
  EXPECT_EQ(text.files[1], (folder.path() / "a.txt").string());
}

TEST(ReadText, ReadsAFileOnce) {
  const Folder folder;
  const std::string file = folder.write("inner/a.txt", "0123456789");
  fs::create_directory_symlink(folder.path() / "inner", folder.path() / "link");
  fs::create_symlink(file, folder.path() / "same.txt");
  const ByteText text = read_text(options_of({folder.path().string(), file}));
  EXPECT_EQ(text.train + text.validation, "0123456789");
}

TEST(ReadText, StopsAtTheLargestSize) {
  const Folder folder;
  folder.write("a", std::string(100'000, 'a'));  // more than one buffer
  folder.write("b", std::string(10, 'b'));
  folder.write("c", "c");
  ByteTextOptions options = options_of({folder.path().string()});
  for (const auto& [limit, size, files] :
       {std::tuple{0, 100'011, 3u}, {100'005, 100'005, 2u}, {100'000, 100'000, 1u}, {4, 4, 1u}}) {
    options.max_bytes = limit;
    const ByteText text = read_text(options);
    EXPECT_EQ(text.train.size() + text.validation.size(), static_cast<size_t>(size));
    EXPECT_EQ(text.files.size(), files);
  }
}

TEST(ReadText, NamesWhatItCannotRead) {
  const Folder folder;
  folder.write("empty", "");
  EXPECT_THAT([] { read_text(options_of({})); }, throws_with("no path"));
  EXPECT_THAT([] { read_text(options_of({"/nowhere/at/all"})); }, throws_with("/nowhere/at/all"));
  EXPECT_THAT([&] { read_text(options_of({folder.path().string()})); }, throws_with("0 bytes"));
  ByteTextOptions options = options_of({folder.path().string()});
  options.extensions = {".py"};
  EXPECT_THAT([&] { read_text(options); }, throws_with("no file with the wanted extension"));
  options.max_bytes = -1;
  EXPECT_THAT([&] { read_text(options); }, throws_with("max_bytes -1"));
}

TEST(SplitText, HoldsOutTheTail) {
  const ByteText text = split_text("0123456789", 0.3);
  EXPECT_EQ(text.train, "0123456");
  EXPECT_EQ(text.validation, "789");
  EXPECT_EQ(split_text("0123456789", 0.3, 2).validation, "89");
  EXPECT_EQ(split_text("0123456789", 0.3, 2).train, "01234567");
  EXPECT_EQ(split_text("0123456789", 0.3, 5).validation, "789");
  EXPECT_THAT([] { split_text("012", 0.3); }, throws_with("3 bytes"));
  EXPECT_THAT([] { split_text("012", 0.0); }, throws_with("validation share 0"));
  EXPECT_THAT([] { split_text("012", 1.0); }, throws_with("validation share 1"));
  EXPECT_THAT([] { split_text("012", 0.5, -1); }, throws_with("max_validation_bytes -1"));
}

std::string text_of(const torch::Tensor& tokens) {
  std::string text;
  for (int64_t n = 0; n < tokens.numel(); ++n) text += static_cast<char>(tokens.flatten()[n].item<int64_t>());
  return text;
}

TEST(TextWindows, TargetsAreTheNextBytes) {
  const std::string text = "abcdef\xff";
  EXPECT_EQ(window_starts(text, 3), 4);
  const TextBatch batch = text_windows(text, {0, 3}, 3);
  EXPECT_EQ(text_of(batch.inputs), "abcdef");
  EXPECT_EQ(text_of(batch.targets), "bcdef\xff");
  EXPECT_EQ(batch.targets[1][2].item<int64_t>(), 255);  // bytes, not signed characters
  EXPECT_EQ(text_windows(text, {}, 3).inputs.sizes(), (std::vector<int64_t>{0, 3}));
  EXPECT_THAT([&] { text_windows(text, {4}, 3); }, throws_with("start 4, expected one below 4"));
  EXPECT_THAT([&] { text_windows(text, {-1}, 3); }, throws_with("start -1"));
  EXPECT_EQ(window_starts(text, 6), 1);
  EXPECT_THAT([&] { window_starts(text, 7); }, throws_with("7 bytes, expected more than 7"));
  EXPECT_THAT([&] { window_starts(text, 0); }, throws_with("windows of 0 tokens"));
}

TEST(EvaluationBatches, EveryByteButTheFirstIsATargetOnce) {
  for (const int64_t size : {0, 1, 2, 5, 12, 13, 14, 24, 25, 26, 40}) {
    std::string text;
    for (int64_t n = 0; n < size; ++n) text += static_cast<char>('A' + n);
    std::string targets;
    for (const TextBatch& batch : evaluation_batches(text, 4, 3)) {
      EXPECT_GE(batch.inputs.size(0), 1);
      EXPECT_LE(batch.inputs.size(0), 3);
      EXPECT_EQ(batch.inputs.size(1), 4);
      const auto counted = batch.targets.ne(models::kIgnore);
      const auto inputs = batch.inputs.masked_select(counted), next = batch.targets.masked_select(counted);
      EXPECT_TRUE(next.equal(inputs + 1));  // the input's successor in the alphabet
      targets += text_of(next);
    }
    EXPECT_EQ(targets, size > 0 ? text.substr(1) : "");
  }
  EXPECT_THAT([] { evaluation_batches("abc", 0, 1); }, throws_with("1 windows of 0 tokens"));
}

TEST(Bigram, IsTheFormula) {
  // Of "abab": a and b twice each; ab twice in 2 pairs from a, ba once in 1 pair from b.
  const double unigram = 3.0 / 260;
  const double expected = -(std::log2((2 + unigram) / 3) + std::log2((1 + unigram) / 2)) / 2;
  EXPECT_NEAR(bigram_bits_per_byte("abab", "aba"), expected, 1e-12);
  EXPECT_DOUBLE_EQ(bigram_bits_per_byte("", "xyz"), 8);  // knows nothing
  EXPECT_TRUE(std::isnan(bigram_bits_per_byte("abab", "a")));
}

TEST(Bigram, ProbabilitiesSumToOne) {
  for (const char before : {'a', 'b', 'z', '\xff'}) {
    double sum = 0;
    for (int next = 0; next < 256; ++next) {
      const std::string pair = {before, static_cast<char>(next)};
      sum += std::exp2(-bigram_bits_per_byte("abracadabra\xff\xff", pair));
    }
    EXPECT_NEAR(sum, 1, 1e-12);
  }
}

TEST(Gzip, IsTheSizeOfTheFile) {
  // Bytes without any pattern are stored: 10 bytes of header, 5 of the block, 8 of trailer.
  PhiloxStream stream(1);
  std::string noise;
  for (int n = 0; n < 1000; ++n) noise += static_cast<char>(stream.next_word());
  EXPECT_DOUBLE_EQ(gzip_bits_per_byte(noise), 8 * 1023 / 1000.0);
  EXPECT_LT(gzip_bits_per_byte(std::string(100'000, 'a')), 0.02);  // runs of 258 in a few bits
  EXPECT_DOUBLE_EQ(gzip_bits_per_byte(noise + noise), gzip_bits_per_byte(noise + noise));
  EXPECT_LT(gzip_bits_per_byte(noise + noise), 4.5);  // the second half repeats the first
  EXPECT_TRUE(std::isnan(gzip_bits_per_byte("")));
}

TEST(ByteTextOptions, GoThroughJson) {
  const ByteTextOptions options{{"a", "b"}, {".py"}, 100, 0.2, 50};
  EXPECT_EQ(nlohmann::json(options).get<ByteTextOptions>(), options);
  EXPECT_THAT([] { nlohmann::json::parse(R"({"path": "a"})").get<ByteTextOptions>(); },
              throws_with("unknown field `path`"));
}

}  // namespace
}  // namespace iha::tasks
