// How the page looks. Private to report/.
#pragma once

#include <string_view>

namespace iha::report {

std::string_view style_sheet();

}  // namespace iha::report
