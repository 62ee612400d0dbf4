// Products of pairs of bfloat16: every shape against plain loops, and those of AMX tiles against the sums
// that Intel's manual gives for TDPBF16PS.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "iha/core/error.h"
#include "iha/core/philox.h"
#include "iha/kernels/cpu/primitives.h"
#include "tests/kernels/cpu_isas.h"
#include "tests/kernels/trapped_tiles.h"

namespace iha::cpu {
namespace {

Cell cell(uint16_t low, uint16_t high) {
  return low | static_cast<Cell>(high) << 16;
}
float low(Cell cell) {
  return bfloat16_to_float(static_cast<uint16_t>(cell));
}
float high(Cell cell) {
  return bfloat16_to_float(static_cast<uint16_t>(cell >> 16));
}

// Memory of which nothing can be read or written past the last element: that is a fault.
template <class T>
class Fenced {
 public:
  Fenced(int64_t count, T value) {
    const int64_t page = sysconf(_SC_PAGESIZE), bytes = count * static_cast<int64_t>(sizeof(T));
    const int64_t size = (bytes + page - 1) / page * page;
    void* memory = mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = std::shared_ptr<void>(memory, [=](void* begin) { munmap(begin, size + page); });
    if (mprotect(static_cast<char*>(memory) + size, page, PROT_NONE) != 0) throw std::bad_alloc();
    data_ = reinterpret_cast<T*>(static_cast<char*>(memory) + size - bytes);
    std::fill_n(data_, count, value);
  }
  T* data() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  std::shared_ptr<void> memory_;
  T* data_;
};

// c [rows, columns] += a [rows, depth] b [depth, columns], and how they lie in memory: a by rows, or turned
// by columns; b in panels of 32 columns. What lies between is NaN, and nothing follows.
struct Pairs {
  Pairs(int64_t rows, int64_t columns, int64_t depth, bool turned, uint64_t seed,
        float (*draw)(PhiloxStream&))
      : rows(rows),
        columns(columns),
        depth(depth),
        turned(turned),
        a(rows * depth == 0 ? 0 : (rows - 1) * a_row() + (depth - 1) * a_depth() + 1, kNaN),
        b(depth == 0 ? 0 : b_at(depth - 1, columns - 1) + 1, kNaN),
        c(rows * c_row()) {
    PhiloxStream random(seed);
    const auto next = [&] {
      const uint16_t first = float_to_bfloat16(draw(random));
      return cell(first, float_to_bfloat16(draw(random)));
    };
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < depth; ++k) a[i * a_row() + k * a_depth()] = next();
    }
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t j = 0; j < columns; ++j) b[b_at(k, j)] = next();
    }
    for (float& value : c) value = draw(random);
  }
  int64_t a_row() const { return turned ? 1 : depth + 3; }
  int64_t a_depth() const { return turned ? rows + 5 : 1; }
  int64_t b_panel() const { return depth * kPanel; }
  int64_t c_row() const { return columns + 4; }
  Cell left(int64_t i, int64_t k) const { return a[i * a_row() + k * a_depth()]; }
  int64_t b_at(int64_t k, int64_t j) const { return j / kPanel * b_panel() + k * kPanel + j % kPanel; }
  Cell right(int64_t k, int64_t j) const { return b[b_at(k, j)]; }

  // Rows [first, first + count) and cells [begin, end) of depth.
  void multiply(const Primitives& prim, int64_t first, int64_t count, int64_t begin, int64_t end,
                bool accumulate, float* target) const {
    const TaskGuard guard(prim);
    prim.multiply({.rows = count,
                   .columns = columns,
                   .depth = end - begin,
                   .a = a.data() + first * a_row() + begin * a_depth(),
                   .a_row = a_row(),
                   .a_depth = a_depth(),
                   .b = b.data() + begin * kPanel,
                   .b_depth = kPanel,
                   .b_panel = b_panel(),
                   .c = target + first * c_row(),
                   .c_row = c_row(),
                   .accumulate = accumulate});
  }
  std::vector<float> product(const Primitives& prim, bool accumulate) const {
    const Fenced<float> target(rows * c_row(), 0.0f);
    std::copy(c.begin(), c.end(), target.data());
    multiply(prim, 0, rows, 0, depth, accumulate, target.data());
    return {target.data(), target.data() + rows * c_row()};
  }
  std::string what(Isa isa) const {
    return text(name_of(isa), " ", rows, " x ", columns, " x ", depth, turned ? " turned" : "");
  }

  int64_t rows, columns, depth;
  bool turned;
  static constexpr Cell kNaN = 0x7fc07fc0u;
  Fenced<Cell> a, b;
  std::vector<float> c;
};

bool same_bits(const std::vector<float>& left, const std::vector<float>& right) {
  return left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0;
}

float small_integer(PhiloxStream& random) {
  return static_cast<float>(random.next_below(17) - 8);
}
float normal(PhiloxStream& random) {
  return static_cast<float>(random.next_normal());
}
// Half of all products and sums are denormal.
float tiny(PhiloxStream& random) {
  return static_cast<float>(std::ldexp(random.next_normal(), static_cast<int>(-60 - random.next_below(8))));
}

std::vector<Isa> with_pairs() {
  std::vector<Isa> isas;
  for (const Isa isa : tested_isas(DType::kBFloat16)) {
    if (primitives(isa, DType::kBFloat16).pairs) isas.push_back(isa);
  }
  return isas;
}
std::vector<Isa> with_tiles() {
  std::vector<Isa> isas;
  for (const Isa isa : with_pairs()) {
    if (isa == Isa::kAmxBf16 || isa == Isa::kEmulatedAmx) isas.push_back(isa);
  }
  return isas;
}

// Around tiles of 16, groups of 8 and 32 rows, steps of 16 cells and copies of 64.
template <class Body>
void for_every_shape(float (*draw)(PhiloxStream&), const Body& body) {
  uint64_t seed = 0;
  for (const int64_t rows : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 65}) {
    for (const int64_t columns : {16, 32, 48, 96}) {
      for (const int64_t depth : {0, 1, 15, 16, 17, 40, 63, 64, 65, 130}) {
        for (const bool turned : {false, true}) body(Pairs(rows, columns, depth, turned, ++seed, draw));
      }
    }
  }
}

// Small integers are exact in bfloat16 and in every order of summing. Nothing is written past c's columns.
TEST(CpuTiles, EveryShapeIsExact) {
  for_every_shape(small_integer, [](const Pairs& pairs) {
    for (const Isa isa : with_pairs()) {
      const Primitives& prim = primitives(isa, DType::kBFloat16);
      for (const bool accumulate : {false, true}) {
        const std::vector<float> found = pairs.product(prim, accumulate);
        for (int64_t i = 0; i < pairs.rows; ++i) {
          for (int64_t j = 0; j < pairs.c_row(); ++j) {
            float expected = pairs.c[i * pairs.c_row() + j];
            if (j < pairs.columns && !accumulate) expected = 0;
            for (int64_t k = 0; j < pairs.columns && k < pairs.depth; ++k) {
              const Cell a = pairs.left(i, k), b = pairs.right(k, j);
              expected += low(a) * low(b) + high(a) * high(b);
            }
            ASSERT_EQ(found[i * pairs.c_row() + j], expected) << pairs.what(isa) << " at " << i << ", " << j;
          }
        }
      }
    }
  });
}

// Rule 4 rests on this: a row alone has the bits that it has among others, and so has a product that is made
// in two, cut between panels of keys.
TEST(CpuTiles, EveryRowAndEveryCutAlike) {
  for_every_shape(normal, [](const Pairs& pairs) {
    for (const Isa isa : with_pairs()) {
      const Primitives& prim = primitives(isa, DType::kBFloat16);
      const std::vector<float> whole = pairs.product(prim, true);
      std::vector<float> alone = pairs.c, cut = pairs.c;
      for (int64_t i = 0; i < pairs.rows; ++i) pairs.multiply(prim, i, 1, 0, pairs.depth, true, alone.data());
      ASSERT_TRUE(same_bits(whole, alone)) << pairs.what(isa);
      if (pairs.depth <= 16) continue;
      pairs.multiply(prim, 0, pairs.rows, 0, 16, true, cut.data());
      pairs.multiply(prim, 0, pairs.rows, 16, pairs.depth, true, cut.data());
      ASSERT_TRUE(same_bits(whole, cut)) << pairs.what(isa);
    }
  });
}

float flush(float value) {
  return std::abs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
}
// TDPBF16PS: of each 16 cells the products of low and of high halves are summed apart, and their sum is
// added.
float by_manual(const Pairs& pairs, int64_t i, int64_t j, float sum) {
  for (int64_t step = 0; step < pairs.depth; step += 16) {
    float lows = 0, highs = 0;
    for (int64_t k = step; k < std::min(step + 16, pairs.depth); ++k) {
      const Cell a = pairs.left(i, k), b = pairs.right(k, j);
      lows = flush(std::fma(flush(low(a)), flush(low(b)), lows));
      highs = flush(std::fma(flush(high(a)), flush(high(b)), highs));
    }
    sum = flush(flush(sum) + flush(lows + highs));
  }
  return sum;
}

TEST(CpuTiles, SumsAreTheManuals) {
  if (with_tiles().empty()) GTEST_SKIP() << "needs AVX-512 BF16";
  for (auto* draw : {normal, tiny}) {
    for_every_shape(draw, [](const Pairs& pairs) {
      for (const Isa isa : with_tiles()) {
        const std::vector<float> found = pairs.product(primitives(isa, DType::kBFloat16), true);
        for (int64_t i = 0; i < pairs.rows; ++i) {
          for (int64_t j = 0; j < pairs.columns; ++j) {
            // A last step that is not whole adds 0 to sums, which may turn -0 into 0: equal numbers.
            ASSERT_EQ(found[i * pairs.c_row() + j], by_manual(pairs, i, j, pairs.c[i * pairs.c_row() + j]))
                << pairs.what(isa) << " at " << i << ", " << j;
          }
        }
      }
    });
  }
}

// Figures by hand, each wrong where something is summed or rounded otherwise.
TEST(CpuTiles, SumsByHand) {
  if (with_tiles().empty()) GTEST_SKIP() << "needs AVX-512 BF16";
  struct Case {
    const char* what;
    std::vector<std::pair<float, float>> a, b;
    float c, expected;
  };
  const float big = 16777216.0f;  // 2^24: big + 1 is big
  const float denormal = std::ldexp(1.0f, -127);
  const std::vector<Case> cases{
      {"products are summed before c", {{1, 1}}, {{1, 1}}, big, big + 2},
      {"halves are summed apart", {{big, 1}, {-big, 1}}, {{1, 1}, {1, 1}}, 0, 2},
      {"lows in order", {{big, 0}, {1, 0}, {-big, 0}}, {{1, 0}, {1, 0}, {1, 0}}, 0, 0},
      {"denormal operands are 0", {{denormal, 0}}, {{big, 0}}, 0, 0},
      {"denormal c is 0", {{0, 0}}, {{0, 0}}, denormal, 0},
      {"denormal products are 0", {{std::ldexp(1.0f, -100), 0}}, {{std::ldexp(1.0f, -30), 0}}, 0, 0},
      {"a product is not rounded by itself",
       {{std::ldexp(1.0f, -100), 0}, {std::ldexp(1.5f, -126), 0}},
       {{std::ldexp(-1.0f, -27), 0}, {1, 0}},
       0,
       std::ldexp(1.5f, -126)},
      {"ties to even", {{1, 0}}, {{1, 0}}, big + 2, big + 4},
  };
  for (const Isa isa : with_tiles()) {
    for (const Case& one : cases) {
      Pairs pairs(1, 16, static_cast<int64_t>(one.a.size()), false, 1, small_integer);
      for (int64_t k = 0; k < pairs.depth; ++k) {
        pairs.a[k] = cell(float_to_bfloat16(one.a[k].first), float_to_bfloat16(one.a[k].second));
        for (int64_t j = 0; j < 16; ++j) {
          pairs.b[k * kPanel + j] =
              cell(float_to_bfloat16(one.b[k].first), float_to_bfloat16(one.b[k].second));
        }
      }
      std::fill(pairs.c.begin(), pairs.c.end(), one.c);
      EXPECT_EQ(pairs.product(primitives(isa, DType::kBFloat16), true)[0], one.expected)
          << name_of(isa) << ": " << one.what;
    }
  }
}

// The compiled AMX code, on the processor or, where that has none, instruction by instruction.
TEST(CpuTiles, InstructionsGiveTheEmulationsBits) {
  if (with_tiles().empty()) GTEST_SKIP() << "needs AVX-512 BF16";
  const long before = TrappedTiles::instructions();
  const auto trapped = trap_where_needed();
  const Primitives &instructions = primitives(Isa::kAmxBf16, DType::kBFloat16),
                   &emulation = primitives(Isa::kEmulatedAmx, DType::kBFloat16);
  for (auto* draw : {normal, tiny}) {
    for_every_shape(draw, [&](const Pairs& pairs) {
      ASSERT_TRUE(same_bits(pairs.product(instructions, true), pairs.product(emulation, true)))
          << pairs.what(Isa::kAmxBf16);
    });
  }
  EXPECT_EQ(TrappedTiles::instructions() > before, trapped != nullptr);
}

TEST(CpuTiles, NobodyGetsTheEmulationByName) {
  for (const Isa isa : supported_isas()) EXPECT_NE(isa, Isa::kEmulatedAmx);
  EXPECT_THROW(isa_named(name_of(Isa::kEmulatedAmx)), std::invalid_argument);
}

}  // namespace
}  // namespace iha::cpu
