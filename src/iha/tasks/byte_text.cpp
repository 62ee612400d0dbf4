#include "iha/tasks/byte_text.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "iha/core/error.h"
#include "iha/models/json_fields.h"
#include "iha/models/loss.h"

namespace iha::tasks {
namespace {

namespace fs = std::filesystem;

constexpr auto kReadText = "iha::tasks::read_text: ";

template <class Visitor, class Options>
void visit(Visitor& visitor, Options& options) {
  visitor("paths", options.paths);
  visitor("extensions", options.extensions);
  visitor("max_bytes", options.max_bytes);
  visitor("validation", options.validation);
  visitor("max_validation_bytes", options.max_validation_bytes);
}

bool has_extension(const fs::path& path, const std::vector<std::string>& extensions) {
  return extensions.empty() || std::ranges::find(extensions, path.extension().string()) != extensions.end();
}

std::vector<fs::path> files_under(const fs::path& path, const std::vector<std::string>& extensions) {
  if (fs::is_regular_file(path)) return {path};
  check(fs::is_directory(path), kReadText, path, " found no file or folder, expected one");
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file() && has_extension(entry.path(), extensions)) files.push_back(entry.path());
  }
  std::ranges::sort(files, {}, [](const fs::path& file) { return file.generic_string(); });
  return files;
}

// Appends the file's first `limit` bytes.
void append_file(const fs::path& path, int64_t limit, std::string& text) {
  std::ifstream stream(path, std::ios::binary);
  check(stream.good(), kReadText, path, " cannot be opened, expected a readable file");
  std::array<char, 1 << 16> buffer;
  while (limit > 0) {
    stream.read(buffer.data(), std::min<int64_t>(buffer.size(), limit));
    if (stream.gcount() == 0) break;
    text.append(buffer.data(), stream.gcount());
    limit -= stream.gcount();
  }
  check(!stream.bad(), kReadText, path, " cannot be read to its end");
}

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

int64_t byte_at(std::string_view text, int64_t n) {
  return static_cast<unsigned char>(text[n]);
}

}  // namespace

void to_json(nlohmann::json& json, const ByteTextOptions& options) {
  models::JsonWriter writer(json);
  visit(writer, options);
}

void from_json(const nlohmann::json& json, ByteTextOptions& options) {
  models::JsonReader reader(json, "byte text options");
  visit(reader, options);
  reader.finish();
}

ByteText read_text(const ByteTextOptions& options) {
  check(!options.paths.empty(), kReadText, "no path, expected a file or a folder");
  check(options.max_bytes >= 0, kReadText, "max_bytes ", options.max_bytes, ", expected at least 0");
  const int64_t limit = options.max_bytes > 0 ? options.max_bytes : std::numeric_limits<int64_t>::max();
  std::string text;
  std::vector<std::string> read;
  std::set<fs::path> seen;  // a file reached twice would be trained on and held out at once
  try {
    for (const std::string& path : options.paths) {
      for (const fs::path& file : files_under(path, options.extensions)) {
        const int64_t left = limit - static_cast<int64_t>(text.size());
        if (left == 0) break;
        if (!seen.insert(fs::canonical(file)).second) continue;
        append_file(file, left, text);
        read.push_back(file.string());
      }
    }
  } catch (const fs::filesystem_error& error) {
    fail(kReadText, error.what());
  }
  check(!read.empty(), kReadText, "no file with the wanted extension, expected at least one");
  ByteText result = split_text(std::move(text), options.validation, options.max_validation_bytes);
  result.files = std::move(read);
  return result;
}

ByteText split_text(std::string text, double validation, int64_t max_validation_bytes) {
  check(validation > 0 && validation < 1, "iha::tasks::split_text: validation share ", validation,
        ", expected between 0 and 1");
  check(max_validation_bytes >= 0, "iha::tasks::split_text: max_validation_bytes ", max_validation_bytes,
        ", expected at least 0");
  auto held_out = static_cast<int64_t>(validation * static_cast<double>(text.size()));
  if (max_validation_bytes > 0) held_out = std::min(held_out, max_validation_bytes);
  check(held_out > 0, "iha::tasks::split_text: ", text.size(), " bytes of which a share of ", validation,
        " is held out, expected at least one byte of each part");
  ByteText result;
  const size_t cut = text.size() - held_out;
  result.validation = text.substr(cut);
  text.resize(cut);
  result.train = std::move(text);
  return result;
}

TextBatch text_windows(std::string_view text, const std::vector<int64_t>& starts, int64_t tokens) {
  const auto batch = static_cast<int64_t>(starts.size());
  const int64_t bound = window_starts(text, tokens);
  TextBatch result{torch::empty({batch, tokens}, torch::kInt64),
                   torch::empty({batch, tokens}, torch::kInt64)};
  auto inputs = result.inputs.accessor<int64_t, 2>(), targets = result.targets.accessor<int64_t, 2>();
  for (int64_t b = 0; b < batch; ++b) {
    check(starts[b] >= 0 && starts[b] < bound, "iha::tasks::text_windows: start ", starts[b],
          ", expected one below ", bound);
    for (int64_t n = 0; n < tokens; ++n) {
      inputs[b][n] = byte_at(text, starts[b] + n);
      targets[b][n] = byte_at(text, starts[b] + n + 1);
    }
  }
  return result;
}

int64_t window_starts(std::string_view text, int64_t tokens) {
  check(tokens >= 1, "iha::tasks::window_starts: windows of ", tokens, " tokens, expected at least 1");
  const auto size = static_cast<int64_t>(text.size());
  check(size > tokens, "iha::tasks::window_starts: a text of ", size, " bytes, expected more than ", tokens,
        " for windows of that many tokens and the one after");
  return size - tokens;
}

std::vector<TextBatch> evaluation_batches(std::string_view text, int64_t tokens, int64_t batch) {
  check(tokens >= 1 && batch >= 1, "iha::tasks::evaluation_batches: ", batch, " windows of ", tokens,
        " tokens, expected at least 1 of each");
  const int64_t targets = static_cast<int64_t>(text.size()) - 1;
  std::vector<TextBatch> batches;
  for (int64_t first = 0; first < targets; first += batch * tokens) {
    const int64_t rows = std::min(batch, (targets - first + tokens - 1) / tokens);
    TextBatch part{torch::zeros({rows, tokens}, torch::kInt64),
                   torch::full({rows, tokens}, models::kIgnore, torch::kInt64)};
    auto* input = part.inputs.data_ptr<int64_t>();
    auto* target = part.targets.data_ptr<int64_t>();
    for (int64_t n = 0; n < std::min(rows * tokens, targets - first); ++n) {
      input[n] = byte_at(text, first + n);
      target[n] = byte_at(text, first + n + 1);
    }
    batches.push_back(std::move(part));
  }
  return batches;
}

double bigram_bits_per_byte(std::string_view train, std::string_view text) {
  if (text.size() < 2) return kNothing;
  std::vector<int64_t> pairs(256 * 256), before(256), all(256);
  const auto size = static_cast<int64_t>(train.size());
  for (int64_t n = 0; n < size; ++n) {
    ++all[byte_at(train, n)];
    if (n + 1 == size) break;
    ++before[byte_at(train, n)];
    ++pairs[byte_at(train, n) * 256 + byte_at(train, n + 1)];
  }
  double bits = 0;
  const auto targets = static_cast<int64_t>(text.size()) - 1;
  for (int64_t n = 0; n < targets; ++n) {
    const int64_t a = byte_at(text, n), b = byte_at(text, n + 1);
    const double unigram = static_cast<double>(all[b] + 1) / static_cast<double>(size + 256);
    bits -=
        std::log2((static_cast<double>(pairs[a * 256 + b]) + unigram) / static_cast<double>(before[a] + 1));
  }
  return bits / static_cast<double>(targets);
}

double gzip_bits_per_byte(std::string_view text) {
  if (text.empty()) return kNothing;
  constexpr int kGzipWindow = 15 + 16;  // the largest window, with gzip's header and trailer
  constexpr int kMemory = 8;            // zlib's and gzip's default
  z_stream stream{};
  check(
      deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzipWindow, kMemory, Z_DEFAULT_STRATEGY) == Z_OK,
      "iha::tasks::gzip_bits_per_byte: zlib found no memory");
  std::array<unsigned char, 1 << 16> out;
  int64_t compressed = 0;
  for (size_t first = 0; first < text.size();) {
    const std::string_view piece = text.substr(first, size_t{1} << 30);  // zlib counts in 32 bits
    first += piece.size();
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));  // zlib does not write to it
    stream.avail_in = static_cast<uInt>(piece.size());
    const int flush = first == text.size() ? Z_FINISH : Z_NO_FLUSH;
    do {
      stream.next_out = out.data();
      stream.avail_out = out.size();
      deflate(&stream, flush);
      compressed += static_cast<int64_t>(out.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  }
  deflateEnd(&stream);
  return 8.0 * static_cast<double>(compressed) / static_cast<double>(text.size());
}

}  // namespace iha::tasks
