#include "iha/report/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "iha/core/error.h"
#include "iha/schedule/tiles.h"

namespace iha::report {
namespace {

constexpr int64_t kAll = Pattern::kUnbounded;

std::string ordinal(int64_t number) {
  const int64_t tens = number % 100;
  const int64_t ones = number % 10;
  const bool teen = tens >= 11 && tens <= 13;
  return fmt::format("{}{}", number,
                     teen        ? "th"
                     : ones == 1 ? "st"
                     : ones == 2 ? "nd"
                     : ones == 3 ? "rd"
                                 : "th");
}

// "the token before", "the 8 tokens before", "all tokens before"
std::string stretch(int64_t tokens, std::string_view side) {
  if (tokens == kAll) return fmt::format("all tokens {}", side);
  return tokens == 1 ? fmt::format("the token {}", side) : fmt::format("the {} tokens {}", tokens, side);
}

std::string window_words(const Pattern& pattern) {
  if (pattern.left == kAll && pattern.right == kAll) return "all tokens";
  if (pattern.left == 0 && pattern.right == 0) return "itself only";
  if (pattern.right == 0) return "itself and " + stretch(pattern.left, "before");
  if (pattern.left == 0) return "itself and " + stretch(pattern.right, "after");
  if (pattern.left == pattern.right) {
    return pattern.left == 1 ? "itself and one token on each side"
                             : fmt::format("itself and {} tokens on each side", pattern.left);
  }
  return fmt::format("itself, {} and {}", stretch(pattern.left, "before"), stretch(pattern.right, "after"));
}

std::string step_words(const Pattern& pattern) {
  const std::string which = ordinal(pattern.every);
  return pattern.step == Step::kRelative ? fmt::format("every {} token counted from itself", which)
                                         : fmt::format("every {} token of the text", which);
}

bool has_step(const Pattern& pattern) {
  return pattern.step != Step::kNone && pattern.every > 1;
}

}  // namespace

std::string describe(const Pattern& pattern) {
  std::string words;
  if (pattern.learned()) {
    for (const Pattern& candidate : pattern.candidates) {
      words += fmt::format("{}({})", words.empty() ? "by learned weights: " : " or ", describe(candidate));
    }
    return words;
  }
  if (pattern.dynamic()) {
    return fmt::format("its own block of {} and the {} {}that it chooses{}", pattern.block, pattern.chosen,
                       pattern.chosen == 1 ? "other " : "others ", pattern.causal() ? ", up to itself" : "");
  }
  if (!has_step(pattern) && pattern.chunk == 0) {
    words = window_words(pattern);
  } else {
    words = has_step(pattern) ? step_words(pattern) : "all tokens";
    if (pattern.chunk > 0) words += fmt::format(" within its own block of {}", pattern.chunk);
    const bool whole_past = pattern.left == kAll && pattern.right == 0;
    if (whole_past) {
      words += ", up to itself";
    } else if (pattern.left != kAll || pattern.right != kAll) {
      words += ", among " + window_words(pattern);
    }
  }
  if (pattern.first == 1) return words + ", and always the first token";
  return pattern.first > 1 ? words + fmt::format(", and always the first {} tokens", pattern.first) : words;
}

Family family_of(const Pattern& pattern) {
  if (pattern.learned()) return Family::kLearned;
  if (pattern.dynamic()) return Family::kDynamic;
  if (pattern.chunk > 0) return Family::kChunked;
  if (has_step(pattern)) return pattern.step == Step::kRelative ? Family::kStrided : Family::kEvery;
  if (pattern.left == kAll && pattern.right == kAll) return Family::kGlobal;
  return pattern.left == kAll && pattern.right == 0 ? Family::kCausal : Family::kSliding;
}

std::string_view name_of(Family family) {
  switch (family) {
    case Family::kCausal:
      return "causal";
    case Family::kSliding:
      return "sliding";
    case Family::kGlobal:
      return "global";
    case Family::kStrided:
      return "strided";
    case Family::kEvery:
      return "every";
    case Family::kChunked:
      return "chunked";
    case Family::kLearned:
      return "learned";
    case Family::kDynamic:
      return "dynamic";
  }
  return "";
}

std::string_view colour_name(Family family) {
  switch (family) {
    case Family::kCausal:
      return "green";
    case Family::kSliding:
      return "blue";
    case Family::kGlobal:
      return "orange";
    case Family::kStrided:
      return "pink";
    case Family::kEvery:
      return "red";
    case Family::kChunked:
      return "teal";
    case Family::kLearned:
      return "brown";
    case Family::kDynamic:
      return "black or white";
  }
  return "";
}

std::string ascii_picture(const Pattern& pattern, int64_t tokens, int64_t width) {
  check(tokens >= 0 && width >= 1, "report: a picture of ", tokens, " tokens, ", width,
        " wide, expected 0 or more and 1 or more");
  const int64_t block = std::max<int64_t>(1, (tokens + width - 1) / width);
  const HeadScope scope{.pattern = pattern, .queries = tokens, .keys = tokens};
  std::vector<TileRun> runs;
  std::string picture;
  for (int64_t top = 0; top < tokens; top += block) {
    key_tiles(scope, top, std::min(tokens, top + block), block, runs);
    std::string line((tokens + block - 1) / block, '.');
    for (const TileRun& run : runs)
      line.replace(run.first, run.count, run.count, run.kind == TileKind::kFull ? '#' : '+');
    picture += line + '\n';
  }
  return picture;
}

}  // namespace iha::report
