// Patterns in words, colours and characters. Not here: HTML (report.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "iha/patterns/pattern.h"

namespace iha::report {

// "itself and the 64 tokens before", "every 4th token before, counted back from itself", "all tokens; always
// the first 2", ...
std::string describe(const Pattern& pattern);

// The families that share a colour in every picture.
enum class Family : uint8_t { kCausal, kSliding, kGlobal, kStrided, kEvery, kChunked, kLearned, kDynamic };
constexpr std::array<Family, 8> all_families() {
  return {Family::kCausal, Family::kSliding, Family::kGlobal,  Family::kStrided,
          Family::kEvery,  Family::kChunked, Family::kLearned, Family::kDynamic};
}
Family family_of(const Pattern& pattern);
std::string_view name_of(Family family);      // "causal", "sliding", ..., "learned", "dynamic"
std::string_view colour_name(Family family);  // in words: "green", "blue", "orange", ...

// Which of `tokens` keys each of `tokens` queries sees, a line a query (tokens > width: a cell a block of
// tokens).
// '#' all pairs of the cell, '+' some, '.' none. Lines end in '\n'.
std::string ascii_picture(const Pattern& pattern, int64_t tokens, int64_t width = 32);

}  // namespace iha::report
