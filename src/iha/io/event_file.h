// TensorBoard event files: records in TFRecord framing, each a protobuf `Event`, encoded by hand for the few
// fields that scalars and text need. Not here: reading them, histograms, images.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace iha::io {

// CRC-32C (Castagnoli) of `bytes`, and the masked form that TFRecord stores.
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

// A new file `events.out.tfevents.SECONDS.HOST.PID.N` in `folder` (made if absent). Every record is flushed,
// so a killed run keeps all but at most its last one, which TensorBoard skips. Throws std::system_error.
class EventFile {
 public:
  // first_step > 0: a resumed run; TensorBoard then drops what an earlier file holds at and after that step.
  explicit EventFile(const std::filesystem::path& folder, int64_t first_step = 0);

  void scalar(std::string_view tag, int64_t step, double value);
  void text(std::string_view tag, int64_t step, std::string_view markdown);
  const std::filesystem::path& path() const { return path_; }

 private:
  void append(const std::string& event);

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace iha::io
