#include "iha/report/format.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace iha::report {
namespace {

std::string without_trailing_zeros(std::string number) {
  if (number.find('.') == std::string::npos) return number;
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') number.pop_back();
  return number;
}

// The decimal exponent after rounding to `digits`: 9.996 to three digits has 1.
int exponent_of(double value, int digits) {
  const std::string scientific = fmt::format("{:.{}e}", value, digits - 1);
  return std::atoi(scientific.c_str() + scientific.find('e') + 1);
}

}  // namespace

std::string fixed(double value, int digits) {
  std::string number = fmt::format("{:.{}f}", value, digits);
  const bool is_zero = number.find_first_not_of("-0.") == std::string::npos;
  return is_zero && number.front() == '-' ? number.substr(1) : number;
}

std::string significant(double value, int digits) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  if (value == 0) return "0";
  const int exponent = exponent_of(value, digits);
  if (exponent < -5 || exponent >= 15) return fmt::format("{:.{}g}", value, digits);
  const int decimals = digits - 1 - exponent;
  if (decimals >= 0) return without_trailing_zeros(fmt::format("{:.{}f}", value, decimals));
  const double unit = std::pow(10.0, -decimals);
  return fmt::format("{:.0f}", std::round(value / unit) * unit);
}

std::string count(int64_t value) {
  std::string digits = fmt::format("{}", value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t end = digits.size(); end > first + 3; end -= 3) digits.insert(end - 3, 1, ',');
  return digits;
}

std::string si(double value, int digits) {
  constexpr std::array<std::string_view, 7> kPrefixes{"", " k", " M", " G", " T", " P", " E"};
  if (!std::isfinite(value) || value == 0) return significant(value, digits);
  const int last = static_cast<int>(kPrefixes.size()) - 1;
  const int thousands = std::min(std::max(exponent_of(value, digits) / 3, 0), last);
  return significant(value / std::pow(1000.0, thousands), digits) +
         std::string(kPrefixes[static_cast<std::size_t>(thousands)]);
}

std::string bytes(double value) {
  constexpr std::array<std::string_view, 6> kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  // 1023.95 would round to four digits.
  for (; std::abs(value) >= 1023.95 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{} {}", without_trailing_zeros(fixed(value, 1)), kUnits[unit]);
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds)) return fmt::format("{} s", seconds);
  if (seconds < 0) return fmt::format("-{}", duration(-seconds));
  if (seconds == 0) return "0 s";
  if (seconds < 0.9995e-3) return significant(seconds * 1e6, 3) + " µs";
  if (seconds < 0.9995) return significant(seconds * 1e3, 3) + " ms";
  if (seconds < 59.95) return fixed(seconds, 1) + " s";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string percent(double fraction, int digits) {
  return fixed(100 * fraction, digits) + " %";
}

std::string with_spread(double mean, double spread, int digits) {
  return fixed(mean, digits) + " ± " + fixed(spread, digits);
}

}  // namespace iha::report
