// Replacing a file so that a reader, or a machine that loses power, sees the old one or the new one, whole.
// Not for logs, which grow (json_lines.h, event_file.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace iha::io {

// Writes to `.NAME.tmp` beside the target; commit() syncs it, renames it over the target and syncs the
// folder. Without commit the target stays as it was and the temporary goes (after a kill: with the next
// commit). Two writers of one target at a time are refused. All errors are std::system_error naming the file.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

 private:
  std::filesystem::path target_, temporary_;
  int descriptor_ = -1;
};

void replace_file(const std::filesystem::path& target, std::string_view content);

// The whole file. Throws std::system_error naming it.
std::vector<std::byte> read_file(const std::filesystem::path& path);
std::string read_text(const std::filesystem::path& path);

}  // namespace iha::io
