// The texts of viewer/*.css and viewer/*.js. Private to report/.
#pragma once

#include <string_view>

namespace iha::report {

std::string_view viewer_style();
std::string_view viewer_script();

}  // namespace iha::report
