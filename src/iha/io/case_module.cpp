// The published layers as cases: `op = module`.
#include <limits>

#include "iha/core/error.h"
#include "iha/io/case_reader.h"
#include "iha/patterns/parse.h"

namespace iha::io {
namespace {

using Shape = CaseReader::Shape;
constexpr int64_t kAny = CaseReader::kAny;

int64_t required_count(CaseReader& reader, const std::string& key) {
  reader.required(key);
  const int64_t count = *reader.integer(key);
  check(count >= 1 && count <= std::numeric_limits<int32_t>::max(), reader.name(), ": ", key, " = ", count,
        ", expected 1 or more");
  return count;
}

void read_averaged_pseudo_heads(CaseReader& reader, ModuleCase& result, int64_t width) {
  result.kind = ModuleKind::kAveragedPseudoHeads;
  result.pseudo_heads = required_count(reader, "pseudo_heads");
  const std::string mode = reader.required("mode");
  check(mode == "encoder" || mode == "decoder", reader.name(), ": mode = '", mode,
        "', expected encoder or decoder");
  result.decoder = mode == "decoder";
  result.bitnet = reader.choice("bitnet", {"false", "true"}) == "true";
  for (const std::string name : {"q_proj.weight", "k_proj.weight", "v_proj.weight", "out_proj.weight"}) {
    result.parameters[name] = reader.input(name, {width, width});
  }
  for (const std::string name : {"q_mix", "k_mix", "v_mix"}) {
    result.parameters[name] = reader.input(name, {result.heads * result.pseudo_heads, result.heads});
  }
}

void read_mixed_modes(CaseReader& reader, ModuleCase& result, int64_t width) {
  result.kind = ModuleKind::kMixedModes;
  const std::string list = reader.required("patterns");
  try {
    result.patterns = parse_patterns(list);
    result.patterns.expand(result.heads);  // for its check of the number of heads
  } catch (const std::invalid_argument& error) {
    fail(reader.name(), ": patterns: ", error.what());
  }
  for (const std::string name : {"W_q", "W_k", "W_v", "W_o"}) {
    result.parameters[name + ".weight"] = reader.input(name + ".weight", {width, width});
    result.parameters[name + ".bias"] = reader.input(name + ".bias", {width});
  }
}

}  // namespace

ModuleCase read_module_case(CaseReader& reader) {
  ModuleCase result;
  result.metadata = reader.metadata();
  const std::string module = reader.required("module");
  const bool averaged = module == "averaged_pseudo_heads";
  check(averaged || module == "mixed_modes", reader.name(), ": module = '", module,
        "', expected averaged_pseudo_heads or mixed_modes");
  result.heads = required_count(reader, "heads");
  const Shape shape = (result.inputs["x"] = reader.input("x", {kAny, kAny, kAny})).shape;
  const int64_t width = shape[2];
  check(width % result.heads == 0, reader.name(), ": x is ", width, " wide, expected a multiple of ",
        result.heads, " heads");
  if (averaged) {
    read_averaged_pseudo_heads(reader, result, width);
  } else {
    read_mixed_modes(reader, result, width);
  }

  const auto expect = [&](const std::string& name, const Shape& expected_shape) {
    if (!reader.has("expected." + name)) return;
    result.expected[name] = reader.float64("expected." + name, expected_shape);
  };
  expect("out", shape);
  if (reader.has("grad_out")) {
    result.inputs["grad_out"] = reader.input("grad_out", shape);
    expect("grad_x", shape);
    for (const auto& [name, parameter] : result.parameters) expect("grad_" + name, parameter.shape);
  }
  result.dtype = reader.dtype();
  return result;
}

}  // namespace iha::io
