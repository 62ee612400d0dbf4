#include "iha/io/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "iha/core/error.h"
#include "iha/io/json_text.h"

namespace iha::io {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";

struct TypeRow {
  TensorType type;
  std::string_view name;
  int64_t bits;
};
constexpr std::array kTypes = {
    TypeRow{TensorType::kBool, "BOOL", 8},
    TypeRow{TensorType::kF4, "F4", 4},
    TypeRow{TensorType::kF6E2M3, "F6_E2M3", 6},
    TypeRow{TensorType::kF6E3M2, "F6_E3M2", 6},
    TypeRow{TensorType::kU8, "U8", 8},
    TypeRow{TensorType::kI8, "I8", 8},
    TypeRow{TensorType::kF8E5M2, "F8_E5M2", 8},
    TypeRow{TensorType::kF8E4M3, "F8_E4M3", 8},
    TypeRow{TensorType::kF8E8M0, "F8_E8M0", 8},
    TypeRow{TensorType::kF8E4M3FNUZ, "F8_E4M3FNUZ", 8},
    TypeRow{TensorType::kF8E5M2FNUZ, "F8_E5M2FNUZ", 8},
    TypeRow{TensorType::kI16, "I16", 16},
    TypeRow{TensorType::kU16, "U16", 16},
    TypeRow{TensorType::kF16, "F16", 16},
    TypeRow{TensorType::kBF16, "BF16", 16},
    TypeRow{TensorType::kI32, "I32", 32},
    TypeRow{TensorType::kU32, "U32", 32},
    TypeRow{TensorType::kF32, "F32", 32},
    TypeRow{TensorType::kC64, "C64", 64},
    TypeRow{TensorType::kF64, "F64", 64},
    TypeRow{TensorType::kI64, "I64", 64},
    TypeRow{TensorType::kU64, "U64", 64},
};

const TypeRow& row_of(TensorType type) {
  return *std::ranges::find(kTypes, type, &TypeRow::type);
}

// Takes the parser's events one by one, so that nothing but the format's own form is ever built in memory:
// whatever else comes, however deep or long, ends the parse at once.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(std::string_view file) : file_(file) {}

  Header take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (place_ == Place::kBefore) return enter(Place::kRoot);
    if (place_ == Place::kRoot && key_ == kMetadataKey) return enter(Place::kMetadata);
    if (place_ == Place::kRoot) {
      tensor_ = HeaderTensor{};
      tensor_.name = key_;
      fields_.clear();
      return enter(Place::kTensor);
    }
    return refuse("an object");
  }

  bool key(std::string& name) override {
    key_ = std::move(name);
    std::set<std::string>& seen = place_ == Place::kRoot       ? names_
                                  : place_ == Place::kMetadata ? keys_
                                                               : fields_;
    check(seen.insert(key_).second, file_, ": key '", key_, "' is there twice", where());
    const bool known = key_ == "dtype" || key_ == "shape" || key_ == "data_offsets";
    check(place_ != Place::kTensor || known, file_, ": tensor '", tensor_.name, "' has a key '", key_,
          "', expected dtype, shape and data_offsets");
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      check(fields_.size() == 3, file_, ": tensor '", tensor_.name, "' has ", fields_.size(),
            " keys, expected dtype, shape and data_offsets");
      header_.tensors.push_back(std::move(tensor_));
    }
    return enter(place_ == Place::kRoot ? Place::kAfter : Place::kRoot);
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata.emplace(key_, std::move(value));
      return true;
    }
    if (place_ != Place::kTensor || key_ != "dtype") return refuse("a string");
    const auto* row = std::ranges::find(kTypes, value, &TypeRow::name);
    check(row != kTypes.end(), file_, ": tensor '", tensor_.name, "' has dtype '", value,
          "', expected F32, BF16, ...");
    tensor_.type = row->type;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || key_ == "dtype") return refuse("an array");
    numbers_.clear();
    return enter(Place::kNumbers);
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kNumbers) return refuse("a number");
    check(value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), file_, ": tensor '",
          tensor_.name, "' has ", value, " in its ", key_, ", expected less than 2^63");
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool end_array() override {
    if (key_ == "shape") {
      tensor_.shape = std::move(numbers_);
    } else {
      check(numbers_.size() == 2, file_, ": tensor '", tensor_.name, "' has ", numbers_.size(),
            " data_offsets, expected 2");
      tensor_.begin = static_cast<uint64_t>(numbers_[0]);
      tensor_.end = static_cast<uint64_t>(numbers_[1]);
    }
    return enter(Place::kTensor);
  }

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool number_integer(number_integer_t) override { return refuse("a negative number"); }
  bool number_float(number_float_t, const std::string&) override {
    return refuse("a number that is no integer");
  }
  bool binary(binary_t&) override { return refuse("bytes"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail(file_, ": the header is not JSON in UTF-8 at its byte ", position);
  }

 private:
  enum class Place : uint8_t { kBefore, kRoot, kMetadata, kTensor, kNumbers, kAfter };

  bool enter(Place place) {
    place_ = place;
    return true;
  }
  std::string where() const {
    if (place_ == Place::kMetadata) return " in __metadata__";
    return place_ == Place::kTensor ? text(" in tensor '", tensor_.name, "'") : " in the header";
  }
  [[noreturn]] bool refuse(std::string_view found) const {
    const std::string_view expected = place_ == Place::kBefore     ? "one object"
                                      : place_ == Place::kMetadata ? "strings only"
                                      : place_ == Place::kRoot     ? "an object for each key"
                                      : place_ == Place::kNumbers
                                          ? "whole numbers from 0 on"
                                          : "dtype as a string, shape and data_offsets as arrays";
    fail(file_, ": found ", found, where(), ", expected ", expected);
  }

  std::string_view file_;
  Header header_;
  Place place_ = Place::kBefore;
  std::string key_;
  HeaderTensor tensor_;
  std::vector<int64_t> numbers_;
  std::set<std::string> names_, keys_, fields_;
};

// Every byte of the data belongs to exactly one tensor.
void check_spans(const std::vector<HeaderTensor>& tensors, uint64_t data_bytes, std::string_view file) {
  uint64_t expected_begin = 0;
  for (const HeaderTensor& tensor : tensors) {
    check(tensor.begin <= tensor.end, file, ": tensor '", tensor.name, "' has data_offsets ", tensor.begin,
          " and ", tensor.end, ", expected them to rise");
    check(tensor.begin == expected_begin, file, ": tensor '", tensor.name, "' begins at byte ", tensor.begin,
          " of the data, expected ", expected_begin,
          tensor.begin < expected_begin ? " (an overlap)" : " (a gap)");
    const uint64_t needed = bytes_of(tensor.type, tensor.shape, text(file, ": tensor '", tensor.name, "'"));
    check(tensor.end - tensor.begin == needed, file, ": tensor '", tensor.name, "' has ",
          tensor.end - tensor.begin, " bytes, expected ", needed, " for its type and shape");
    expected_begin = tensor.end;
  }
  check(expected_begin == data_bytes, file, ": ", data_bytes, " bytes of data, expected ", expected_begin,
        " by the header");
}

}  // namespace

std::string_view name_of(TensorType type) {
  return row_of(type).name;
}
int64_t bits_of(TensorType type) {
  return row_of(type).bits;
}

uint64_t bytes_of(TensorType type, const std::vector<int64_t>& shape, std::string_view what) {
  int64_t bits = bits_of(type);
  bool empty = false;
  for (const int64_t size : shape) {
    check(size >= 0, what, " has size ", size, ", expected 0 or more");
    empty = empty || size == 0;
    check(size == 0 || !__builtin_mul_overflow(bits, size, &bits), what,
          " has sizes whose product is beyond 2^63 bits");
  }
  if (empty) return 0;
  check(bits % 8 == 0, what, " has ", bits, " bits, expected whole bytes");
  return static_cast<uint64_t>(bits / 8);
}

Header parse_header(std::string_view json, uint64_t data_bytes, std::string_view file) {
  check(json.starts_with('{'), file, ": the header does not begin with '{'");
  // The parser takes a NUL for the end of its input and would not look at what follows.
  check(json.find('\0') == std::string_view::npos, file, ": the header is not JSON in UTF-8: it has a NUL");
  HeaderReader reader(file);
  nlohmann::json::sax_parse(json, &reader);
  Header header = reader.take();
  std::ranges::sort(header.tensors, {},
                    [](const HeaderTensor& tensor) { return std::pair(tensor.begin, tensor.end); });
  check_spans(header.tensors, data_bytes, file);
  return header;
}

std::string write_header(const Header& header) {
  std::string json = "{";
  const auto separator = [&json] { return json.size() == 1 ? "" : ","; };
  if (!header.metadata.empty()) {
    json += json_string(kMetadataKey) + ":{";
    bool first = true;
    for (const auto& [key, value] : header.metadata) {
      json += fmt::format("{}{}:{}", first ? "" : ",", json_string(key), json_string(value));
      first = false;
    }
    json += '}';
  }
  for (const HeaderTensor& tensor : header.tensors) {
    json += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", separator(),
                        json_string(tensor.name), name_of(tensor.type), fmt::join(tensor.shape, ","),
                        tensor.begin, tensor.end);
  }
  return json + '}';
}

}  // namespace iha::io
