// Element types and the two 16-bit formats. Conversions round to nearest, ties to even; NaN stays NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace iha {

enum class DType : uint8_t { kFloat64, kFloat32, kBFloat16, kFloat16 };

std::size_t size_of(DType dtype);       // bytes of one element
std::string_view name_of(DType dtype);  // "float64", "float32", "bfloat16", "float16"

float bfloat16_to_float(uint16_t bits);
uint16_t float_to_bfloat16(float value);
float float16_to_float(uint16_t bits);
uint16_t float_to_float16(float value);

// Element `index` of an array of `dtype` at `data`, widened (exactly) or rounded once.
double load(const void* data, DType dtype, int64_t index);
void store(void* data, DType dtype, int64_t index, double value);

}  // namespace iha
