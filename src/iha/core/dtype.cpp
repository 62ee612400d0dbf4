#include "iha/core/dtype.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace iha {
namespace {

// Bits of `value` shifted right by `shift`, rounded to nearest, ties to even.
uint32_t shift_rounding_to_even(uint32_t value, int shift) {
  const uint32_t half = 1u << (shift - 1);
  const uint32_t odd = (value >> shift) & 1u;
  return (value + half - 1 + odd) >> shift;
}

// The float next to `value` that rounds to 16 bits as the double itself would: rounding twice errs where the
// first rounding lands on a tie of the second, so the first one rounds to odd.
float round_to_odd(double value) {
  float rounded = static_cast<float>(value);
  if (std::isnan(value) || std::isinf(rounded) || static_cast<double>(rounded) == value) return rounded;
  const auto bits = std::bit_cast<uint32_t>(rounded);
  if (bits & 1u) return rounded;
  const bool too_large = std::abs(static_cast<double>(rounded)) > std::abs(value);
  return std::bit_cast<float>(too_large ? bits - 1 : bits + 1);
}

}  // namespace

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 8;
    case DType::kFloat32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
  }
  return 0;
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return "float64";
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
  }
  return "unknown";
}

float bfloat16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>(shift_rounding_to_even(bits, 16));
}

float float16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = std::ldexp(static_cast<float>(fraction), -24);  // subnormal or zero
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

uint16_t float_to_float16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u)
    return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude >= 0x38800000u) {                  // 2^-14: normal
    return static_cast<uint16_t>(sign | (shift_rounding_to_even(magnitude, 13) - (112u << 10)));
  }
  // Below: fixed point in units of 2^-24. nearbyint rounds ties to even in the default mode.
  const float units = std::nearbyint(std::ldexp(std::bit_cast<float>(magnitude), 24));
  return static_cast<uint16_t>(sign | static_cast<uint16_t>(units));
}

double load(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kFloat64:
      return static_cast<const double*>(data)[index];
    case DType::kFloat32:
      return static_cast<const float*>(data)[index];
    case DType::kBFloat16:
      return bfloat16_to_float(static_cast<const uint16_t*>(data)[index]);
    case DType::kFloat16:
      return float16_to_float(static_cast<const uint16_t*>(data)[index]);
  }
  return 0;
}

void store(void* data, DType dtype, int64_t index, double value) {
  switch (dtype) {
    case DType::kFloat64:
      static_cast<double*>(data)[index] = value;
      return;
    case DType::kFloat32:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      return;
    case DType::kBFloat16:
      static_cast<uint16_t*>(data)[index] = float_to_bfloat16(round_to_odd(value));
      return;
    case DType::kFloat16:
      static_cast<uint16_t*>(data)[index] = float_to_float16(round_to_odd(value));
      return;
  }
}

}  // namespace iha
