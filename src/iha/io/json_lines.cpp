#include "iha/io/json_lines.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <system_error>

#include "iha/io/atomic_file.h"
#include "iha/io/json_text.h"
#include "iha/io/utf8.h"

namespace iha::io {
namespace {

std::string to_json(const JsonScalar& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<int64_t>(&value)) return fmt::format("{}", *number);
  if (const auto* number = std::get_if<double>(&value)) {
    return std::isfinite(*number) ? fmt::format("{}", *number) : "null";
  }
  return json_string(repair_utf8(std::get<std::string>(value)));
}

// Where a kill cut a line in two, its first half goes.
void cut_torn_line(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return;
  const std::string content = read_text(path);
  const std::size_t whole = content.rfind('\n') == std::string::npos ? 0 : content.rfind('\n') + 1;
  if (whole != content.size()) std::filesystem::resize_file(path, whole);
}

}  // namespace

std::string to_json(const JsonRecord& record) {
  std::string line = "{";
  for (const auto& [key, value] : record) {
    line +=
        fmt::format("{}{}: {}", line.size() == 1 ? "" : ", ", json_string(repair_utf8(key)), to_json(value));
  }
  return line + '}';
}

JsonLines::JsonLines(const std::filesystem::path& path) : path_(path), file_(nullptr, &std::fclose) {
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path());
  cut_torn_line(path_);
  file_.reset(std::fopen(path_.c_str(), "ab"));
  if (!file_) throw std::system_error(errno, std::generic_category(), "cannot open " + path_.string());
}

void JsonLines::write(const JsonRecord& record) {
  const std::string line = to_json(record) + '\n';
  const bool written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size();
  if (!written || std::fflush(file_.get()) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot write " + path_.string());
  }
}

}  // namespace iha::io
