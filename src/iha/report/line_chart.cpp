// Line charts as SVG. Each is drawn twice, for wide and for narrow screens, since text in an SVG shrinks with
// it; the style shows one of them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "iha/core/error.h"
#include "iha/report/axis.h"
#include "iha/report/blocks.h"
#include "iha/report/format.h"
#include "iha/report/text.h"

namespace iha::report {
namespace {

constexpr int kColours = 8;        // .c0 to .c7 of the style
constexpr int kMarksPerLine = 12;  // places with a tooltip
constexpr double kPixelsPerLetter = 7.5;

struct Point {
  double x = 0, y = 0, spread = 0;
};

// The points of a series that can be drawn, cut into runs at those that cannot.
std::vector<std::vector<Point>> runs_of(const Series& series, const LineChart& chart) {
  std::vector<std::vector<Point>> runs(1);
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    const Point point{series.x[i], series.y[i], series.spread.empty() ? 0 : series.spread[i]};
    const bool finite = std::isfinite(point.x) && std::isfinite(point.y) && std::isfinite(point.spread);
    if (finite && (!chart.log_x || point.x > 0) && (!chart.log_y || point.y > 0)) {
      runs.back().push_back(point);
    } else if (!runs.back().empty()) {
      runs.emplace_back();
    }
  }
  if (runs.back().empty()) runs.pop_back();
  return runs;
}

// At most about `limit` points, with the lowest and the highest of each stretch, so that no spike goes
// missing.
std::vector<Point> thinned(const std::vector<Point>& points, std::size_t limit) {
  if (points.size() <= limit) return points;
  const std::size_t buckets = limit / 2;
  std::vector<Point> kept{points.front()};
  for (std::size_t b = 0; b < buckets; ++b) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(b * points.size() / buckets);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>((b + 1) * points.size() / buckets);
    auto [low, high] =
        std::minmax_element(begin, end, [](const Point& a, const Point& b) { return a.y < b.y; });
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
  }
  kept.push_back(points.back());
  return kept;
}

struct Line {
  std::string name;
  std::vector<std::vector<Point>> runs;
  const Point& first() const { return runs.front().front(); }
  const Point& last() const { return runs.back().back(); }
};

// What is drawn where, in pixels.
struct Frame {
  double width = 0, height = 0, left = 0, right = 0, top = 0, bottom = 0;
  Axis x, y;

  double across(double value) const { return left + x.position(value) * (right - left); }
  double up(double value) const { return bottom - std::clamp(y.position(value), 0.0, 1.0) * (bottom - top); }
};

void check_sizes(const LineChart& chart) {
  for (const Series& series : chart.series) {
    check(series.x.size() == series.y.size(), "report: series '", series.name, "' has ", series.x.size(),
          " x and ", series.y.size(), " y, expected as many");
    check(series.spread.empty() || series.spread.size() == series.y.size(), "report: series '", series.name,
          "' has ", series.spread.size(), " spreads for ", series.y.size(), " y, expected as many or none");
  }
}

Frame make_frame(const LineChart& chart, const std::vector<Line>& lines, double width, double height) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double x_low = kInfinity, x_high = -kInfinity, y_low = kInfinity, y_high = -kInfinity;
  for (const Line& line : lines) {
    for (const auto& run : line.runs) {
      for (const Point& point : run) {
        x_low = std::min(x_low, point.x);
        x_high = std::max(x_high, point.x);
        const double below = point.y - point.spread;
        y_low = std::min(y_low, chart.log_y && below <= 0 ? point.y : below);
        y_high = std::max(y_high, point.y + point.spread);
      }
    }
  }
  const double margin = chart.log_y ? 0 : 0.04 * (y_high - y_low);
  y_low = chart.y_min.value_or(y_low - margin);
  y_high = chart.y_max.value_or(y_high + margin);
  check(!chart.log_y || y_low > 0, "report: chart '", chart.title, "' begins at ", y_low,
        ", expected above 0 on a logarithmic axis");

  Frame frame{width,
              height,
              0,
              width - 12,
              12,
              height - 44,
              make_axis(x_low, x_high, chart.log_x, width > 500 ? 7 : 4),
              make_axis(y_low, y_high, chart.log_y, 5)};
  std::size_t longest = 1;
  for (const std::string& label : frame.y.labels) longest = std::max(longest, label.size());
  frame.left = 14 + kPixelsPerLetter * static_cast<double>(longest);
  return frame;
}

std::string draw_axes(const LineChart& chart, const Frame& frame) {
  std::string svg;
  for (std::size_t i = 0; i < frame.y.ticks.size(); ++i) {
    const double y = frame.up(frame.y.ticks[i]);
    svg += fmt::format(R"(<path class="grid" d="M{:.1f} {:.1f}H{:.1f}"/>)", frame.left, y, frame.right);
    svg += fmt::format(R"(<text class="end" x="{:.1f}" y="{:.1f}">{}</text>)", frame.left - 7, y + 4.5,
                       frame.y.labels[i]);
  }
  svg +=
      fmt::format(R"(<path class="axis" d="M{:.1f} {:.1f}H{:.1f}"/>)", frame.left, frame.bottom, frame.right);
  for (std::size_t i = 0; i < frame.x.ticks.size(); ++i) {
    const double x = frame.across(frame.x.ticks[i]);
    const std::string& label = frame.x.labels[i];
    svg += fmt::format(R"(<path class="axis" d="M{:.1f} {:.1f}v5"/>)", x, frame.bottom);
    // A label at the edge stays inside of the picture.
    const double half = kPixelsPerLetter / 2 * static_cast<double>(label.size());
    svg += fmt::format(R"(<text class="middle" x="{:.1f}" y="{:.1f}">{}</text>)",
                       std::min(x, frame.width - half), frame.bottom + 20, label);
  }
  return svg + fmt::format(R"(<text class="end label" x="{:.1f}" y="{:.1f}">{}</text>)", frame.right,
                           frame.height - 5, escape(chart.x_label));
}

std::string path_through(const std::vector<Point>& points, const Frame& frame) {
  std::string path;
  for (const Point& point : points) {
    path +=
        fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', frame.across(point.x), frame.up(point.y));
  }
  // A lone point shows as the round end of a line of no length.
  return points.size() == 1 ? path + "h0" : path;
}

std::string band_around(const std::vector<Point>& points, const Frame& frame) {
  std::string path;
  const auto put = [&](const Point& point, double y) {
    const double shown = frame.y.logarithmic ? std::max(y, frame.y.low) : y;
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', frame.across(point.x), frame.up(shown));
  };
  for (const Point& point : points) put(point, point.y + point.spread);
  for (auto point = points.rbegin(); point != points.rend(); ++point) put(*point, point->y - point->spread);
  return path + "Z";
}

std::string draw_line(const Line& line, int colour, const Frame& frame) {
  const auto limit = static_cast<std::size_t>(frame.width / 2);
  std::string svg;
  std::size_t total = 0;
  for (const auto& run : line.runs) {
    const std::vector<Point> points = thinned(run, limit);
    const bool band = std::ranges::any_of(points, [](const Point& point) { return point.spread > 0; });
    if (band) svg += fmt::format(R"(<path class="band c{}" d="{}"/>)", colour, band_around(points, frame));
    svg += fmt::format(R"(<path class="line c{0} d{0}" d="{1}"/>)", colour, path_through(points, frame));
    total += run.size();
  }
  const std::size_t stride = std::max<std::size_t>(1, total / kMarksPerLine);
  std::size_t index = total - 1;  // counted so that the last point has a mark
  for (const auto& run : line.runs) {
    for (const Point& point : run) {
      if (index-- % stride != 0) continue;
      svg += fmt::format(
          R"(<circle class="mark c{}" cx="{:.1f}" cy="{:.1f}" r="7"><title>{}: {} at {}</title></circle>)",
          colour, frame.across(point.x), frame.up(point.y), escape(line.name), significant(point.y, 4),
          tick_text(point.x));
    }
  }
  return svg;
}

std::string draw(const LineChart& chart, const std::vector<Line>& lines, double width, double height,
                 std::string_view name, std::string_view label) {
  const Frame frame = make_frame(chart, lines, width, height);
  std::string svg = fmt::format(R"(<svg class="chart {}" viewBox="0 0 {} {}" role="img" aria-label="{}">)",
                                name, width, height, label);
  svg += draw_axes(chart, frame);
  int colour = 0;
  for (const Line& line : lines) svg += draw_line(line, colour++ % kColours, frame);
  return svg + "</svg>";
}

std::string legend(const std::vector<Line>& lines) {
  std::string html = R"(<ul class="legend">)";
  int colour = 0;
  for (const Line& line : lines) {
    html += fmt::format(
        R"(<li><svg viewBox="0 0 30 8" aria-hidden="true"><path class="line c{0} d{0}" d="M1 4H29"/></svg>{1} <b>{2}</b></li>)",
        colour++ % kColours, escape(line.name), significant(line.last().y, 4));
  }
  return html + "</ul>";
}

// The chart in words, for those who do not see it.
std::string in_words(const LineChart& chart, const std::vector<Line>& lines) {
  std::string words = fmt::format("Line chart of {} against {}.", chart.y_label, chart.x_label);
  for (const Line& line : lines) {
    words += fmt::format(" {}: from {} to {}.", line.name, significant(line.first().y, 4),
                         significant(line.last().y, 4));
  }
  return escape(words);
}

}  // namespace

std::string to_html(const LineChart& chart) {
  check_sizes(chart);
  std::vector<Line> lines;
  for (const Series& series : chart.series) {
    auto runs = runs_of(series, chart);
    if (!runs.empty()) lines.push_back({series.name, std::move(runs)});
  }
  std::string html = "<figure>" + heading(chart.title);
  if (lines.empty()) return html + R"(<p class="note">No data.</p>)" + caption(chart.caption) + "</figure>";
  const std::string words = in_words(chart, lines);
  html += legend(lines) + fmt::format(R"(<p class="y-label">{}</p>)", escape(chart.y_label));
  html += draw(chart, lines, 760, 340, "wide", words) + draw(chart, lines, 380, 280, "narrow", words);
  return html + caption(chart.caption) + "</figure>";
}

}  // namespace iha::report
