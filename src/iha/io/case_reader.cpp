#include "iha/io/case_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <system_error>

#include "iha/core/error.h"

namespace iha::io {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(size == CaseReader::kAny ? "*" : fmt::format("{}", size));
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

bool fits(const std::vector<int64_t>& shape, const std::vector<int64_t>& expected) {
  if (shape.size() != expected.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (expected[i] != CaseReader::kAny && shape[i] != expected[i]) return false;
  }
  return true;
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && stop == end ? std::optional(number) : std::nullopt;
}

}  // namespace

std::optional<std::string> CaseReader::value(const std::string& key) {
  keys_.insert(key);
  const auto found = metadata().find(key);
  return found == metadata().end() ? std::nullopt : std::optional(found->second);
}

std::string CaseReader::choice(const std::string& key, std::initializer_list<std::string_view> choices) {
  const std::string chosen = value(key).value_or(std::string(*choices.begin()));
  for (const std::string_view choice : choices) {
    if (chosen == choice) return chosen;
  }
  fail(name_, ": ", key, " = '", chosen, "', expected ", fmt::format("{}", fmt::join(choices, ", ")));
}

std::string CaseReader::required(const std::string& key) {
  const std::optional<std::string> found = value(key);
  check(found.has_value(), name_, ": no metadata key ", key);
  return *found;
}

std::optional<int64_t> CaseReader::integer(const std::string& key) {
  const std::optional<std::string> found = value(key);
  if (!found) return std::nullopt;
  const auto number = parse_number<int64_t>(*found);
  check(number.has_value(), name_, ": ", key, " = '", *found, "', expected an integer");
  return number;
}

std::optional<double> CaseReader::number(const std::string& key) {
  const std::optional<std::string> found = value(key);
  if (!found) return std::nullopt;
  const auto number = parse_number<double>(*found);
  check(number.has_value() && std::isfinite(*number), name_, ": ", key, " = '", *found,
        "', expected a number");
  return number;
}

const TensorView& CaseReader::take(const std::string& tensor, const Shape& shape) {
  tensors_.insert(tensor);
  check(has(tensor), name_, ": no tensor ", tensor);
  const TensorView& view = file_.at(tensor);
  check(fits(view.shape, shape), name_, ": ", tensor, " has shape ", shape_text(view.shape), ", expected ",
        shape_text(shape));
  return view;
}

DoubleArray CaseReader::input(const std::string& tensor, const Shape& shape) {
  const TensorView& view = take(tensor, shape);
  const bool floating = view.type == TensorType::kF32 || view.type == TensorType::kBF16;
  check(floating, name_, ": ", tensor, " is ", name_of(view.type), ", expected F32 or BF16");
  if (!dtype_) dtype_ = view.type;
  check(view.type == *dtype_, name_, ": ", tensor, " is ", name_of(view.type), ", expected ",
        name_of(*dtype_), " like the inputs before it");
  return {view.shape, to_doubles(view)};
}

DoubleArray CaseReader::float64(const std::string& tensor, const Shape& shape) {
  const TensorView& view = take(tensor, shape);
  check(view.type == TensorType::kF64, name_, ": ", tensor, " is ", name_of(view.type), ", expected F64");
  return {view.shape, to_doubles(view)};
}

std::vector<int64_t> CaseReader::int64(const std::string& tensor, const Shape& shape) {
  const TensorView& view = take(tensor, shape);
  check(view.type == TensorType::kI64, name_, ": ", tensor, " is ", name_of(view.type), ", expected I64");
  return to_int64s(view);
}

void CaseReader::finish() const {
  for (const auto& [key, value] : metadata())
    check(keys_.contains(key), name_, ": unknown metadata key '", key, "'");
  for (const auto& [tensor, view] : file_.tensors()) {
    check(tensors_.contains(tensor), name_, ": unknown tensor '", tensor, "'");
  }
}

}  // namespace iha::io
