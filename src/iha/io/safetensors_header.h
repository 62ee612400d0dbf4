// The JSON header of a safetensors file: parsing with every check, and writing. Private to io/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "iha/io/safetensors.h"

namespace iha::io {

// As the reference implementation has it: no header longer than this is looked at.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct HeaderTensor {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the end of the header
};

struct Header {
  Metadata metadata;
  std::vector<HeaderTensor> tensors;  // in order of their bytes
};

// Bytes that a tensor of this type and shape takes. Throws std::invalid_argument, opening with `what`, for
// negative sizes, where the product of the sizes other than 0 leaves 63 bits, and where packed elements leave
// a part of a byte.
uint64_t bytes_of(TensorType type, const std::vector<int64_t>& shape, std::string_view what);

// Throws std::invalid_argument, opening with `file`, unless `json` is one object of the format's form whose
// tensors fill `data_bytes` without gap or overlap, each as its type and shape ask.
Header parse_header(std::string_view json, uint64_t data_bytes, std::string_view file);

// Throws std::invalid_argument for text that is not UTF-8.
std::string write_header(const Header& header);

}  // namespace iha::io
