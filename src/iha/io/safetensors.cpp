#include "iha/io/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <numeric>
#include <system_error>
#include <utility>

#include "iha/core/dtype.h"
#include "iha/core/error.h"
#include "iha/io/atomic_file.h"
#include "iha/io/safetensors_header.h"
#include "iha/io/utf8.h"

namespace iha::io {
namespace {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian and their bytes are used in place");

constexpr std::size_t kLengthBytes = 8;
// Header and tensors begin at multiples of it: the largest element.
constexpr std::size_t kAlignment = 8;

// The whole file, mapped. Not for files of 0 bytes, which cannot be.
std::pair<std::shared_ptr<const void>, std::span<const std::byte>> map_file(
    const std::filesystem::path& path) {
  const auto fail_errno = [&path](int error) {
    throw std::system_error(error, std::generic_category(), "cannot open " + path.string());
  };
  // Without O_NONBLOCK opening a pipe that nobody writes would wait for ever.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail_errno(errno);
  struct stat status {};
  const bool known = fstat(descriptor, &status) == 0;
  const bool regular = known && S_ISREG(status.st_mode);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* memory = regular && size > 0 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0) : nullptr;
  const int error = errno;
  ::close(descriptor);
  if (memory == MAP_FAILED) fail_errno(error);
  check(regular, path.string(), ": not a regular file");
  check(size > 0, path.string(), ": 0 bytes, expected at least ", kLengthBytes);
  std::shared_ptr<const void> owner(memory,
                                    [size](const void* start) { munmap(const_cast<void*>(start), size); });
  return {std::move(owner), {static_cast<const std::byte*>(memory), size}};
}

template <class T>
T read_unaligned(std::span<const std::byte> bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

// Calls `visit` with one default element of the C++ type of an integer or BOOL tensor; false for the other
// types.
template <class Visit>
bool visit_integer(TensorType type, const Visit& visit) {
  switch (type) {
    case TensorType::kBool:
    case TensorType::kU8:
      visit(uint8_t{});
      return true;
    case TensorType::kI8:
      visit(int8_t{});
      return true;
    case TensorType::kI16:
      visit(int16_t{});
      return true;
    case TensorType::kU16:
      visit(uint16_t{});
      return true;
    case TensorType::kI32:
      visit(int32_t{});
      return true;
    case TensorType::kU32:
      visit(uint32_t{});
      return true;
    case TensorType::kI64:
      visit(int64_t{});
      return true;
    case TensorType::kU64:
      visit(uint64_t{});
      return true;
    default:
      return false;
  }
}

template <class Element, class Widen>
std::vector<double> widen_all(const TensorView& tensor, const Widen& widen) {
  std::vector<double> values(static_cast<std::size_t>(tensor.count()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = widen(read_unaligned<Element>(tensor.bytes, static_cast<int64_t>(i)));
  }
  return values;
}

// The tensors in the order of their bytes, with offsets.
Header lay_out(std::span<const TensorEntry> tensors, const Metadata& metadata,
               std::vector<std::size_t>& order) {
  order.resize(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) {
    return std::pair(-bits_of(tensors[i].type), std::string_view(tensors[i].name));
  });
  Header header{metadata, {}};
  uint64_t end = 0;
  for (const std::size_t i : order) {
    const TensorEntry& tensor = tensors[i];
    const std::string what = text("safetensors: tensor '", tensor.name, "'");
    check(tensor.name != "__metadata__", what, " has the name kept for metadata");
    check(is_utf8(tensor.name), what, " has a name that is not UTF-8");
    const uint64_t needed = bytes_of(tensor.type, tensor.shape, what);
    check(tensor.bytes.size() == needed, what, " has ", tensor.bytes.size(), " bytes, expected ", needed,
          " for its type and shape");
    header.tensors.push_back({tensor.name, tensor.type, tensor.shape, end, end + needed});
    end += needed;
  }
  std::vector<std::string_view> names;
  for (const TensorEntry& tensor : tensors) names.push_back(tensor.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  check(twice == names.end(), "safetensors: two tensors are named '", twice == names.end() ? "" : *twice,
        "'");
  return header;
}

// Length and header, padded with blanks.
std::string front_of(const Header& header) {
  std::string json = write_header(header);
  json.resize((json.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  check(json.size() <= kMaxHeaderBytes, "safetensors: a header of ", json.size(), " bytes, expected at most ",
        kMaxHeaderBytes);
  const uint64_t length = json.size();
  std::string front(kLengthBytes, '\0');
  std::memcpy(front.data(), &length, kLengthBytes);
  return front + json;
}

}  // namespace

int64_t TensorView::count() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::vector<double> to_doubles(const TensorView& tensor) {
  switch (tensor.type) {
    case TensorType::kF64:
      return widen_all<double>(tensor, [](double value) { return value; });
    case TensorType::kF32:
      return widen_all<float>(tensor, [](float value) { return value; });
    case TensorType::kF16:
      return widen_all<uint16_t>(tensor, float16_to_float);
    case TensorType::kBF16:
      return widen_all<uint16_t>(tensor, bfloat16_to_float);
    default:
      break;
  }
  std::vector<double> values;
  const bool integer = visit_integer(tensor.type, [&](auto element) {
    values = widen_all<decltype(element)>(tensor, [](decltype(element) value) {
      if constexpr (sizeof(value) == 8) {
        const bool exact = std::cmp_less_equal(value, int64_t{1} << 53) &&
                           std::cmp_greater_equal(value, -(int64_t{1} << 53));
        check(exact, "safetensors: ", value, " does not fit a double, expected at most 2^53");
      }
      return static_cast<double>(value);
    });
  });
  check(integer, "safetensors: type ", name_of(tensor.type), ", expected one that doubles can hold");
  return values;
}

std::vector<int64_t> to_int64s(const TensorView& tensor) {
  std::vector<int64_t> values(static_cast<std::size_t>(tensor.count()));
  const bool integer = visit_integer(tensor.type, [&](auto element) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto value = read_unaligned<decltype(element)>(tensor.bytes, static_cast<int64_t>(i));
      check(std::in_range<int64_t>(value), "safetensors: ", value, ", expected less than 2^63");
      values[i] = static_cast<int64_t>(value);
    }
  });
  check(integer, "safetensors: type ", name_of(tensor.type), ", expected an integer type");
  return values;
}

SafeTensors::SafeTensors(std::shared_ptr<const void> owner, std::span<const std::byte> file, std::string name)
    : owner_(std::move(owner)), name_(std::move(name)) {
  check(file.size() >= kLengthBytes, name_, ": ", file.size(), " bytes, expected at least ", kLengthBytes);
  const auto length = read_unaligned<uint64_t>(file, 0);
  const uint64_t rest = file.size() - kLengthBytes;
  check(length <= std::min(rest, kMaxHeaderBytes), name_, ": a header of ", length,
        " bytes, expected at most ", std::min(rest, kMaxHeaderBytes));
  const std::string_view json(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  const std::span<const std::byte> data = file.subspan(kLengthBytes + length);
  Header header = parse_header(json, data.size(), name_);
  metadata_ = std::move(header.metadata);
  for (HeaderTensor& tensor : header.tensors) {
    const auto bytes = data.subspan(tensor.begin, tensor.end - tensor.begin);
    tensors_.emplace(std::move(tensor.name), TensorView{tensor.type, std::move(tensor.shape), bytes});
  }
}

SafeTensors SafeTensors::open(const std::filesystem::path& path) {
  auto [owner, bytes] = map_file(path);
  return {std::move(owner), bytes, path.string()};
}

SafeTensors SafeTensors::parse(std::vector<std::byte> bytes, std::string_view name) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  const std::span<const std::byte> file(*owner);
  return {std::move(owner), file, std::string(name)};
}

const TensorView& SafeTensors::at(std::string_view name) const {
  const auto found = tensors_.find(name);
  check(found != tensors_.end(), name_, ": no tensor '", name, "'");
  return found->second;
}

std::vector<std::byte> serialize(std::span<const TensorEntry> tensors, const Metadata& metadata) {
  std::vector<std::size_t> order;
  const std::string front = front_of(lay_out(tensors, metadata, order));
  const auto front_bytes = std::as_bytes(std::span(front));
  std::vector<std::byte> file(front_bytes.begin(), front_bytes.end());
  for (const std::size_t i : order) file.insert(file.end(), tensors[i].bytes.begin(), tensors[i].bytes.end());
  return file;
}

void save_safetensors(const std::filesystem::path& path, std::span<const TensorEntry> tensors,
                      const Metadata& metadata) {
  std::vector<std::size_t> order;
  const std::string front = front_of(lay_out(tensors, metadata, order));
  AtomicFile file(path);
  file.write(front);
  for (const std::size_t i : order) file.write(tensors[i].bytes);
  file.commit();
}

}  // namespace iha::io
