// The safetensors format (https://github.com/huggingface/safetensors): 8 bytes of header length, a JSON
// header, the tensors' bytes. Reading trusts nothing in the file; writing is deterministic. Not here: what
// tensors mean (case_file.h, checkpoints), torch tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace iha::io {

// Every element type of the format. The 4- and 6-bit types are packed; their tensors fill whole bytes.
enum class TensorType : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

std::string_view name_of(TensorType type);  // as in the header: "F32", "BF16", "F8_E4M3", ...
int64_t bits_of(TensorType type);           // of one element

using Metadata = std::map<std::string, std::string>;

// One tensor of a file: row-major, little-endian. `bytes` belongs to the SafeTensors it came from and need
// not be aligned (files of other writers), so read through load_elements or memcpy.
struct TensorView {
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;  // [] is a scalar
  std::span<const std::byte> bytes;

  int64_t count() const;  // elements
};

// The elements as doubles. Takes F64, F32, F16, BF16, BOOL and integers (I64 and U64 beyond 2^53 are refused,
// not rounded). Throws std::invalid_argument for other types.
std::vector<double> to_doubles(const TensorView& tensor);
// The elements of an integer or BOOL tensor. Throws std::invalid_argument for other types and for U64 beyond
// 2^63 - 1.
std::vector<int64_t> to_int64s(const TensorView& tensor);

// A parsed file. Moving is cheap and keeps views valid; views end with the last SafeTensors that holds the
// bytes.
class SafeTensors {
 public:
  // Maps the file into memory: pages are read when they are looked at. The file must not be shortened in
  // place while it is open (replacing it by rename, as AtomicFile does, is fine). Throws std::system_error
  // where the file cannot be opened and std::invalid_argument, naming the file and the fault, where it is not
  // a whole safetensors file.
  static SafeTensors open(const std::filesystem::path& path);
  // The same from bytes in memory. `name` is what errors call them.
  static SafeTensors parse(std::vector<std::byte> bytes, std::string_view name = "safetensors");

  const Metadata& metadata() const { return metadata_; }
  // By name, in order of names.
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  bool contains(std::string_view name) const { return tensors_.contains(name); }
  // Throws std::invalid_argument naming the file and the tensor where it has none of this name.
  const TensorView& at(std::string_view name) const;

 private:
  SafeTensors(std::shared_ptr<const void> owner, std::span<const std::byte> file, std::string name);

  std::shared_ptr<const void> owner_;  // the mapping or the vector that the views point into
  std::string name_;
  Metadata metadata_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

// One tensor to write; `bytes` are contiguous and row-major.
struct TensorEntry {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// The whole file. Tensors lie by falling element size, then by name, and the header is padded to 8 bytes, so
// that every tensor is aligned to its element; the same input gives the same bytes. Throws
// std::invalid_argument for equal names, the name `__metadata__`, text that is not UTF-8, and bytes that do
// not fit the shape.
std::vector<std::byte> serialize(std::span<const TensorEntry> tensors, const Metadata& metadata = {});
// The same into a file, atomically (see atomic_file.h), without a second copy of the tensors in memory.
void save_safetensors(const std::filesystem::path& path, std::span<const TensorEntry> tensors,
                      const Metadata& metadata = {});

}  // namespace iha::io
