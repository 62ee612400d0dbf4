// Case files (format `iha-case-1`): one call of the operator, or of a whole layer, with its right answer, in
// one safetensors file. Reading checks all names, values and shapes; comparing follows the format's rule of
// when a result is off. Not here: computing a case (the oracle, the operator, `iha run`).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "iha/core/dtype.h"
#include "iha/io/safetensors.h"
#include "iha/kernels/problem.h"
#include "iha/patterns/pattern.h"

namespace iha::io {

struct DoubleArray {
  std::vector<int64_t> shape;
  std::vector<double> values;  // row-major
};
using Arrays = std::map<std::string, DoubleArray, std::less<>>;

// The values of array `name`, or null where there is none: what reference::Inputs wants.
const double* data_of(const Arrays& arrays, std::string_view name);

// `op = attention`. Integer tensors (key_lengths, documents, query_offset) and rope_freqs are in `problem`.
struct AttentionCase {
  Metadata metadata;                // as in the file: what is absent here was left to its default
  bool query_offset_given = false;  // by metadata or tensor; otherwise problem holds the default
  Problem problem;                  // resolved, checked
  DType dtype = DType::kFloat32;    // of the floating inputs: kFloat32 or kBFloat16
  // q k v alpha_q alpha_k alpha_v collapse sinks mode_weights block_weights grad_out grad_lse
  Arrays inputs;
  Arrays expected;  // out lse parts grad_q ...: without the prefix `expected.`; may be empty
};

enum class ModuleKind : uint8_t { kAveragedPseudoHeads, kMixedModes };

// `op = module`.
struct ModuleCase {
  Metadata metadata;
  ModuleKind kind = ModuleKind::kMixedModes;
  int64_t heads = 0;
  int64_t pseudo_heads = 1;  // averaged pseudo-heads
  bool decoder = false;      // averaged pseudo-heads: mode = decoder
  bool bitnet = false;       // averaged pseudo-heads
  PatternList patterns;      // mixed modes
  DType dtype = DType::kFloat32;
  Arrays inputs;      // x and, where the file has it, grad_out
  Arrays parameters;  // q_proj.weight, ... or W_q.weight, W_q.bias, ...
  Arrays expected;    // out grad_x grad_<parameter>
};

using Case = std::variant<AttentionCase, ModuleCase>;

// Throws std::invalid_argument naming the file, what was found and what was expected: unknown keys, values
// and tensors, missing ones, wrong types and shapes, and whatever check(Problem) refuses.
Case read_case(const std::filesystem::path& path);
Case read_case(const SafeTensors& file, std::string_view name);

// Writes results as F64 tensors.
void save_arrays(const std::filesystem::path& path, const Arrays& arrays, const Metadata& metadata = {});

// How far one tensor is from its expectation.
struct Comparison {
  std::string name;
  bool pass = false;
  double error = 0;  // largest |actual - expected| / allowed; above 1 is off; inf where NaN or inf is wrong
  double absolute_error = 0;  // largest |actual - expected| over finite values
  std::string fault;          // in words, empty where it passes: "lse[0, 1, 3]: -2.1, expected -inf"
};

// One entry a tensor of `expected`, in order of names. With M the largest finite |expected| of the tensor, a
// value is off
//   inputs F32:   out, lse, parts beyond 2e-5 + 2e-4 |expected|, gradients (grad_*) beyond 2e-5 M + 2e-4
//   |expected|; inputs BF16:  beyond 2e-2 M;
// infinities must meet, NaN is off, and so is a tensor that is missing or of another shape. For a gradient
// with M < 1e-10, M is the largest of all expected gradients; where everything is zero, 2e-5 is allowed.
std::vector<Comparison> compare(const Arrays& expected, const Arrays& actual, DType dtype);

}  // namespace iha::io
