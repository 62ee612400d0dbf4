// Configuration files as arguments: see config.h.
#include "config.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "iha/core/error.h"

namespace iha::app {

namespace {

using Json = nlohmann::ordered_json;

// The files' own limit: a configuration of a few dozen options is a few kilobytes.
constexpr std::uintmax_t kMostBytes = 1 << 20;

Json read_object(const std::string& file) {
  std::error_code failure;
  const auto bytes = std::filesystem::file_size(file, failure);
  check(!failure, "--config: ", file, " cannot be read: ", failure.message());
  check(bytes <= kMostBytes, "--config: ", file, " has ", bytes, " bytes, expected at most ", kMostBytes);
  std::ifstream stream(file);
  check(stream.good(), "--config: ", file, " cannot be read");
  std::ostringstream content;
  content << stream.rdbuf();
  Json object = Json::parse(content.str(), nullptr, /*allow_exceptions=*/false);
  check(object.is_object(), "--config: ", file, " is not a JSON object");
  return object;
}

std::string scalar(const std::string& name, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  check(value.is_number() || value.is_boolean(), "--config: \"", name, "\" is ", value.type_name(),
        ", expected a string, a number, a boolean or a list of these");
  return value.dump();
}

std::string argument(const std::string& name, const Json& value) {
  std::string text;
  if (!value.is_array()) {
    text = scalar(name, value);
  } else {
    for (const Json& element : value) {
      if (!text.empty()) text += ',';
      text += scalar(name, element);
    }
  }
  return iha::text("--", name, "=", text);
}

bool given(const std::vector<std::string>& arguments, const std::string& name) {
  const std::string option = "--" + name;
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& each) {
    return each == option || each.rfind(option + "=", 0) == 0;
  });
}

void append_file(const std::string& file, const std::vector<std::string>& arguments,
                 std::vector<std::string>& result) {
  const Json object = read_object(file);
  for (const auto& [name, value] : object.items()) {
    if (!given(arguments, name)) result.push_back(argument(name, value));
  }
}

}  // namespace

std::vector<std::string> with_config(const std::vector<std::string>& arguments) {
  static const std::string kOption = "--config";
  std::vector<std::string> result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& each = arguments[i];
    if (each == kOption) {
      check(i + 1 < arguments.size(), "--config: no file follows it");
      append_file(arguments[++i], arguments, result);
    } else if (each.rfind(kOption + "=", 0) == 0) {
      append_file(each.substr(kOption.size() + 1), arguments, result);
    } else {
      result.push_back(each);
    }
  }
  return result;
}

}  // namespace iha::app
