// The text form of patterns: `causal*4,2xsliding:64,global+first:4`. Grammar: docs/patterns.md.
#pragma once

#include <string>
#include <string_view>

#include "iha/patterns/pattern.h"

namespace iha {

// Throws std::invalid_argument naming the position (1-based column), what was found and what was expected,
// with the nearest mode's name where a mode is misspelt.
PatternList parse_patterns(std::string_view text);
Pattern parse_pattern(std::string_view text);  // one mode, no count

// parse_patterns(to_text(list)) == list; runs of one pattern are written `mode*count`.
std::string to_text(const PatternList& list);
std::string to_text(const Pattern& pattern);

}  // namespace iha
