// Between torch's dtypes and those of safetensors: see tensor_file.h.
#include "iha/nn/tensor_file.h"

#include <array>
#include <cstring>

namespace iha::nn {

namespace {

struct TypePair {
  io::TensorType file;
  at::ScalarType torch;
};

constexpr std::array kTypes{
    TypePair{io::TensorType::kBool, at::kBool}, TypePair{io::TensorType::kU8, at::kByte},
    TypePair{io::TensorType::kI8, at::kChar},   TypePair{io::TensorType::kI16, at::kShort},
    TypePair{io::TensorType::kI32, at::kInt},   TypePair{io::TensorType::kI64, at::kLong},
    TypePair{io::TensorType::kF16, at::kHalf},  TypePair{io::TensorType::kBF16, at::kBFloat16},
    TypePair{io::TensorType::kF32, at::kFloat}, TypePair{io::TensorType::kF64, at::kDouble},
};

io::TensorType file_type(at::ScalarType type, const std::string& name) {
  for (const TypePair& pair : kTypes) {
    if (pair.torch == type) return pair.file;
  }
  TORCH_CHECK_VALUE(false, "iha: tensor ", name, " is of dtype ", type,
                    ", which safetensors files do not hold");
}

}  // namespace

void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors,
                  const io::Metadata& metadata) {
  std::vector<torch::Tensor> copies;  // keep the bytes alive until they are written
  std::vector<io::TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor& bytes = copies.emplace_back(tensor.detach().to(at::kCPU).contiguous());
    entries.push_back({name,
                       file_type(bytes.scalar_type(), name),
                       bytes.sizes().vec(),
                       {static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()}});
  }
  io::save_safetensors(path, entries, metadata);
}

torch::Tensor to_tensor(const io::TensorView& view, std::string_view name) {
  for (const TypePair& pair : kTypes) {
    if (pair.file != view.type) continue;
    torch::Tensor tensor = torch::empty(view.shape, pair.torch);
    if (!view.bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), view.bytes.data(), view.bytes.size());
    return tensor;
  }
  TORCH_CHECK_VALUE(false, "iha: tensor ", name, " is of type ", io::name_of(view.type),
                    ", which has no dtype here");
}

}  // namespace iha::nn
