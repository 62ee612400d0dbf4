// All BitLinear maps of a trained module in their baked form (bit_linear.h): for inference elsewhere, as
// layers or as one file. Not here: baking a module in place; what is exported runs as TernaryLinear.
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "iha/nn/bit_linear.h"

namespace iha::nn {

// Every BitLinear of `module`, baked, under its name in the module ("block0.attention.q_proj"; "" for the
// module itself), in the order of named_modules. Each gives, bit for bit, what the BitLinear gives.
std::vector<std::pair<std::string, TernaryLinear>> bake_all(const torch::nn::Module& module);

// Writes the whole module as one safetensors file, atomically: of every BitLinear NAME `NAME.ternary` (I8
// [out, in]: -1, 0, 1), `NAME.scale` ([1]) and, where it has one, `NAME.bias`; every other parameter and
// buffer as it is. The weight of the formulas is ternary * scale. Throws what save_tensors throws.
void export_ternary(const torch::nn::Module& module, const std::filesystem::path& path);

}  // namespace iha::nn
