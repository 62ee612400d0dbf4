// Language modelling on the bytes of any text: reading files and folders, holding out a part by position,
// windows for training and evaluation, and the baselines that a model must beat on the same held-out bytes.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace iha::tasks {

struct ByteTextOptions {
  // Files, or folders read recursively (symbolic links to folders are not followed).
  std::vector<std::string> paths;
  std::vector<std::string> extensions;  // of files in folders, with the dot; empty: every file
  int64_t max_bytes = 0;                // read no more than this in all; 0: everything
  double validation = 0.1;              // share of the bytes that is held out
  int64_t max_validation_bytes = 0;     // hold out no more than this; 0: no limit
  friend bool operator==(const ByteTextOptions&, const ByteTextOptions&) = default;
};

void to_json(nlohmann::json& json, const ByteTextOptions& options);
void from_json(const nlohmann::json& json, ByteTextOptions& options);

// The files one after the other, each folder's in the bytewise order of their paths. Held out is the tail of
// the whole, one contiguous piece: no training window touches it.
struct ByteText {
  std::string train, validation;
  std::vector<std::string> files;  // those read, in order
};
// Throws std::invalid_argument naming the path that does not exist or cannot be read, and where nothing is
// left to train on or to hold out.
ByteText read_text(const ByteTextOptions& options);
// The same split of a text at hand.
ByteText split_text(std::string text, double validation, int64_t max_validation_bytes = 0);

struct TextBatch {
  torch::Tensor inputs;   // int64 [B, N]
  torch::Tensor targets;  // int64 [B, N]: the byte after each input; models::kIgnore in padding
};
// Windows of `tokens` + 1 bytes beginning at `starts`. Throws std::invalid_argument where one leaves the
// text.
TextBatch text_windows(std::string_view text, const std::vector<int64_t>& starts, int64_t tokens);
// Bound of the starts of such windows: text.size() - tokens. Throws std::invalid_argument where the text is
// shorter.
int64_t window_starts(std::string_view text, int64_t tokens);
// The whole text in consecutive windows, `batch` at a time: every byte but the first is a target exactly
// once; the last window is padded. Empty for a text of fewer than two bytes.
std::vector<TextBatch> evaluation_batches(std::string_view text, int64_t tokens, int64_t batch);

// Bits a byte of a byte-bigram model fitted on `train`, over all bytes of `text` but the first:
// p(b | a) = (count(ab) + u(b)) / (count(a) + 1) with u(b) = (count(b) + 1) / (n + 256). NaN for under two
// bytes.
double bigram_bits_per_byte(std::string_view train, std::string_view text);
// 8 * (bytes of `text` as gzip at level 9) / (bytes of `text`), knowing nothing but the text. NaN for an
// empty text.
double gzip_bits_per_byte(std::string_view text);

}  // namespace iha::tasks
