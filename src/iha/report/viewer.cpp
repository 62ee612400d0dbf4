// A viewer as HTML: its data as JSON beside an empty box that the script fills. Arrays lie in it as base64 of
// little-endian numbers: exact weights as float32, summaries as float16 and keys as uint16.
#include "iha/report/viewer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "iha/core/dtype.h"
#include "iha/core/error.h"
#include "iha/patterns/parse.h"
#include "iha/report/blocks.h"
#include "iha/report/text.h"
#include "iha/schedule/coverage.h"

namespace iha::report {
namespace {

using json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little);

std::string base64(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (k < count ? std::to_integer<uint32_t>(bytes[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k) text += k <= count ? kDigits[word >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

template <class Number>
std::string packed(const std::vector<Number>& numbers) {
  return base64(std::as_bytes(std::span(numbers)));
}

template <class Number>
std::string as_float32(const std::vector<Number>& numbers) {
  return packed(std::vector<float>(numbers.begin(), numbers.end()));
}

template <class Number>
std::string as_float16(const std::vector<Number>& numbers) {
  std::vector<uint16_t> halves;
  for (const Number number : numbers) halves.push_back(float_to_float16(static_cast<float>(number)));
  return packed(halves);
}

// -1, "none", becomes 65535.
std::string as_uint16(const std::vector<int32_t>& numbers) {
  return packed(std::vector<uint16_t>(numbers.begin(), numbers.end()));
}

json to_json(const Masses& masses) {
  const bool exact = masses.block == 1;
  return {{"block", masses.block},
          {"side", masses.side},
          {exact ? "float32" : "float16", exact ? as_float32(masses.values) : as_float16(masses.values)}};
}

json to_json(const HeadWeights& weights) {
  json object{{"masses", to_json(weights.masses)}};
  if (!weights.rest.empty()) {
    object["keys"] = as_uint16(weights.heaviest_keys);
    object["weights"] = as_float16(weights.heaviest_weights);
    object["rest"] = as_float16(weights.rest);
  }
  if (!weights.parts.empty()) {
    object["parts"] = json::array();
    for (const Masses& part : weights.parts) object["parts"].push_back(to_json(part));
  }
  return object;
}

json to_json(const ViewedCost& cost) {
  json object{{"pairs", cost.pairs},
              {"flops", cost.flops},
              {"weight_bytes", cost.weight_bytes},
              {"cache_bytes", cost.cache_bytes}};
  if (cost.seconds) object["seconds"] = *cost.seconds;
  return object;
}

json to_json(const ViewedCosts& costs) {
  return {{"own", to_json(costs.own)}, {"causal", to_json(costs.causal)}, {"global", to_json(costs.global)}};
}

// Unbounded windows are null.
json bound(int64_t tokens) {
  return tokens == Pattern::kUnbounded ? json(nullptr) : json(tokens);
}

// Distinct patterns of a viewer, numbered; each with what the script draws it from.
class Patterns {
 public:
  explicit Patterns(int64_t tokens) : tokens_(tokens) {}

  std::size_t index(const Pattern& pattern) {
    const auto found = std::find(patterns_.begin(), patterns_.end(), pattern);
    if (found != patterns_.end()) return static_cast<std::size_t>(found - patterns_.begin());
    patterns_.push_back(pattern);
    return patterns_.size() - 1;
  }

  json to_json() const {
    json list = json::array();
    for (const Pattern& pattern : patterns_) {
      json object{{"words", describe(pattern)},
                  {"family", name_of(family_of(pattern))},
                  {"causal", pattern.causal()},
                  {"left", bound(pattern.left)},
                  {"right", bound(pattern.right)},
                  {"step", pattern.step == Step::kRelative   ? "relative"
                           : pattern.step == Step::kAbsolute ? "absolute"
                                                             : "none"},
                  {"every", pattern.every},
                  {"chunk", pattern.chunk},
                  {"first", pattern.first}};
      if (tokens_ > kExactTokens) {
        const Coverage cells = coverage(pattern, tokens_, kMassesASide);
        object["share"] = {
            {"block", cells.block}, {"side", cells.side}, {"float16", as_float16(cells.share)}};
      }
      list.push_back(std::move(object));
    }
    return list;
  }

 private:
  int64_t tokens_;
  std::vector<Pattern> patterns_;
};

json to_json(const ViewedHead& head, Patterns& patterns) {
  json object{{"text", visible_text(head.text)}, {"pattern", patterns.index(head.pattern)}};
  for (const ViewedMode& mode : head.gates) {
    object["gates"].push_back(
        {{"text", to_text(mode.pattern)}, {"pattern", patterns.index(mode.pattern)}, {"gate", mode.gate}});
  }
  if (head.chosen) {
    object["chosen"] = {{"block", head.chosen->block},
                        {"most", head.chosen->most},
                        {"blocks", as_uint16(head.chosen->blocks)},
                        {"weights", as_float16(head.chosen->weights)}};
  }
  if (head.weights) object["weights"] = to_json(*head.weights);
  object["cost"] = to_json(head.cost);
  return object;
}

json to_json(const ViewedLayer& layer, Patterns& patterns) {
  json object{{"name", visible_text(layer.name)}, {"pseudo", layer.pseudo_heads},
              {"interleaved", layer.interleaved}, {"flat", layer.flat},
              {"heads", json::array()},           {"cost", to_json(layer.cost)}};
  for (const ViewedHead& head : layer.heads) object["heads"].push_back(to_json(head, patterns));
  return object;
}

json to_json(const Viewer& viewer) {
  Patterns patterns(viewer.token_count);
  json layers = json::array();
  for (const ViewedLayer& layer : viewer.layers) layers.push_back(to_json(layer, patterns));
  json object{{"title", visible_text(viewer.title)}, {"count", viewer.token_count}, {"query", viewer.query}};
  for (const std::string& token : viewer.tokens) {
    object["tokens"].push_back(token_text(token));
    if (token.ends_with('\n')) object["lines"].push_back(object["tokens"].size() - 1);
  }
  object["families"] = json::object();
  for (const Family family : all_families()) object["families"][name_of(family)] = colour_name(family);
  object["patterns"] = patterns.to_json();
  object["layers"] = std::move(layers);
  return object;
}

// JSON within an element of HTML that is XML as well.
std::string embedded(const json& object) {
  std::string text;
  for (const char c : object.dump()) {
    if (c == '<' || c == '>' || c == '&') {
      text += fmt::format("\\u{:04x}", c);
    } else {
      text += c;
    }
  }
  return text;
}

void check_head(const Viewer& viewer, const ViewedLayer& layer, const ViewedHead& head) {
  const auto tokens = viewer.token_count;
  const auto name = [&] { return "report: viewer '" + viewer.title + "', " + layer.name + ", " + head.text; };
  if (head.weights) {
    check(head.weights->tokens == tokens && head.weights->pseudo_heads == layer.pseudo_heads, name(),
          ": weights of ", head.weights->tokens, " tokens and ", head.weights->pseudo_heads,
          " pseudo-heads, expected ", tokens, " and ", layer.pseudo_heads);
  }
  if (head.chosen) {
    const auto numbers = static_cast<std::size_t>(tokens * head.chosen->most);
    check(head.chosen->block >= 1 && head.chosen->blocks.size() == numbers &&
              head.chosen->weights.size() == numbers,
          name(), ": ", head.chosen->blocks.size(), " chosen blocks and ", head.chosen->weights.size(),
          " weights, expected ", tokens, " * ", head.chosen->most);
  }
}

void check_sizes(const Viewer& viewer) {
  const auto tokens = static_cast<std::size_t>(viewer.token_count);
  check(viewer.tokens.empty() || viewer.tokens.size() == tokens, "report: viewer '", viewer.title, "' has ",
        viewer.tokens.size(), " tokens, expected ", tokens);
  check(viewer.query >= 0 && viewer.query < std::max<int64_t>(1, viewer.token_count), "report: viewer '",
        viewer.title, "' shows query ", viewer.query, " of ", viewer.token_count, " tokens");
  for (const ViewedLayer& layer : viewer.layers) {
    for (const ViewedHead& head : layer.heads) check_head(viewer, layer, head);
  }
}

}  // namespace

std::string to_html(const Viewer& viewer) {
  check_sizes(viewer);
  std::string html = "<section class=\"viewer\">" + heading(viewer.title);
  if (!viewer.caption.empty()) html += fmt::format(R"(<p class="note">{}</p>)", escape(viewer.caption));
  const bool empty = viewer.token_count == 0 || std::ranges::all_of(viewer.layers, [](const auto& layer) {
                       return layer.heads.empty();
                     });
  if (empty) return html + R"(<p class="note">Nothing to show.</p></section>)";
  html +=
      R"(<div class="stage"><p class="note">This part needs JavaScript, which is in this file.</p></div>)";
  for (std::size_t layer = 0; layer < viewer.layers.size(); ++layer) {
    html += fmt::format(R"(<div class="mixing" data-layer="{}" hidden="hidden">)", layer);
    for (const HeatMap& map : viewer.layers[layer].mixing) html += to_html(map);
    html += "</div>";
  }
  return html + R"(<script type="application/json">)" + embedded(to_json(viewer)) + "</script></section>";
}

}  // namespace iha::report
