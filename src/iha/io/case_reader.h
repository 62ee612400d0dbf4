// Taking a case file apart: every key and tensor is asked for by name, with its type and shape, and what
// nobody asked for is an error. Private to io/.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "iha/io/case_file.h"
#include "iha/io/safetensors.h"

namespace iha::io {

class CaseReader {
 public:
  static constexpr int64_t kAny = -1;  // a size that the tensor itself decides
  using Shape = std::vector<int64_t>;

  CaseReader(const SafeTensors& file, std::string_view name) : file_(file), name_(name) {}

  // What errors open with.
  const std::string& name() const { return name_; }
  const Metadata& metadata() const { return file_.metadata(); }

  std::optional<std::string> value(const std::string& key);
  // The value of `key`, one of `choices`; the first where it is absent.
  std::string choice(const std::string& key, std::initializer_list<std::string_view> choices);
  std::string required(const std::string& key);
  std::optional<int64_t> integer(const std::string& key);
  std::optional<double> number(const std::string& key);  // finite

  bool has(std::string_view tensor) const { return file_.contains(tensor); }
  // A floating input: all are F32 or all are BF16.
  DoubleArray input(const std::string& tensor, const Shape& shape);
  DoubleArray float64(const std::string& tensor, const Shape& shape);
  std::vector<int64_t> int64(const std::string& tensor, const Shape& shape);
  DType dtype() const { return dtype_ == TensorType::kBF16 ? DType::kBFloat16 : DType::kFloat32; }

  // Throws where a key or a tensor is left that was not asked for.
  void finish() const;

 private:
  const TensorView& take(const std::string& tensor, const Shape& shape);

  const SafeTensors& file_;
  std::string name_;
  std::set<std::string, std::less<>> keys_, tensors_;
  std::optional<TensorType> dtype_;
};

AttentionCase read_attention_case(CaseReader& reader);
ModuleCase read_module_case(CaseReader& reader);

}  // namespace iha::io
