// Strings as JSON writes them. Private to io/.
#pragma once

#include <string>
#include <string_view>

namespace iha::io {

// In quotes, escaped. Throws std::invalid_argument for text that is not UTF-8.
std::string json_string(std::string_view text);

}  // namespace iha::io
