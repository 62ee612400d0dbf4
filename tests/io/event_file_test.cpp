// The framing; the content is read back by the tensorboard package in tests/python/event_file_test.py.
#include "iha/io/event_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <system_error>

#include "iha/io/atomic_file.h"
#include "tests/io/scratch.h"

namespace iha::io {
namespace {

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);            // the check value of CRC catalogues
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c(""), 0u);
  // How the event files that TensorFlow writes begin: a record of 24 bytes.
  EXPECT_EQ(masked_crc32c(std::string("\x18\0\0\0\0\0\0\0", 8)), 0x224B7FA3u);
}

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  return value;
}

// The records' data, each checked against its sums.
std::vector<std::string> records(std::string_view file) {
  std::vector<std::string> found;
  while (!file.empty()) {
    const std::string_view length = file.substr(0, 8);
    EXPECT_EQ(little_endian(file.substr(8, 4)), masked_crc32c(length));
    const std::string_view data = file.substr(12, little_endian(length));
    EXPECT_EQ(little_endian(file.substr(12 + data.size(), 4)), masked_crc32c(data));
    found.emplace_back(data);
    file.remove_prefix(16 + data.size());
  }
  return found;
}

TEST(EventFile, RecordsAreFramedAndFlushed) {
  const Scratch scratch;
  EventFile events(scratch / "deep/folder");
  events.scalar("loss", 3, 0.5);
  const auto written = records(read_text(events.path()));
  ASSERT_EQ(written.size(), 2u);
  EXPECT_NE(written[0].find("brain.Event:2"), std::string::npos);
  EXPECT_NE(written[1].find("loss"), std::string::npos);
  events.text("sample", 4, std::string(300, 'x'));
  EXPECT_EQ(records(read_text(events.path())).size(), 3u);
}

TEST(EventFile, EachFileHasANameOfItsOwn) {
  const Scratch scratch;
  const EventFile first(scratch.path()), second(scratch.path());
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(first.path().filename().string().find("events.out.tfevents."), 0u);
}

TEST(EventFile, AFolderThatCannotBeIsAnError) {
  EXPECT_THROW(EventFile("/proc/none"), std::system_error);
}

}  // namespace
}  // namespace iha::io
