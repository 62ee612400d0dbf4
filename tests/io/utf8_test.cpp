#include "iha/io/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace iha::io {
namespace {

TEST(Utf8, EveryCodePointRoundTripsAndNothingElseIsOne) {
  for (char32_t point = 0; point <= 0x10FFFF; ++point) {
    if (point >= 0xD800 && point <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, point);
    std::string_view rest = text;
    ASSERT_EQ(next_code_point(rest), point);
    ASSERT_TRUE(rest.empty());
  }
}

TEST(Utf8, RefusesWhatIsNoCodePoint) {
  for (const std::string bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                                "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
                                "\xFF", "\xC3", "\xE2\x82", "\xF0\x9F\x98", "\xC3(", "a\xE2\x82z"}) {
    EXPECT_FALSE(is_utf8(bad)) << testing::PrintToString(bad);
  }
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("Grüße, 你好, 🙂"));
}

TEST(Utf8, RepairReplacesEachBadByteAndKeepsTheRest) {
  EXPECT_EQ(repair_utf8("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(repair_utf8("\xE2\x82"), "\uFFFD\uFFFD");
  EXPECT_EQ(repair_utf8("ü🙂"), "ü🙂");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_TRUE(is_utf8(repair_utf8(all)));
}

}  // namespace
}  // namespace iha::io
