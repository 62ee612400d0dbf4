// Heads on a text, a card each: what the pattern lets the head see, and where its weight went.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "iha/core/error.h"
#include "iha/patterns/parse.h"
#include "iha/report/blocks.h"
#include "iha/report/format.h"
#include "iha/report/text.h"

namespace iha::report {
namespace {

// Steps of colour. Weights are shown by their square root: most of a head's weights are small, and the eye
// should see that they are there.
constexpr int kLevels = 9;
constexpr std::size_t kLongestLabel = 8;

// Adds the rectangle of cells [begin, end) of `row` to a path.
void add_run(std::string& path, std::size_t row, std::size_t begin, std::size_t end) {
  path += fmt::format("M{} {}h{}v1h-{}z", begin, row, end - begin, end - begin);
}

// A path of all cells where `in(row, column)` holds, neighbours of a row joined.
template <class In>
std::string path_where(std::size_t size, const In& in) {
  std::string path;
  for (std::size_t row = 0; row < size; ++row) {
    for (std::size_t begin = 0; begin < size;) {
      if (!in(row, begin)) {
        ++begin;
        continue;
      }
      std::size_t end = begin + 1;
      while (end < size && in(row, end)) ++end;
      add_run(path, row, begin, end);
      begin = end;
    }
  }
  return path;
}

std::string path_of(const Pattern& pattern, std::size_t tokens) {
  return path_where(tokens, [&](std::size_t i, std::size_t j) {
    return visible(pattern, static_cast<int64_t>(i), static_cast<int64_t>(j));
  });
}

// One picture of a head's weights, tokens along both sides.
class Matrix {
 public:
  Matrix(const HeadsOnText& all, const HeadOnText& head) : head_(head), size_(all.tokens.size()) {
    for (const std::string& token : all.tokens)
      labels_.emplace_back(first_code_points(token_text(token), kLongestLabel));
    for (const std::string& label : labels_) longest_ = std::max(longest_, display_width(label));
    for (const double weight : head.weights)
      largest_ = std::isfinite(weight) ? std::max(largest_, weight) : largest_;
  }

  std::string draw() const {
    const double edge = 0.4 + 0.62 * static_cast<double>(longest_);  // room for labels, in cells
    const double whole = static_cast<double>(size_) + edge + 0.3;
    std::string svg = fmt::format(
        R"(<svg class="matrix" viewBox="{:.2f} {:.2f} {:.2f} {:.2f}" role="img" aria-label="{}">)", -edge,
        -edge, whole, whole, escape(head_.name + ": weights, a row a query token, a column a key token"));
    svg += fmt::format(R"(<path class="seen" d="{}"/>)", path_of(head_.pattern, size_));
    for (int level = 1; level <= kLevels; ++level) {
      const std::string path =
          path_where(size_, [&](std::size_t i, std::size_t j) { return level_at(i, j) == level; });
      if (!path.empty())
        svg += fmt::format(R"(<path class="cell" fill-opacity="{:.2f}" d="{}"/>)",
                           static_cast<double>(level) / kLevels, path);
    }
    return svg + draw_labels() + draw_tooltips() + "</svg>";
  }

 private:
  double weight(std::size_t i, std::size_t j) const { return head_.weights[i * size_ + j]; }
  int level_at(std::size_t i, std::size_t j) const {
    if (!(weight(i, j) > 0) || !(largest_ > 0)) return 0;
    return static_cast<int>(std::ceil(kLevels * std::sqrt(std::min(1.0, weight(i, j) / largest_)) - 0.5));
  }

  std::string draw_labels() const {
    std::string svg;
    for (std::size_t i = 0; i < size_; ++i) {
      const std::string label = escape(labels_[i]);
      const double middle = static_cast<double>(i) + 0.5;
      svg += fmt::format(R"(<text class="end" x="-0.3" y="{:.1f}" dy="0.35em">{}</text>)", middle, label);
      if (longest_ <= 1) {
        svg += fmt::format(R"(<text class="middle" x="{:.1f}" y="-0.35">{}</text>)", middle, label);
      } else {
        svg +=
            fmt::format(R"svg(<text transform="translate({:.1f} -0.3) rotate(-90)" dy="0.35em">{}</text>)svg",
                        middle, label);
      }
    }
    return svg;
  }

  // A row each: what its query saw most.
  std::string draw_tooltips() const {
    std::string svg;
    std::vector<std::size_t> order(size_);
    for (std::size_t i = 0; i < size_; ++i) {
      std::iota(order.begin(), order.end(), std::size_t{0});
      const auto most = order.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(3, size_));
      // Keys without weight last; NaN counts as none, since a comparison must be an order.
      const auto rank = [&](std::size_t j) { return weight(i, j) > 0 ? -weight(i, j) : 0.0; };
      std::partial_sort(order.begin(), most, order.end(),
                        [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
      std::string words = fmt::format("{} (token {})", labels_[i], i);
      for (auto j = order.begin(); j != most && weight(i, *j) > 0; ++j) {
        words += fmt::format("{} {} on {} ({})", j == order.begin() ? ":" : ",",
                             significant(weight(i, *j), 2), labels_[*j], *j);
      }
      svg += fmt::format(R"(<rect class="row" x="0" y="{}" width="{}" height="1"><title>{}</title></rect>)",
                         i, size_, escape(words));
    }
    return svg;
  }

  const HeadOnText& head_;
  std::size_t size_;
  std::vector<std::string> labels_;
  std::size_t longest_ = 1;
  double largest_ = 0;
};

// The text itself, each token shaded by the weight that the chosen query gave it.
std::string draw_strip(const HeadsOnText& all, const HeadOnText& head) {
  const std::size_t size = all.tokens.size();
  const double* weights = head.weights.data() + all.query * size;
  double largest = 0;
  for (std::size_t j = 0; j < size; ++j)
    largest = std::isfinite(weights[j]) ? std::max(largest, weights[j]) : largest;
  std::string html = R"(<p class="strip">)";
  for (std::size_t j = 0; j < size; ++j) {
    const double strength =
        weights[j] > 0 && largest > 0 ? std::sqrt(std::min(1.0, weights[j] / largest)) : 0;
    const bool seen = visible(head.pattern, static_cast<int64_t>(all.query), static_cast<int64_t>(j));
    html += fmt::format(R"(<span class="{}{}" style="--a:{:.2f}" title="{}">{}</span>)",
                        seen ? "seen" : "hidden", j == all.query ? " query" : "", strength,
                        significant(weights[j], 2), escape(token_text(all.tokens[j])));
    if (all.tokens[j].ends_with('\n')) html += "<br/>";
  }
  return html + "</p>";
}

std::string draw_card(const HeadsOnText& all, const HeadOnText& head) {
  const Family family = family_of(head.pattern);
  std::string html = fmt::format(R"(<article class="head {}">)", name_of(family));
  html += fmt::format(
      R"(<header>{}<div><h4>{}</h4><p><b class="family">{}</b> <code>{}</code><br/>sees {}</p></div></header>)",
      pattern_picture(head.pattern, all.tokens.size()), escape(head.name), name_of(family),
      escape(iha::to_text(head.pattern)), escape(describe(head.pattern)));
  html += Matrix(all, head).draw() + draw_strip(all, head);
  if (!head.note.empty()) html += fmt::format(R"(<p class="note">{}</p>)", escape(head.note));
  return html + "</article>";
}

void check_sizes(const HeadsOnText& all) {
  const std::size_t size = all.tokens.size();
  check(size == 0 || all.query < size, "report: heads '", all.title, "' show query ", all.query, " of ", size,
        " tokens");
  for (const HeadOnText& head : all.heads) {
    check(head.weights.size() == size * size, "report: head '", head.name, "' has ", head.weights.size(),
          " weights, expected ", size, " * ", size);
  }
}

// The families that occur, in words beside their colours.
std::string draw_key(const std::vector<HeadOnText>& heads) {
  std::array<bool, 8> seen{};
  std::string html = R"(<ul class="families">)";
  for (const HeadOnText& head : heads) {
    const Family family = family_of(head.pattern);
    if (std::exchange(seen[static_cast<std::size_t>(family)], true)) continue;
    html += fmt::format(R"(<li class="{0}"><i></i>{0} ({1})</li>)", name_of(family), colour_name(family));
  }
  return html + "</ul>";
}

}  // namespace

std::string pattern_picture(const Pattern& pattern, std::size_t tokens) {
  const std::string words = escape("A query a row, a key a column: sees " + describe(pattern));
  return fmt::format(
      R"(<svg class="pattern {}" viewBox="0 0 {} {}" role="img" aria-label="{}"><path d="{}"/></svg>)",
      name_of(family_of(pattern)), tokens, tokens, words, path_of(pattern, tokens));
}

std::string to_html(const HeadsOnText& heads) {
  check_sizes(heads);
  std::string html = "<figure>" + heading(heads.title);
  if (heads.tokens.empty())
    return html + R"(<p class="note">No tokens.</p>)" + caption(heads.caption) + "</figure>";
  html += draw_key(heads.heads) + R"(<div class="heads">)";
  for (const HeadOnText& head : heads.heads) html += draw_card(heads, head);
  return html + "</div>" + caption(heads.caption) + "</figure>";
}

}  // namespace iha::report
