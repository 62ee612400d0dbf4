#include "iha/report/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace iha::report {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Format, Fixed) {
  EXPECT_EQ(fixed(0.98126, 3), "0.981");
  EXPECT_EQ(fixed(-0.0004, 3), "0.000");
  EXPECT_EQ(fixed(-0.0006, 3), "-0.001");
  EXPECT_EQ(fixed(2.5, 0), "2");  // ties to even, as printf
  EXPECT_EQ(fixed(std::nan(""), 2), "nan");
  EXPECT_EQ(fixed(-kInfinity, 2), "-inf");
}

TEST(Format, Significant) {
  EXPECT_EQ(significant(1234.5, 3), "1230");
  EXPECT_EQ(significant(0.0012345, 3), "0.00123");
  EXPECT_EQ(significant(1.5, 3), "1.5");
  EXPECT_EQ(significant(9.996, 3), "10");
  EXPECT_EQ(significant(99.96, 3), "100");
  EXPECT_EQ(significant(0, 3), "0");
  EXPECT_EQ(significant(-0.25, 3), "-0.25");
  EXPECT_EQ(significant(1e-9, 3), "1e-09");
  EXPECT_EQ(significant(kInfinity, 3), "inf");
}

TEST(Format, Count) {
  EXPECT_EQ(count(0), "0");
  EXPECT_EQ(count(999), "999");
  EXPECT_EQ(count(1000), "1,000");
  EXPECT_EQ(count(1234567), "1,234,567");
  EXPECT_EQ(count(-123456), "-123,456");
  EXPECT_EQ(count(-123), "-123");
  EXPECT_EQ(count(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Format, Si) {
  EXPECT_EQ(si(999), "999");
  EXPECT_EQ(si(1000), "1 k");
  EXPECT_EQ(si(999.6), "1 k");  // 1000 to three digits
  EXPECT_EQ(si(1.234e9), "1.23 G");
  EXPECT_EQ(si(0.5), "0.5");
  EXPECT_EQ(si(-2.5e6), "-2.5 M");
  EXPECT_EQ(si(1.5e21), "1500 E");
  EXPECT_EQ(si(0), "0");
}

TEST(Format, Bytes) {
  EXPECT_EQ(bytes(0), "0 B");
  EXPECT_EQ(bytes(1023), "1023 B");
  EXPECT_EQ(bytes(1024), "1 KiB");
  EXPECT_EQ(bytes(1536), "1.5 KiB");
  EXPECT_EQ(bytes(1024.0 * 1024 - 1), "1 MiB");
  EXPECT_EQ(bytes(3.27 * 1024 * 1024 * 1024), "3.3 GiB");
}

TEST(Format, Duration) {
  EXPECT_EQ(duration(0), "0 s");
  EXPECT_EQ(duration(4.5e-3), "4.5 ms");
  EXPECT_EQ(duration(0.9999e-3), "1 ms");
  EXPECT_EQ(duration(12e-6), "12 µs");
  EXPECT_EQ(duration(0.9997), "1.0 s");
  EXPECT_EQ(duration(12.34), "12.3 s");
  EXPECT_EQ(duration(59.96), "1 min 00 s");
  EXPECT_EQ(duration(125), "2 min 05 s");
  EXPECT_EQ(duration(3599.7), "1 h 00 min");
  EXPECT_EQ(duration(12000), "3 h 20 min");
  EXPECT_EQ(duration(-2), "-2.0 s");
}

TEST(Format, Others) {
  EXPECT_EQ(percent(0.513), "51.3 %");
  EXPECT_EQ(percent(1, 0), "100 %");
  EXPECT_EQ(with_spread(0.98126, 0.0061, 3), "0.981 ± 0.006");
}

}  // namespace
}  // namespace iha::report
