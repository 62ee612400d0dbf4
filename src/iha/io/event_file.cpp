#include "iha/io/event_file.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "iha/io/utf8.h"

namespace iha::io {
namespace {

// CRC-32C one byte at a time: the polynomial 0x1EDC6F41 with its bits reversed.
constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    table[byte] = crc;
  }
  return table;
}();

// The wire format of protocol buffers, as far as events need it. Numbers are fields of tensorboard's
// event.proto, summary.proto and tensor.proto.
class Message {
 public:
  Message& varint(int field, uint64_t value) {
    put_varint(static_cast<uint64_t>(field) << 3 | 0);
    put_varint(value);
    return *this;
  }
  Message& fixed64(int field, double value) {
    put_varint(static_cast<uint64_t>(field) << 3 | 1);
    put_little_endian(std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  Message& fixed32(int field, float value) {
    put_varint(static_cast<uint64_t>(field) << 3 | 5);
    put_little_endian(std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    put_varint(static_cast<uint64_t>(field) << 3 | 2);
    put_varint(value.size());
    wire_.append(value);
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.wire_); }
  const std::string& wire() const { return wire_; }

 private:
  void put_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) wire_.push_back(static_cast<char>(value | 0x80));
    wire_.push_back(static_cast<char>(value));
  }
  void put_little_endian(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) wire_.push_back(static_cast<char>(value >> (8 * i)));
  }

  std::string wire_;
};

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Message event_at(int64_t step) {
  Message event;
  event.fixed64(1, seconds_since_epoch()).varint(2, static_cast<uint64_t>(step));
  return event;
}

std::string file_name() {
  static std::atomic<int> files{0};
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') host = {"localhost"};
  return "events.out.tfevents." + std::to_string(static_cast<int64_t>(seconds_since_epoch())) + "." +
         host.data() + "." + std::to_string(getpid()) + "." + std::to_string(files++);
}

std::string little_endian(uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

constexpr int kSessionStart = 1;     // SessionLog.START
constexpr int kTensorOfStrings = 7;  // DT_STRING

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : bytes) crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF];
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step)
    : path_(folder / file_name()), file_(nullptr, &std::fclose) {
  std::filesystem::create_directories(folder);
  file_.reset(std::fopen(path_.c_str(), "wbx"));
  if (!file_) throw std::system_error(errno, std::generic_category(), "cannot create " + path_.string());
  append(Message().fixed64(1, seconds_since_epoch()).bytes(3, "brain.Event:2").wire());
  if (first_step > 0) append(event_at(first_step).message(7, Message().varint(1, kSessionStart)).wire());
}

void EventFile::scalar(std::string_view tag, int64_t step, double value) {
  const Message entry = Message().bytes(1, repair_utf8(tag)).fixed32(2, static_cast<float>(value));
  append(event_at(step).message(5, Message().message(1, entry)).wire());
}

void EventFile::text(std::string_view tag, int64_t step, std::string_view markdown) {
  const Message tensor =
      Message().varint(1, kTensorOfStrings).message(2, Message()).bytes(8, repair_utf8(markdown));
  const Message plugin = Message().message(1, Message().bytes(1, "text"));
  const Message entry = Message().bytes(1, repair_utf8(tag)).message(8, tensor).message(9, plugin);
  append(event_at(step).message(5, Message().message(1, entry)).wire());
}

// TFRecord: length, its checksum, the data, its checksum.
void EventFile::append(const std::string& event) {
  const std::string length = little_endian(event.size(), 8);
  const std::string record =
      length + little_endian(masked_crc32c(length), 4) + event + little_endian(masked_crc32c(event), 4);
  const bool written = std::fwrite(record.data(), 1, record.size(), file_.get()) == record.size();
  if (!written || std::fflush(file_.get()) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot write " + path_.string());
  }
}

}  // namespace iha::io
