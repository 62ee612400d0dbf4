// Every 16-bit value, and every rounding boundary between two of them.
#include "iha/core/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace iha {
namespace {

// One 16-bit format, described apart from the code under test.
struct Format {
  const char* name;
  DType dtype;
  int exponent_bits, fraction_bits;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);

  // The value by the definition of IEEE formats.
  double value(uint16_t bits) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) {
      return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
    }
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
    return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  }
  uint16_t infinity() const { return static_cast<uint16_t>(0x7fff & ~((1 << fraction_bits) - 1)); }
};

class SixteenBits : public ::testing::TestWithParam<Format> {
 protected:
  uint16_t stored(double value) const {
    uint16_t bits = 0;
    store(&bits, GetParam().dtype, 0, value);
    return bits;
  }
};

TEST_P(SixteenBits, WidensExactlyAndComesBack) {
  const Format format = GetParam();
  for (int bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double expected = format.value(half), widened = format.widen(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(widened)) << bits;
      ASSERT_TRUE(std::isnan(format.value(format.narrow(format.widen(half))))) << bits;
      ASSERT_TRUE(std::isnan(format.value(stored(std::nan(""))))) << bits;
      continue;
    }
    ASSERT_EQ(widened, expected) << bits;
    ASSERT_EQ(std::signbit(widened), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(format.narrow(static_cast<float>(expected)), half) << bits;
    ASSERT_EQ(load(&half, format.dtype, 0), expected) << bits;
    ASSERT_EQ(stored(expected), half) << bits;
  }
}

// Between neighbours a < b the middle goes to the even one, and whatever lies beside it to the nearer. Above
// the largest value the neighbour is infinity, which stands at the next power of two.
TEST_P(SixteenBits, RoundsToNearestTiesToEven) {
  const Format format = GetParam();
  for (int bits = 0; bits < format.infinity(); ++bits) {
    const auto below = static_cast<uint16_t>(bits), above = static_cast<uint16_t>(bits + 1);
    const double low = format.value(below);
    const double high = above == format.infinity() ? 2 * low - format.value(below - 1) : format.value(above);
    const double middle = (low + high) / 2;
    const uint16_t even = bits % 2 == 0 ? below : above;
    for (const int sign : {0, 0x8000}) {
      const double s = sign == 0 ? 1 : -1;
      const auto signed_bits = [&](uint16_t magnitude) { return static_cast<uint16_t>(magnitude | sign); };
      const auto exact = static_cast<float>(s * middle);
      ASSERT_EQ(static_cast<double>(exact), s * middle) << bits;  // so the float path meets the tie itself
      ASSERT_EQ(format.narrow(exact), signed_bits(even)) << bits;
      ASSERT_EQ(format.narrow(std::nextafter(exact, 0.0f)), signed_bits(below)) << bits;
      ASSERT_EQ(format.narrow(std::nextafter(exact, exact * INFINITY)), signed_bits(above)) << bits;
      // A double beside the tie is the tie as a float: rounding twice would go to the even neighbour.
      ASSERT_EQ(stored(s * middle), signed_bits(even)) << bits;
      ASSERT_EQ(stored(s * std::nextafter(middle, 0.0)), signed_bits(below)) << bits;
      ASSERT_EQ(stored(s * std::nextafter(middle, INFINITY)), signed_bits(above)) << bits;
    }
  }
}

TEST_P(SixteenBits, OverflowsToInfinityAndUnderflowsToZero) {
  const Format format = GetParam();
  for (const double huge : {1e39, 1e300, static_cast<double>(INFINITY)}) {
    EXPECT_EQ(stored(huge), format.infinity());
    EXPECT_EQ(stored(-huge), format.infinity() | 0x8000);
  }
  for (const double tiny : {1e-46, 1e-300, 5e-324, 0.0}) {
    EXPECT_EQ(stored(tiny), 0);
    EXPECT_EQ(stored(-tiny), 0x8000);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, SixteenBits,
    ::testing::Values(Format{"bfloat16", DType::kBFloat16, 8, 7, bfloat16_to_float, float_to_bfloat16},
                      Format{"float16", DType::kFloat16, 5, 10, float16_to_float, float_to_float16}),
    [](const auto& info) { return info.param.name; });

TEST(DTypeNaN, KeepsItsQuietBit) {
  const float signalling = std::bit_cast<float>(0x7f800001u);  // its payload lies in the bits that go
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(signalling))));
  EXPECT_TRUE(std::isnan(float16_to_float(float_to_float16(signalling))));
}

TEST(DType, LoadsAndStoresWideTypes) {
  double wide[2] = {};
  store(wide, DType::kFloat64, 1, 0.1);
  EXPECT_EQ(load(wide, DType::kFloat64, 1), 0.1);
  float narrow[2] = {};
  store(narrow, DType::kFloat32, 1, 0.1);
  EXPECT_EQ(load(narrow, DType::kFloat32, 1), static_cast<double>(0.1f));
}

TEST(DType, HasSizeAndName) {
  EXPECT_EQ(size_of(DType::kFloat64), 8u);
  EXPECT_EQ(size_of(DType::kFloat32), 4u);
  EXPECT_EQ(size_of(DType::kBFloat16), 2u);
  EXPECT_EQ(size_of(DType::kFloat16), 2u);
  EXPECT_EQ(name_of(DType::kBFloat16), "bfloat16");
}

}  // namespace
}  // namespace iha
