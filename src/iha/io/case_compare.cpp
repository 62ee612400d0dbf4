// The rule of when a result is off.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "iha/core/error.h"
#include "iha/io/case_file.h"

namespace iha::io {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kZeroButForRounding = 1e-10;  // float64 rounding of gradients of order 1 stays far below
constexpr double kAllowedWhereAllIsZero = 2e-5;

bool is_gradient(std::string_view name) {
  return name.starts_with("grad_");
}

double magnitude(const DoubleArray& array) {
  double largest = 0;
  for (const double value : array.values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// The largest of all gradients of the case.
double gradient_magnitude(const Arrays& expected) {
  double largest = 0;
  for (const auto& [name, array] : expected) {
    if (is_gradient(name)) largest = std::max(largest, magnitude(array));
  }
  return largest;
}

// |actual - expected| that is allowed: absolute + relative * |expected|.
struct Allowance {
  double absolute = 0, relative = 0;
};

Allowance allowance(std::string_view name, double largest, double largest_gradient, DType dtype) {
  const bool gradient = is_gradient(name);
  if (gradient && largest < kZeroButForRounding) largest = largest_gradient;
  const bool all_zero = gradient ? largest < kZeroButForRounding : largest == 0;
  if (dtype == DType::kBFloat16) return {all_zero ? kAllowedWhereAllIsZero : 2e-2 * largest, 0};
  if (gradient) return {all_zero ? kAllowedWhereAllIsZero : 2e-5 * largest, 2e-4};
  return {2e-5, 2e-4};
}

// |actual - expected| / allowed. Infinities must meet; NaN is always off.
double relative_error(double actual, double expected, const Allowance& allowed) {
  if (std::isnan(actual) || std::isnan(expected)) return kInfinity;
  if (std::isinf(actual) || std::isinf(expected)) return actual == expected ? 0 : kInfinity;
  return std::abs(actual - expected) / (allowed.absolute + allowed.relative * std::abs(expected));
}

// "lse[0, 1, 3]"
std::string element_name(const std::string& name, const std::vector<int64_t>& shape, std::size_t index) {
  std::string indices;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto size = static_cast<std::size_t>(shape[axis]);
    indices = text(index % size, axis + 1 == shape.size() ? "" : ", ", indices);
    index /= size;
  }
  return text(name, "[", indices, "]");
}

Comparison compare_one(const std::string& name, const DoubleArray& expected, const DoubleArray& actual,
                       const Allowance& allowed) {
  Comparison result;
  result.name = name;
  std::size_t worst = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double error = relative_error(actual.values[i], expected.values[i], allowed);
    const double absolute = std::abs(actual.values[i] - expected.values[i]);
    if (std::isfinite(absolute)) result.absolute_error = std::max(result.absolute_error, absolute);
    if (error > result.error) {
      result.error = error;
      worst = i;
    }
  }
  result.pass = result.error <= 1;
  if (!result.pass) {
    result.fault = text(element_name(name, expected.shape, worst), ": ", actual.values[worst], ", expected ",
                        expected.values[worst]);
  }
  return result;
}

}  // namespace

std::vector<Comparison> compare(const Arrays& expected, const Arrays& actual, DType dtype) {
  const double largest_gradient = gradient_magnitude(expected);
  std::vector<Comparison> results;
  for (const auto& [name, array] : expected) {
    const auto found = actual.find(name);
    if (found == actual.end()) {
      results.push_back({name, false, kInfinity, 0, text(name, ": not computed")});
    } else if (found->second.shape != array.shape || found->second.values.size() != array.values.size()) {
      results.push_back({name, false, kInfinity, 0, text(name, ": another shape than expected")});
    } else {
      const Allowance allowed = allowance(name, magnitude(array), largest_gradient, dtype);
      results.push_back(compare_one(name, array, found->second, allowed));
    }
  }
  return results;
}

}  // namespace iha::io
