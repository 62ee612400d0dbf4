// The page's text; its form as HTML is tested in tests/python/test_report.py.
#include "iha/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace iha::report {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string page_of(Block block) {
  return to_html(Page{"t", "l", {}, {{"s", {std::move(block)}}}, ""});
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Report, TextIsEscapedEverywhere) {
  const std::string evil = "<script>\"'&\x02\xFF";
  const std::string safe = "&lt;script&gt;&quot;&#39;&amp;\u2402\uFFFD";
  const Dot dot{evil, 1, 0.1, evil, false};
  Viewer viewer{.title = evil, .caption = evil, .token_count = 1, .tokens = {evil}, .layers = {}};
  viewer.layers.push_back({.name = evil, .heads = {{.text = evil, .pattern = causal()}}});
  const Page page{evil,
                  evil,
                  {{evil, evil, evil}},
                  {{evil,
                    {Paragraph{evil}, BulletList{{evil}}, CodeBlock{evil, evil},
                     Table{evil, evil, {{evil, Align::kLeft, evil}}, {{evil}}},
                     LineChart{evil, evil, evil, evil, {{evil, {1}, {1}}}},
                     DotChart{evil, evil, evil, {dot}, {}, {}, 0.5, evil},
                     HeatMap{evil, evil, evil, evil, {evil}, {evil}, {1}, 1, 1}, viewer}},
                   {evil, {}}},
                  evil};
  const std::string html = to_html(page);
  EXPECT_THAT(html, Not(HasSubstr("<script>\"")));
  EXPECT_THAT(html, HasSubstr("\\u003cscript\\u003e\\\"'\\u0026\u2402\uFFFD"));
  EXPECT_THAT(html, Not(HasSubstr("\x02")));
  EXPECT_THAT(html, Not(HasSubstr("\xFF")));
  EXPECT_GT(occurrences(html, safe), 40u);
}

TEST(Report, CodeKeepsItsLines) {
  EXPECT_THAT(page_of(CodeBlock{"", "a\n\tb\r\n"}), HasSubstr("<pre>a\n\tb\u240d\n</pre>"));
}

TEST(Report, DirectionMarksDoNotTurnTheText) {
  EXPECT_THAT(page_of(Paragraph{"a\u202Eb\u2066c"}), HasSubstr("a\uFFFDb\uFFFDc"));
}

TEST(Report, ContentsOnlyForSeveralSections) {
  EXPECT_THAT(to_html(Page{"t", "", {}, {{"one", {}}}, ""}), Not(HasSubstr("<nav")));
  const std::string html = to_html(Page{"t", "", {}, {{"one", {}}, {"two", {}}}, ""});
  EXPECT_THAT(html, HasSubstr("<a href=\"#section-2\">two</a>"));
  EXPECT_THAT(html, HasSubstr("<section id=\"section-2\""));
}

TEST(LineChart, LinesBreakAtWhatIsNotANumber) {
  const double nan = std::nan("");
  const auto lines = [](const Series& series, bool logarithmic = false) {
    LineChart chart{.title = "c",
                    .caption = "",
                    .x_label = "x",
                    .y_label = "y",
                    .series = {series},
                    .log_y = logarithmic};
    return occurrences(page_of(chart), "<path class=\"line c0 d0\" d=\"M") - 1;  // one is the legend's
  };
  EXPECT_EQ(lines({"s", {1, 2, 3, 4}, {1, 2, 3, 4}}), 2u);  // wide and narrow
  EXPECT_EQ(lines({"s", {1, 2, 3, 4, 5}, {1, 2, nan, 4, 5}}), 4u);
  EXPECT_EQ(lines({"s", {1, 2, nan, 4, 5}, {nan, 2, 3, 4, nan}}), 4u);
  EXPECT_EQ(lines({"s", {1, 2, 3}, {1, -1, 3}}, true), 4u);
  EXPECT_EQ(lines({"s", {1}, {1}}), 2u);
}

TEST(LineChart, NothingToDrawIsSaid) {
  EXPECT_THAT(page_of(LineChart{"c", "", "x", "y", {}}), HasSubstr("No data."));
  EXPECT_THAT(page_of(LineChart{"c", "", "x", "y", {{"s", {}, {}}}}), HasSubstr("No data."));
  EXPECT_THAT(page_of(LineChart{"c", "", "x", "y", {{"s", {1}, {std::nan("")}}}}), HasSubstr("No data."));
  EXPECT_THAT(page_of(DotChart{"c", "", "", {}}), HasSubstr("No data."));
}

TEST(LineChart, LongSeriesAreThinnedButKeepTheirExtremes) {
  Series series{"s", {}, {}};
  for (int i = 0; i < 100'000; ++i) {
    series.x.push_back(i);
    series.y.push_back(0);
  }
  series.y[54'321] = 7;
  series.y[54'322] = -7;
  const std::string spike = page_of(LineChart{"c", "", "x", "y", {series}});
  EXPECT_LT(spike.size(), 60'000u);
  // Between the spikes lies 25/27 of the plot, which reaches from y 12 to 296: 4% of the range of 14 is left
  // at each end.
  EXPECT_THAT(spike, HasSubstr(" 22.5"));
  EXPECT_THAT(spike, HasSubstr(" 285.5"));
}

TEST(Report, SizesThatDoNotFitAreNamed) {
  const auto error_of = [](Block block) -> std::string {
    try {
      page_of(std::move(block));
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of(LineChart{"c", "", "", "", {{"loss", {1, 2}, {1}}}}),
              HasSubstr("series 'loss' has 2 x and 1 y"));
  EXPECT_THAT(error_of(LineChart{"c", "", "", "", {{"loss", {1, 2}, {1, 2}, {1}}}}),
              HasSubstr("1 spreads for 2 y"));
  EXPECT_THAT(error_of(LineChart{.title = "c",
                                 .caption = "",
                                 .x_label = "",
                                 .y_label = "",
                                 .series = {{"s", {1}, {1}}},
                                 .log_y = true,
                                 .y_min = 0}),
              HasSubstr("above 0"));
  EXPECT_THAT(error_of(HeatMap{"m", "", "", "", {}, {}, {1, 2}, 1, 1}),
              HasSubstr("heat map 'm' has 2 values, expected 1 * 1"));
  EXPECT_THAT(error_of(HeatMap{"m", "", "", "", {"a", "b"}, {}, {1}, 1, 1}),
              HasSubstr("2 row names, expected 1"));
  EXPECT_THAT(error_of(Table{"t", "", {{"a"}}, {{"1", "2"}}}), HasSubstr("a row of 2 cells, expected 1"));
  EXPECT_THAT(error_of(DotChart{"d", "", "", {{"x", std::nan(""), 0}}}), HasSubstr("dot 'x' is nan"));
}

TEST(Report, OddNumbersBreakNothing) {
  const double nan = std::nan("");
  EXPECT_THAT(page_of(HeatMap{"m", "", "r", "c", {}, {}, {nan, 0, -1, INFINITY}, 2, 2}),
              HasSubstr("--a:1.00"));
  EXPECT_THAT(page_of(DotChart{"d", "", "", {{"x", 3, 0}}}), Not(HasSubstr("nan")));
  EXPECT_THAT(page_of(LineChart{"c", "", "x", "y", {{"s", {5, 5}, {2, 2}}}}), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace iha::report
