#include "iha/report/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "iha/core/error.h"
#include "iha/io/atomic_file.h"
#include "iha/report/blocks.h"
#include "iha/report/style.h"
#include "iha/report/text.h"
#include "iha/report/viewer_files.h"

namespace iha::report {
namespace {

std::string to_html(const Paragraph& paragraph) {
  return "<p>" + escape(paragraph.text) + "</p>";
}

std::string to_html(const BulletList& list) {
  std::string html = "<ul>";
  for (const std::string& item : list.items) html += "<li>" + escape(item) + "</li>";
  return html + "</ul>";
}

std::string to_html(const CodeBlock& code) {
  return "<figure>" + heading(code.title) + "<pre>" + escape(code.text, true) + "</pre></figure>";
}

std::string draw_lead(const Page& page) {
  std::string html = fmt::format(R"(<header class="masthead"><h1>{}</h1><p class="lead">{}</p>)",
                                 escape(page.title), escape(page.lead));
  if (!page.figures.empty()) html += R"(<ul class="key-figures">)";
  for (const KeyFigure& figure : page.figures) {
    html += fmt::format("<li><b>{}</b><span>{}</span>", escape(figure.value), escape(figure.label));
    if (!figure.note.empty()) html += fmt::format(R"(<span class="note">{}</span>)", escape(figure.note));
    html += "</li>";
  }
  return html + (page.figures.empty() ? "" : "</ul>");
}

std::string draw_contents(const std::vector<Section>& sections) {
  std::string html = R"(<nav aria-label="Contents"><ol>)";
  for (std::size_t i = 0; i < sections.size(); ++i) {
    html += fmt::format(R"(<li><a href="#section-{}">{}</a></li>)", i + 1, escape(sections[i].title));
  }
  return html + "</ol></nav>";
}

bool has_viewer(const Page& page) {
  return std::ranges::any_of(page.sections, [](const Section& section) {
    return std::ranges::any_of(section.blocks,
                               [](const Block& block) { return std::holds_alternative<Viewer>(block); });
  });
}

// Forbids whatever is not in the page itself, so that it can ask nobody for anything.
constexpr std::string_view kPolicy =
    R"(<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"/>)";

std::string draw_section(const Section& section, std::size_t number) {
  std::string html =
      fmt::format(R"(<section id="section-{0}" aria-labelledby="title-{0}"><h2 id="title-{0}">{1}</h2>)",
                  number, escape(section.title));
  html += '\n';
  for (const Block& block : section.blocks) {
    html += std::visit([](const auto& content) { return to_html(content); }, block) + '\n';
  }
  return html + "</section>\n";
}

}  // namespace

std::string heading(std::string_view title) {
  return title.empty() ? "" : "<h3>" + escape(title) + "</h3>";
}

std::string caption(std::string_view text) {
  return text.empty() ? "" : "<figcaption>" + escape(text) + "</figcaption>";
}

std::string scrolling(std::string_view label, std::string_view content) {
  return fmt::format(R"(<div class="scroll" role="region" aria-label="{}" tabindex="0">{}</div>)",
                     label.empty() ? "Table" : escape(label), content);
}

std::string to_html(const Table& table) {
  std::string html = R"(<table class="data"><thead><tr>)";
  const auto side = [&table](std::size_t c) {
    return table.columns[c].align == Align::kLeft ? R"( class="left")" : "";
  };
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const std::string& unit = table.columns[c].unit;
    html += fmt::format(R"(<th scope="col"{}>{}{}</th>)", side(c), escape(table.columns[c].name),
                        unit.empty() ? "" : "<small>" + escape(unit) + "</small>");
  }
  html += "</tr></thead><tbody>";
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    const auto& row = table.rows[r];
    check(row.size() == table.columns.size(), "report: table '", table.title, "' has a row of ", row.size(),
          " cells, expected ", table.columns.size());
    html +=
        std::ranges::find(table.emphasis, r) == table.emphasis.end() ? "<tr>" : R"(<tr class="emphasis">)";
    for (std::size_t c = 0; c < row.size(); ++c) {
      html += c == 0 ? fmt::format(R"(<th scope="row"{}>{}</th>)", side(c), escape(row[c]))
                     : fmt::format("<td{}>{}</td>", side(c), escape(row[c]));
    }
    html += "</tr>";
  }
  return "<figure>" + heading(table.title) + scrolling(table.title, html + "</tbody></table>") +
         caption(table.caption) + "</figure>";
}

std::string to_html(const Page& page) {
  const bool viewer = has_viewer(page);
  std::string html = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n";
  html += kPolicy;
  html +=
      R"(<meta name="viewport" content="width=device-width, initial-scale=1"/><meta name="color-scheme" content="light dark"/>)";
  // Without an icon of its own a served page asks the server for one.
  html += fmt::format(
      "<link rel=\"icon\" href=\"data:,\"/>\n<title>{}</title>\n<style>{}{}</style></head>\n<body>",
      escape(page.title), style_sheet(), viewer ? viewer_style() : "");
  html += draw_lead(page);
  if (page.sections.size() > 1) html += draw_contents(page.sections);
  html += "</header>\n<main>\n";
  for (std::size_t i = 0; i < page.sections.size(); ++i) html += draw_section(page.sections[i], i + 1);
  html += "</main>\n";
  if (!page.footer.empty()) html += "<footer>" + escape(page.footer, true) + "</footer>\n";
  // XML's parsers skip what is in CDATA, HTML's take its marks for comments of the script.
  if (viewer) html += fmt::format("<script>//<![CDATA[\n{}//]]></script>\n", viewer_script());
  return html + "</body></html>\n";
}

void write_html(const std::filesystem::path& path, const Page& page) {
  io::replace_file(path, to_html(page));
}

}  // namespace iha::report
