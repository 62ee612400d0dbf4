#include "iha/io/json_text.h"

#include <nlohmann/json.hpp>

#include "iha/core/error.h"
#include "iha/io/utf8.h"

namespace iha::io {

std::string json_string(std::string_view text) {
  check(is_utf8(text), "JSON: a string that is not UTF-8, expected UTF-8");
  return nlohmann::json(text).dump();
}

}  // namespace iha::io
