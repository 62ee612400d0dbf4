// One value a row with its error bar, in HTML boxes placed by percent, which fit any width.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "iha/core/error.h"
#include "iha/report/axis.h"
#include "iha/report/blocks.h"
#include "iha/report/format.h"
#include "iha/report/text.h"

namespace iha::report {
namespace {

Axis axis_of(const DotChart& chart) {
  double low = chart.reference.value_or(chart.dots.front().value);
  double high = low;
  for (const Dot& dot : chart.dots) {
    check(std::isfinite(dot.value) && std::isfinite(dot.spread) && dot.spread >= 0, "report: dot '", dot.name,
          "' is ", dot.value, " +- ", dot.spread, ", expected finite numbers and no negative spread");
    low = std::min(low, dot.value - dot.spread);
    high = std::max(high, dot.value + dot.spread);
  }
  const double margin = 0.03 * (high - low);
  return make_axis(chart.min.value_or(low - margin), chart.max.value_or(high + margin), false, 4);
}

double percent_of(const Axis& axis, double value) {
  return 100 * std::clamp(axis.position(value), 0.0, 1.0);
}

std::string draw_row(const Dot& dot, const DotChart& chart, const Axis& axis) {
  const double from = percent_of(axis, dot.value - dot.spread);
  const double to = percent_of(axis, dot.value + dot.spread);
  const std::string value =
      dot.spread > 0 ? with_spread(dot.value, dot.spread, chart.digits) : fixed(dot.value, chart.digits);
  std::string html =
      fmt::format(R"(<li{}><span class="name">{}</span><span class="track" aria-hidden="true">)",
                  dot.emphasis ? R"( class="emphasis")" : "", escape(dot.name));
  if (chart.reference)
    html +=
        fmt::format(R"(<i class="reference" style="left:{:.2f}%"></i>)", percent_of(axis, *chart.reference));
  html += fmt::format(
      R"(<i class="bar" style="left:{:.2f}%;width:{:.2f}%"></i><i class="point" style="left:{:.2f}%"></i></span>)",
      from, to - from, percent_of(axis, dot.value));
  html += fmt::format(R"(<span class="value">{}</span>)", value);
  if (!dot.note.empty()) html += fmt::format(R"(<span class="note">{}</span>)", escape(dot.note));
  return html + "</li>";
}

std::string draw_scale(const Axis& axis) {
  std::string html = R"(<li class="scale" aria-hidden="true"><span class="track">)";
  for (std::size_t i = 0; i < axis.ticks.size(); ++i) {
    html += fmt::format(R"(<i class="tick" style="left:{:.2f}%">{}</i>)", percent_of(axis, axis.ticks[i]),
                        axis.labels[i]);
  }
  return html + "</span></li>";
}

}  // namespace

std::string to_html(const DotChart& chart) {
  std::string html = "<figure>" + heading(chart.title);
  if (chart.dots.empty())
    return html + R"(<p class="note">No data.</p>)" + caption(chart.caption) + "</figure>";
  const Axis axis = axis_of(chart);
  html += fmt::format(R"(<p class="y-label">{}</p><ul class="dots">)", escape(chart.value_label));
  for (const Dot& dot : chart.dots) html += draw_row(dot, chart, axis);
  html += draw_scale(axis) + "</ul>";
  if (chart.reference) {
    html += fmt::format(R"(<p class="note"><i class="reference-key"></i>{}: {}</p>)",
                        escape(chart.reference_label), fixed(*chart.reference, chart.digits));
  }
  return html + caption(chart.caption) + "</figure>";
}

}  // namespace iha::report
