// A log of one JSON object a line, for programs to read while it grows.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace iha::io {

// Numbers that JSON does not have (NaN, inf) become null.
using JsonScalar = std::variant<bool, int64_t, double, std::string>;
using JsonRecord = std::vector<std::pair<std::string, JsonScalar>>;

// The record as one line without its end, keys in the given order, numbers as short as they read back
// exactly. Bytes that are not UTF-8 become U+FFFD.
std::string to_json(const JsonRecord& record);

// Appends to `path` (its folder is made if absent); each line is flushed at once. A last line without an end,
// which a kill may leave, is cut off first. Throws std::system_error.
class JsonLines {
 public:
  explicit JsonLines(const std::filesystem::path& path);
  void write(const JsonRecord& record);

 private:
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace iha::io
