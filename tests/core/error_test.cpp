#include "iha/core/error.h"

#include <gtest/gtest.h>

namespace iha {
namespace {

TEST(Error, WritesItsPartsOneAfterTheOther) {
  EXPECT_EQ(text("iha::x: ", 5, " heads, expected ", 2.5), "iha::x: 5 heads, expected 2.5");
}

TEST(Error, IsThrownWhereTheConditionFails) {
  EXPECT_NO_THROW(check(true, "never"));
  try {
    check(false, "found ", 3);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "found 3");
  }
}

}  // namespace
}  // namespace iha
