#include "iha/report/table.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace iha::report {
namespace {

TEST(DisplayWidth, CountsTerminalColumns) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("0.9 ± 0.1"), 9u);
  EXPECT_EQ(display_width("e\u0301"), 1u);
  EXPECT_EQ(display_width("你好"), 4u);
  EXPECT_EQ(display_width("\xFF"), 1u);
}

TEST(TextTable, ColumnsAlign) {
  const Table table{"Title",
                    "Caption.",
                    {{"name", Align::kLeft}, {"time", Align::kRight, "ms"}, {"±"}},
                    {{"a", "1.5", "0 ± 1"}, {"long name", "12.25", ""}}};
  EXPECT_EQ(to_text(table),
            "Title\n\n"
            "name        time      ±\n"
            "              ms\n"
            "---------  -----  -----\n"
            "a            1.5  0 ± 1\n"
            "long name  12.25\n"
            "\nCaption.\n");
}

TEST(TextTable, EmphasisIsAMarkAtTheMargin) {
  const Table table{"", "", {{"n"}}, {{"1"}, {"22"}}, {1}};
  EXPECT_EQ(to_text(table), "   n\n  --\n   1\n* 22\n");
}

TEST(TextTable, ControlBytesAreShownNotSent) {
  const Table table{"", "", {{"text", Align::kLeft}}, {{"a\x1b[31m\nb\xFF"}}};
  const std::string text = to_text(table);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("a\u241b[31m\u240ab\uFFFD"), std::string::npos);
}

TEST(TextTable, EmptyTablesAndUnevenRows) {
  EXPECT_EQ(to_text({"", "", {{"a"}, {"b"}}, {}}), "a  b\n-  -\n");
  EXPECT_THROW(to_text({"", "", {{"a"}, {"b"}}, {{"1"}}}), std::invalid_argument);
}

}  // namespace
}  // namespace iha::report
