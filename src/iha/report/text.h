// Text from anywhere, made fit to show. Private to report/.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace iha::report {

// `text` as valid UTF-8 in which everything shows: bytes that are not UTF-8 as U+FFFD, control characters as
// their symbols (U+2400 ...), marks that change the direction of writing and code points that no document may
// hold as U+FFFD. Line ends and tabs stay where `keep_lines`.
std::string visible_text(std::string_view text, bool keep_lines = false);

// One token of a text as a label: as visible_text, and a blank as U+2423 (open box), a line end as U+21B5, a
// tab as U+21E5.
std::string token_text(std::string_view token);

// visible_text for the inside of HTML elements and quoted attributes.
std::string escape(std::string_view text, bool keep_lines = false);

// The first `count` code points of valid UTF-8.
std::string_view first_code_points(std::string_view text, std::size_t count);

}  // namespace iha::report
