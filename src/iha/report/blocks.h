// The blocks of a page as HTML. Private to report/; report.cpp puts them together, style.cpp says how they
// look.
#pragma once

#include <string>
#include <string_view>

#include "iha/report/picture.h"
#include "iha/report/report.h"

namespace iha::report {

std::string to_html(const Table& table);
std::string to_html(const LineChart& chart);
std::string to_html(const DotChart& chart);
std::string to_html(const HeatMap& map);
std::string to_html(const Viewer& viewer);

// <h3>title</h3>, or nothing without a title; <figcaption>, or nothing without a caption.
std::string heading(std::string_view title);
std::string caption(std::string_view text);

// A box as wide as the page that scrolls sideways by itself where its content is wider; `label` names it to
// screen readers.
std::string scrolling(std::string_view label, std::string_view content);

}  // namespace iha::report
