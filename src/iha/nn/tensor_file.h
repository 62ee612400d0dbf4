// torch tensors in safetensors files. Not here: what the tensors are of (ternary_export.h, checkpoints).
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "iha/io/safetensors.h"

namespace iha::nn {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// Writes the tensors atomically, as contiguous copies: strides, views and devices do not reach the file.
// Throws c10::ValueError for a dtype that the format lacks and what io::save_safetensors throws.
void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors,
                  const io::Metadata& metadata = {});

// A copy of one tensor of a file, on the CPU. Throws c10::ValueError for element types that torch lacks.
torch::Tensor to_tensor(const io::TensorView& view, std::string_view name);

}  // namespace iha::nn
