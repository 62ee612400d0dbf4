#include "iha/io/case_file.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "iha/core/error.h"
#include "iha/io/case_reader.h"
#include "iha/patterns/parse.h"

namespace iha::io {
namespace {

using Shape = CaseReader::Shape;
constexpr int64_t kAny = CaseReader::kAny;
// Tensors without elements take no bytes, so a small file may name any size. Sequences, heads and
// pseudo-heads get memory of their own all the same, hence a bound for them.
constexpr int64_t kMostRows = int64_t{1} << 20;
// Results have rows for these, also where a channel count of 0 leaves the file without bytes for them.
constexpr double kMostPseudoTokens = 1 << 28;

// Runs `read`, whose errors do not know the file yet.
template <class Read>
auto named(const std::string& name, std::string_view what, const Read& read) {
  try {
    return read();
  } catch (const std::invalid_argument& error) {
    fail(name, ": ", what, ": ", error.what());
  }
}

PatternList patterns_of(const std::string& name, const std::string& list, int64_t heads) {
  return named(name, "patterns", [&] {
    PatternList patterns = parse_patterns(list);
    patterns.expand(heads);  // for its check of the number of heads
    return patterns;
  });
}

void read_sizes(CaseReader& reader, AttentionCase& result) {
  Problem& problem = result.problem;
  const DoubleArray& query = result.inputs["q"] = reader.input("q", {kAny, kAny, kAny, kAny});
  problem.batch = query.shape[0];
  problem.query_heads = query.shape[1];
  problem.queries = query.shape[2];
  problem.head_dim = query.shape[3];
  const DoubleArray& key = result.inputs["k"] =
      reader.input("k", {problem.batch, kAny, kAny, problem.head_dim});
  problem.key_heads = key.shape[1];
  problem.keys = key.shape[2];
  const DoubleArray& value = result.inputs["v"] =
      reader.input("v", {problem.batch, problem.key_heads, problem.keys, kAny});
  problem.value_dim = value.shape[3];
  for (const int64_t rows : {problem.batch, problem.query_heads, problem.key_heads}) {
    check(rows <= kMostRows, reader.name(), ": ", rows, " sequences or heads, expected at most ", kMostRows);
  }
}

void read_mixing(CaseReader& reader, AttentionCase& result) {
  Problem& problem = result.problem;
  int64_t pseudo_heads = kAny;
  for (const std::string name : {"alpha_q", "alpha_k", "alpha_v"}) {
    if (!reader.has(name)) continue;
    const int64_t heads = name == "alpha_q" ? problem.query_heads : problem.key_heads;
    const DoubleArray& alpha = result.inputs[name] = reader.input(name, {heads, heads, pseudo_heads});
    pseudo_heads = alpha.shape[2];
  }
  problem.pseudo_heads = pseudo_heads == kAny ? 1 : pseudo_heads;
  check(problem.pseudo_heads <= kMostRows, reader.name(), ": ", problem.pseudo_heads,
        " pseudo-heads, expected at most ", kMostRows);
  // A product that fits a double: the factors are bounded, or have bytes in the file.
  const auto heads = static_cast<double>(problem.batch * problem.query_heads);
  const auto tokens = static_cast<double>(std::max(problem.queries, problem.keys));
  const double rows = heads * tokens * static_cast<double>(problem.pseudo_heads);
  check(std::max(rows, tokens) <= kMostPseudoTokens, reader.name(), ": ", rows, " pseudo-tokens of ", heads,
        " heads, expected at most ", kMostPseudoTokens);

  const std::string kind = reader.choice("collapse", {"mean", "per_head", "global"});
  if (kind == "mean") return;  // a tensor `collapse` then is one too many, which finish() says
  problem.collapse = kind == "global" ? CollapseKind::kGlobal : CollapseKind::kPerHead;
  Shape shape{problem.query_heads, problem.pseudo_heads};
  if (kind == "global") shape.insert(shape.begin(), problem.query_heads);
  result.inputs["collapse"] = reader.input("collapse", shape);
}

void read_rope(CaseReader& reader, Rope& rope) {
  const std::string kind = reader.choice("rope", {"none", "token", "virtual"});
  rope.kind = kind == "none" ? RopeKind::kNone : kind == "token" ? RopeKind::kToken : RopeKind::kVirtual;
  const std::string style = reader.choice("rope_style", {"half", "adjacent"});
  rope.style = style == "half" ? RopeStyle::kHalf : RopeStyle::kAdjacent;
  const bool frequencies = reader.has("rope_freqs");
  check(!frequencies || rope.kind != RopeKind::kNone, reader.name(),
        ": rope_freqs with rope = none, expected rope = token or virtual");
  if (frequencies) {
    rope.frequencies = reader.float64("rope_freqs", {kAny}).values;
    check(!rope.frequencies.empty(), reader.name(), ": rope_freqs has no element, expected one or more");
    reader.value("rope_theta");  // allowed, not read
  } else {
    rope.theta = reader.number("rope_theta").value_or(rope.theta);
  }
}

void read_positions(CaseReader& reader, AttentionCase& result) {
  Problem& problem = result.problem;
  if (reader.has("key_lengths")) problem.key_lengths = reader.int64("key_lengths", {problem.batch});
  if (reader.has("documents")) problem.documents = reader.int64("documents", {problem.batch, problem.keys});
  const std::optional<int64_t> offset = reader.integer("query_offset");
  const bool tensor = reader.has("query_offset");
  check(!offset || !tensor, reader.name(),
        ": query_offset as metadata and as a tensor, expected one of them");
  result.query_offset_given = offset || tensor;
  const bool has_default = problem.key_lengths.empty() || problem.queries == problem.keys;
  check(result.query_offset_given || has_default, reader.name(),
        ": no query_offset, expected one with key_lengths and ", problem.queries, " queries for ",
        problem.keys, " keys");
  if (tensor) {
    problem.query_offset = reader.int64("query_offset", {problem.batch});
  } else {
    problem.query_offset.assign(problem.batch, offset.value_or(problem.keys - problem.queries));
  }
}

void read_expectations(CaseReader& reader, AttentionCase& result) {
  const Problem& p = result.problem;
  const Shape out{p.batch, p.query_heads, p.queries, p.value_dim};
  const Shape rows{p.batch, p.query_heads, p.queries, p.pseudo_heads};
  const bool upstream = reader.has("grad_out");
  if (upstream) result.inputs["grad_out"] = reader.input("grad_out", out);
  if (upstream && reader.has("grad_lse")) result.inputs["grad_lse"] = reader.input("grad_lse", rows);

  const auto expect = [&](const std::string& name, const Shape& shape) {
    if (reader.has("expected." + name)) result.expected[name] = reader.float64("expected." + name, shape);
  };
  Shape parts = rows;
  parts.push_back(p.value_dim);
  expect("out", out);
  expect("lse", rows);
  expect("parts", parts);
  if (!upstream) return;
  for (const std::string name : {"q", "k", "v", "alpha_q", "alpha_k", "alpha_v", "collapse", "sinks",
                                 "mode_weights", "block_weights"}) {
    if (const auto found = result.inputs.find(name); found != result.inputs.end()) {
      expect("grad_" + name, found->second.shape);
    }
  }
}

}  // namespace

AttentionCase read_attention_case(CaseReader& reader) {
  AttentionCase result;
  result.metadata = reader.metadata();
  Problem& problem = result.problem;
  read_sizes(reader, result);
  read_mixing(reader, result);
  if (reader.has("sinks")) result.inputs["sinks"] = reader.input("sinks", {problem.query_heads});
  const std::string list = reader.value("patterns").value_or("global");
  problem.patterns = patterns_of(reader.name(), list, problem.query_heads).expand(problem.query_heads);
  if (problem.modes() > 0) {
    result.inputs["mode_weights"] = reader.input("mode_weights", {problem.query_heads, problem.modes()});
  }
  if (problem.block() > 0) {
    const Shape shape{problem.batch, problem.query_heads, problem.queries, problem.key_blocks()};
    result.inputs["block_weights"] = reader.input("block_weights", shape);
  }
  problem.layout = reader.choice("layout", {"interleaved", "parallel"}) == "parallel" ? Layout::kParallel
                                                                                      : Layout::kInterleaved;
  problem.order = reader.choice("order", {"flat", "token"}) == "token" ? Order::kToken : Order::kFlat;
  read_rope(reader, problem.rope);
  const double default_scale =
      problem.head_dim > 0 ? 1 / std::sqrt(static_cast<double>(problem.head_dim)) : 1;
  problem.scale = reader.number("scale").value_or(default_scale);
  read_positions(reader, result);
  read_expectations(reader, result);
  result.dtype = reader.dtype();
  check(problem, reader.name());
  return result;
}

Case read_case(const std::filesystem::path& path) {
  return read_case(SafeTensors::open(path), path.string());
}

Case read_case(const SafeTensors& file, std::string_view name) {
  CaseReader reader(file, name);
  const std::string format = reader.required("format");
  check(format == "iha-case-1", name, ": format = '", format, "', expected iha-case-1");
  const std::string op = reader.required("op");
  check(op == "attention" || op == "module", name, ": op = '", op, "', expected attention or module");
  Case result = op == "attention" ? Case(read_attention_case(reader)) : Case(read_module_case(reader));
  reader.finish();
  return result;
}

const double* data_of(const Arrays& arrays, std::string_view name) {
  const auto found = arrays.find(name);
  return found == arrays.end() ? nullptr : found->second.values.data();
}

void save_arrays(const std::filesystem::path& path, const Arrays& arrays, const Metadata& metadata) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, array] : arrays) {
    entries.push_back({name, TensorType::kF64, array.shape, std::as_bytes(std::span(array.values))});
  }
  save_safetensors(path, entries, metadata);
}

}  // namespace iha::io
