#include "iha/patterns/parse.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "iha/core/error.h"

namespace iha {
namespace {

// A mode's name, the letters of its arguments, how these make a pattern. The builders check the values.
struct Mode {
  std::string_view name;
  std::string_view arguments;  // "", "W", "LR", "K", "C", "BK": one letter an argument, as in the grammar
  Pattern (*build)(const std::array<int64_t, 2>& values);
};

using Values = std::array<int64_t, 2>;

constexpr std::array kModes{
    Mode{"global", "", [](const Values&) { return global(); }},
    Mode{"causal", "", [](const Values&) { return causal(); }},
    Mode{"sliding", "W", [](const Values& v) { return sliding(v[0]); }},
    Mode{"causal_sliding", "W", [](const Values& v) { return causal_sliding(v[0]); }},
    Mode{"window", "LR", [](const Values& v) { return window(v[0], v[1]); }},
    Mode{"strided", "K", [](const Values& v) { return strided(v[0]); }},
    Mode{"causal_strided", "K", [](const Values& v) { return causal_strided(v[0]); }},
    Mode{"every", "K", [](const Values& v) { return every(v[0]); }},
    Mode{"causal_every", "K", [](const Values& v) { return causal_every(v[0]); }},
    Mode{"chunked", "C", [](const Values& v) { return chunked(v[0]); }},
    Mode{"causal_chunked", "C", [](const Values& v) { return causal_chunked(v[0]); }},
    Mode{"dynamic", "BK", [](const Values& v) { return dynamic(v[0], v[1]); }},
    Mode{"causal_dynamic", "BK", [](const Values& v) { return causal_dynamic(v[0], v[1]); }},
};
constexpr std::string_view kLearned = "learned";  // its arguments are modes

// Steps, chunks, blocks and their number are at least 1, windows at least 0.
int64_t least_value(char argument) {
  return argument == 'K' || argument == 'C' || argument == 'B' ? 1 : 0;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// "window:L:R"
std::string form(const Mode& mode) {
  std::string result(mode.name);
  for (const char argument : mode.arguments) (result += ':') += argument;
  return result;
}

std::string all_forms() {
  std::string result;
  for (const Mode& mode : kModes) result += (result.empty() ? "" : ", ") + form(mode);
  return result + ", learned(MODE|MODE...)";
}

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> best(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        best[i][j] = i + j;
        continue;
      }
      const std::size_t differs = a[i - 1] == b[j - 1] ? 0 : 1;
      best[i][j] = std::min({best[i - 1][j] + 1, best[i][j - 1] + 1, best[i - 1][j - 1] + differs});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        best[i][j] = std::min(best[i][j], best[i - 2][j - 2] + 1);
      }
    }
  }
  return best[a.size()][b.size()];
}

// The mode a misspelt `word` most likely meant: one slip in six letters, two in seven ("local" is not
// "global", but "chunk" is "chunked"), three in eleven. Empty if there is none.
std::string_view nearest_mode(std::string_view word) {
  constexpr std::size_t kLongest = 32;  // of a word worth comparing; the longest mode has 14 letters
  if (word.size() > kLongest) return {};
  std::string lower(word);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  std::string_view nearest;
  std::size_t least = 0;
  const auto compare = [&](std::string_view name) {
    const std::size_t distance = edit_distance(lower, name);
    if (distance * 4 <= name.size() + 1 && (nearest.empty() || distance < least)) {
      nearest = name;
      least = distance;
    }
  };
  for (const Mode& mode : kModes) compare(mode.name);
  compare(kLearned);
  return nearest;
}

// `text` in quotes, shortened, with everything but printable ASCII as \xNN: messages stay clean text.
std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 40;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte <= '~') {
      result += c;
    } else {
      ((result += "\\x") += kHex[byte >> 4]) += kHex[byte & 15];
    }
  }
  return result + (text.size() > kShown ? "...\"" : "\"");
}

// Recursive descent over one text. Every error names the column of the first character that does not fit.
class Parser {
 public:
  Parser(std::string_view text, std::string_view function) : text_(text), function_(function) {}

  PatternList list() {
    std::vector<Pattern> heads;
    bool counted = false;
    do {
      counted = entry(heads);
    } while (take(','));
    dynamic_block(heads, function_);
    expect_end(counted ? R"("," or the end)" : R"("*count", "+first:S", "," or the end)");
    if (heads.size() == 1 && !counted) return heads.front();
    return heads;
  }

  Pattern single() {
    const Pattern pattern = mode_with_modifier();
    expect_end(R"("+first:S" or the end: a single mode, without a count)");
    return pattern;
  }

 private:
  // mode | mode "*" count | count "x" mode. Appends the heads; true if a count was written.
  bool entry(std::vector<Pattern>& heads) {
    const std::size_t start = at_;
    int64_t count = 1;
    const bool before = at_ < text_.size() && is_digit(text_[at_]);
    if (before) {
      count = number("a count", 1);
      if (!take('x')) fail_at(at_, R"("x" and a mode after the count)");
    }
    const Pattern pattern = mode_with_modifier();
    const bool after = !before && take('*');
    if (after) count = number("a count", 1);
    const int64_t room = PatternList::kMaxHeads - static_cast<int64_t>(heads.size());
    if (count > room) fail_at(start, text("at most ", PatternList::kMaxHeads, " heads in all"));
    heads.insert(heads.end(), count, pattern);
    return before || after;
  }

  Pattern mode_with_modifier() {
    const std::size_t start = at_;
    if (word() == kLearned) return learned_mode();
    const Mode& mode = mode_name();
    Values values{};
    for (std::size_t k = 0; k < mode.arguments.size(); ++k) {
      if (!take(':')) fail_at(at_, text("\":", mode.arguments[k], "\", as in ", form(mode)));
      values[k] = number(text(mode.arguments[k], " of ", form(mode)), least_value(mode.arguments[k]));
    }
    Pattern pattern = mode.build(values);
    if (in_learned_ && pattern.dynamic()) fail_at(start, "a candidate that is not dynamic");
    if (pattern.dynamic() && at_ < text_.size() && text_[at_] == '+') {
      fail_at(at_, "no modifier: a dynamic head weighs whole blocks");
    }
    if (take('+')) {
      constexpr std::string_view kFirst = "first";
      if (text_.substr(at_, kFirst.size()) != kFirst) fail_at(at_, R"("first:S" after "+")");
      at_ += kFirst.size();
      if (!take(':')) fail_at(at_, R"(":S", as in +first:S)");
      pattern = pattern.with_first(number("S of +first:S", 0));
    }
    return pattern;
  }

  // "learned(" mode { "|" mode } ")"
  Pattern learned_mode() {
    if (in_learned_) fail_at(at_, "a candidate that is not learned");
    at_ += kLearned.size();
    if (!take('(')) fail_at(at_, "\"(\", as in learned(global|sliding:64)");
    in_learned_ = true;
    std::vector<Pattern> candidates;
    do {
      if (static_cast<int64_t>(candidates.size()) == Pattern::kMaxCandidates) {
        fail_at(at_, text("at most ", Pattern::kMaxCandidates, " candidates"));
      }
      candidates.push_back(mode_with_modifier());
    } while (take('|'));
    if (!take(')')) fail_at(at_, "\"|\" and a mode, or \")\"");
    in_learned_ = false;
    if (at_ < text_.size() && text_[at_] == '+') fail_at(at_, "no modifier: candidates have their own");
    return learned(std::move(candidates));
  }

  // Up to what ends a mode's name.
  std::string_view word() const {
    return text_.substr(at_, std::min(text_.find_first_of(",*:+(|)", at_), text_.size()) - at_);
  }

  const Mode& mode_name() {
    const std::string_view name = word();
    const auto* mode =
        std::find_if(kModes.begin(), kModes.end(), [&](const Mode& m) { return m.name == name; });
    if (mode == kModes.end()) fail_mode(name);
    at_ += name.size();
    return *mode;
  }

  [[noreturn]] void fail_mode(std::string_view word) {
    if (word.find(' ') != std::string_view::npos) fail_at(at_, "a mode (a list has no spaces)");
    const std::string_view nearest = word.empty() ? std::string_view() : nearest_mode(word);
    if (!nearest.empty()) fail_at(at_, text("a mode: did you mean ", quoted(nearest), "?"));
    fail_at(at_, "a mode: " + all_forms());
  }

  int64_t number(const std::string& what, int64_t least) {
    const std::size_t start = at_;
    int64_t value = 0;
    bool fits = true;
    for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
      fits = fits && !__builtin_mul_overflow(value, int64_t{10}, &value) &&
             !__builtin_add_overflow(value, int64_t{text_[at_] - '0'}, &value);
    }
    if (at_ == start || (fits && value < least))
      fail_at(start, text(what, ", an integer of at least ", least));
    if (!fits) fail_at(start, text(what, ", an integer of at most ", std::numeric_limits<int64_t>::max()));
    return value;
  }

  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect_end(const char* expected) {
    if (at_ != text_.size()) fail_at(at_, expected);
  }

  // What was found is the text from `position` to the next comma, or to the end.
  [[noreturn]] void fail_at(std::size_t position, const std::string& expected) {
    const std::size_t end = std::max(position + 1, std::min(text_.find(',', position), text_.size()));
    const std::string found =
        position >= text_.size() ? "the end" : quoted(text_.substr(position, end - position));
    fail(function_, ": ", quoted(text_), ", column ", position + 1, ": found ", found, ", expected ",
         expected);
  }

  std::string_view text_;
  std::string_view function_;
  std::size_t at_ = 0;
  bool in_learned_ = false;
};

std::string window_text(const Pattern& pattern) {
  constexpr int64_t kUnbounded = Pattern::kUnbounded;
  if (pattern.left == kUnbounded && pattern.right == kUnbounded) return "global";
  if (pattern.left == kUnbounded && pattern.causal()) return "causal";
  if (pattern.causal()) return text("causal_sliding:", pattern.left);
  if (pattern.left == pattern.right) return text("sliding:", pattern.left);
  return text("window:", pattern.left, ":", pattern.right);
}

std::string base_text(const Pattern& pattern) {
  if (pattern.learned()) {
    std::string result(kLearned);
    char before = '(';
    for (const Pattern& candidate : pattern.candidates) {
      (result += before) += to_text(candidate);
      before = '|';
    }
    return result + ')';
  }
  if (pattern.dynamic()) {
    return text(pattern.causal() ? "causal_" : "", "dynamic:", pattern.block, ":", pattern.chosen);
  }
  const bool steps = pattern.step != Step::kNone;
  const bool chunks = pattern.chunk > 0;
  if (!steps && !chunks) return window_text(pattern);
  const bool windows =
      pattern.left != Pattern::kUnbounded || (pattern.right != Pattern::kUnbounded && !pattern.causal());
  check(!windows && steps != chunks, "iha::to_text: a pattern that joins windows, steps or chunks (left ",
        pattern.left, ", right ", pattern.right, ", step ", steps ? pattern.every : 0, ", chunk ",
        pattern.chunk, "), expected one of these alone: the grammar has no name for it");
  const std::string_view prefix = pattern.causal() ? "causal_" : "";
  if (chunks) return text(prefix, "chunked:", pattern.chunk);
  return text(prefix, pattern.step == Step::kRelative ? "strided:" : "every:", pattern.every);
}

}  // namespace

PatternList parse_patterns(std::string_view text) {
  return Parser(text, "iha::parse_patterns").list();
}

Pattern parse_pattern(std::string_view text) {
  return Parser(text, "iha::parse_pattern").single();
}

std::string to_text(const Pattern& pattern) {
  check(pattern, "iha::to_text");
  return pattern.first > 0 ? text(base_text(pattern), "+first:", pattern.first) : base_text(pattern);
}

std::string to_text(const PatternList& list) {
  const std::vector<Pattern>& heads = list.entries();
  check(!heads.empty(), "iha::to_text: patterns for 0 heads, expected at least one");
  if (list.for_all()) return to_text(heads.front());
  std::string result;
  for (auto run = heads.begin(); run != heads.end();) {
    const auto end = std::find_if(run, heads.end(), [&](const Pattern& pattern) { return pattern != *run; });
    if (run != heads.begin()) result += ',';
    result += to_text(*run);
    // A lone uncounted entry would be read as one for all heads.
    if (end - run > 1 || heads.size() == 1) result += text("*", end - run);
    run = end;
  }
  return result;
}

}  // namespace iha
