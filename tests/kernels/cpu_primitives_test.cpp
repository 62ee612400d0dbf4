// The primitives of every instruction set against plain loops.
#include "iha/kernels/cpu/primitives.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "iha/core/philox.h"
#include "tests/kernels/cpu_isas.h"

namespace iha::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> normal(int64_t count, uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.next_normal());
  return values;
}
const Cell* cells(const float* values) {
  return reinterpret_cast<const Cell*>(values);
}

TEST(CpuIsa, NamesAreFoundAndOthersNamed) {
  for (const Isa isa : supported_isas()) EXPECT_EQ(isa_named(name_of(isa)), isa);
  try {
    isa_named("sse9");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("found 'sse9', expected one of what this machine has: portable"),
              std::string::npos)
        << error.what();
  }
}

// Run by itself with IHA_ISA set, by the test below.
TEST(CpuIsa, ActiveIsTheForcedOne) {
  const char* forced = std::getenv("IHA_ISA");
  EXPECT_EQ(active_isa(), forced == nullptr ? supported_isas().back() : isa_named(forced));
}

TEST(CpuIsa, EnvironmentForces) {
  // A shard of this program runs it again, whole.
  const auto run_with = [](std::string_view isa) {
    const std::string command = "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX IHA_ISA=" + std::string(isa) +
                                " /proc/$PPID/exe --gtest_filter=CpuIsa.ActiveIsTheForcedOne > /dev/null";
    return std::system(command.c_str());
  };
  for (const Isa isa : supported_isas()) EXPECT_EQ(run_with(name_of(isa)), 0) << name_of(isa);
  EXPECT_NE(run_with("sse9"), 0);
}

// All tile shapes; transposed left operands; and every row alike, whatever tile it falls into: rule 4 rests
// on it.
TEST(CpuPrimitives, MultiplyFloat) {
  for (const Isa isa : supported_isas()) {
    const Primitives& prim = primitives(isa, DType::kFloat32);
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17}) {
      for (const int64_t columns : {16, 32, 48, 96}) {
        for (const int64_t depth : {0, 1, 2, 7, 64}) {
          const auto a = normal(rows * 70, 1), b = normal(depth * columns + 16, 2);
          const std::vector<float> start = normal(rows * columns, 3);
          for (const bool turned : {false, true}) {
            std::vector<float> c = start;
            const int64_t a_row = turned ? 1 : 70, a_depth = turned ? rows : 1;
            prim.multiply({.rows = rows,
                           .columns = columns,
                           .depth = depth,
                           .a = cells(a.data()),
                           .a_row = a_row,
                           .a_depth = a_depth,
                           .b = cells(b.data()),
                           .b_depth = columns,
                           .b_panel = kPanel,
                           .c = c.data(),
                           .c_row = columns,
                           .accumulate = !turned});
            for (int64_t i = 0; i < rows; ++i) {
              for (int64_t j = 0; j < columns; ++j) {
                double sum = turned ? 0.0 : start[i * columns + j], size = std::abs(sum);
                for (int64_t k = 0; k < depth; ++k) {
                  const double term = static_cast<double>(a[i * a_row + k * a_depth]) * b[k * columns + j];
                  sum += term;
                  size += std::abs(term);
                }
                // Every one of depth + 1 roundings is at most 2^-24 of the sum of magnitudes.
                ASSERT_NEAR(c[i * columns + j], sum, std::ldexp(depth + 1.0, -24) * size)
                    << name_of(isa) << " " << rows << " x " << columns << " x " << depth;
              }
            }
            for (int64_t i = 0; i < rows; ++i) {
              std::vector<float> alone(start.begin() + i * columns, start.begin() + (i + 1) * columns);
              prim.multiply({.rows = 1,
                             .columns = columns,
                             .depth = depth,
                             .a = cells(a.data()) + i * a_row,
                             .a_row = a_row,
                             .a_depth = a_depth,
                             .b = cells(b.data()),
                             .b_depth = columns,
                             .b_panel = kPanel,
                             .c = alone.data(),
                             .c_row = columns,
                             .accumulate = !turned});
              ASSERT_EQ(std::memcmp(alone.data(), c.data() + i * columns, columns * sizeof(float)), 0);
            }
          }
        }
      }
    }
  }
}

// Rows in memory of a type, each followed by NaN, and no more of the last one than its `width`.
struct RowsOf {
  RowsOf(DType type, int64_t rows, int64_t width, uint64_t seed)
      : dtype(type), row(width + 3), count(rows), size(static_cast<int64_t>(size_of(type))) {
    bytes.assign(((rows - 1) * row + width) * size, 0xff);
    const auto numbers = normal(rows * width, seed);
    for (int64_t i = 0; i < rows * width; ++i)
      store(bytes.data(), dtype, i / width * row + i % width, numbers[i]);
  }
  double at(int64_t r, int64_t c) const { return load(bytes.data(), dtype, r * row + c); }
  DType dtype;
  int64_t row, count, size;
  std::vector<unsigned char> bytes;
};

// Queries and weights exact in every format: halves up to 4.
std::vector<float> halves(int64_t count, uint64_t seed) {
  std::vector<float> values = normal(count, seed);
  for (float& value : values) value = std::round(2 * value) / 2;
  return values;
}

TEST(CpuPrimitives, ScoresAndSumsOfRowsInPlace) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const Isa isa : tested_isas(dtype)) {
      const Primitives& prim = primitives(isa, dtype);
      for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 15, 32}) {
        if (rows > prim.group_rows) break;
        for (const int64_t width : {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 64, 80, 128, 200, 257}) {
          const std::string what = std::string(name_of(isa)) + " " + std::string(name_of(dtype)) + " rows " +
                                   std::to_string(rows) + " width " + std::to_string(width);
          const int64_t cells_row = (width + 15) / 16 * 16, halves_of = prim.pairs ? 2 : 1;
          const auto queries = halves(rows * width, 1);
          std::vector<Cell> operand(rows * cells_row, 0);
          for (int64_t i = 0; i < rows; ++i) {
            std::vector<float> padded(2 * cells_row, 0.0f);
            std::copy_n(queries.begin() + i * width, width, padded.begin());
            prim.pack_along(padded.data(), (width + halves_of - 1) / halves_of,
                            operand.data() + i * cells_row);
          }
          for (const int64_t count : {1, 31, 32, 33, 64, 70}) {
            const RowsOf keys(dtype, count, width, 2);
            std::vector<float> scores(rows * 96, 99.0f);
            prim.score_rows({.rows = rows,
                             .count = count,
                             .width = width,
                             .queries = operand.data(),
                             .query_row = cells_row,
                             .keys = keys.bytes.data(),
                             .dtype = dtype,
                             .key_row = keys.row,
                             .scores = scores.data(),
                             .score_row = 96,
                             .ahead = {keys.bytes.data(), keys.row, count % 3 + 1, count}});
            for (int64_t i = 0; i < rows; ++i) {
              for (int64_t j = 0; j < count; ++j) {
                double sum = 0, size = 0;
                for (int64_t c = 0; c < width; ++c) {
                  sum += queries[i * width + c] * keys.at(j, c);
                  size += std::abs(queries[i * width + c] * keys.at(j, c));
                }
                ASSERT_NEAR(scores[i * 96 + j], sum, std::ldexp(width + 1.0, -24) * size)
                    << what << " key " << j;
              }
              for (int64_t j = (count + 15) / 16 * 16; j < 96; ++j)
                ASSERT_EQ(scores[i * 96 + j], 99.0f) << what;
            }
          }
          for (const int64_t panels : {1, 3}) {
            const RowsOf values(dtype, panels * kPanel, width, 3);
            const auto weights = halves(rows * panels * kPanel, 4);
            std::vector<Cell> packed(rows * panels * kPanel);
            for (int64_t i = 0; i < rows; ++i) {
              prim.pack_along(weights.data() + i * panels * kPanel, panels * kPanel / halves_of,
                              packed.data() + i * panels * kPanel);
            }
            const int64_t output_row = (width + 15) / 16 * 16;
            std::vector<float> output(rows * output_row, 0.5f);
            prim.weigh_rows({.rows = rows,
                             .panels = panels,
                             .width = width,
                             .weights = packed.data(),
                             .weight_row = panels * kPanel,
                             .values = values.bytes.data(),
                             .dtype = dtype,
                             .value_row = values.row,
                             .output = output.data(),
                             .output_row = output_row,
                             .ahead = {values.bytes.data(), values.row, panels, 1}});
            for (int64_t i = 0; i < rows; ++i) {
              for (int64_t c = 0; c < output_row; ++c) {
                double sum = 0.5, size = 0.5;
                for (int64_t j = 0; c < width && j < panels * kPanel; ++j) {
                  sum += weights[i * panels * kPanel + j] * values.at(j, c);
                  size += std::abs(weights[i * panels * kPanel + j] * values.at(j, c));
                }
                ASSERT_NEAR(output[i * output_row + c], sum, std::ldexp(panels * kPanel + 1.0, -24) * size)
                    << what << " column " << c;
              }
            }
          }
        }
      }
    }
  }
}

TEST(CpuPrimitives, TransposeIsAPermutation) {
  for (const Isa isa : supported_isas()) {
    const Primitives& prim = primitives(isa, DType::kFloat32);
    for (const int64_t columns : {1, 3, 16, 17, 40, 64}) {
      const int64_t row = columns + 3;
      std::vector<Cell> source(kPanel * row), panel(columns * kPanel);
      for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<Cell>(i);
      prim.transpose(source.data(), row, columns, panel.data());
      for (int64_t i = 0; i < kPanel; ++i) {
        for (int64_t c = 0; c < columns; ++c) ASSERT_EQ(panel[c * kPanel + i], source[i * row + c]);
      }
    }
  }
}

TEST(CpuPrimitives, ConversionsAreThoseOfTheCore) {
  std::vector<float> values{0.0f,      -0.0f,      1.0f,          1.00390625f, 1.01171875f,
                            65504.0f,  65519.0f,   65520.0f,      1e-7f,       -6e-8f,
                            kInfinity, -kInfinity, std::nanf(""), 3.4e38f,     1e-30f};
  const auto more = normal(52, 6);
  values.insert(values.end(), more.begin(), more.end());
  const auto count = static_cast<int64_t>(values.size());
  for (const Isa isa : supported_isas()) {
    const Primitives& prim = primitives(isa, DType::kFloat32);
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      std::vector<uint16_t> words(count);
      std::vector<float> back(count);
      prim.narrow(values.data(), dtype, count, words.data());
      prim.widen(words.data(), dtype, count, back.data());
      for (int64_t i = 0; i < count; ++i) {
        const uint16_t expected =
            dtype == DType::kBFloat16 ? float_to_bfloat16(values[i]) : float_to_float16(values[i]);
        if (std::isnan(values[i])) {
          EXPECT_TRUE(std::isnan(back[i]));
          continue;
        }
        EXPECT_EQ(words[i], expected) << name_of(isa) << " " << name_of(dtype) << " " << values[i];
        EXPECT_EQ(back[i],
                  dtype == DType::kBFloat16 ? bfloat16_to_float(expected) : float16_to_float(expected));
      }
    }
  }
}

// Weights of a row whose scores span the whole range: exactly 0 where hidden or far below, within the stated
// error of exp2 elsewhere (x itself carries half an ulp: 2^-18 at 100), NaN where the score is NaN.
TEST(CpuPrimitives, WeightsAreExp2) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const Isa isa : tested_isas(dtype)) {
      const Primitives& prim = primitives(isa, dtype);
      std::vector<float> scores(64);
      for (int i = 0; i < 64; ++i)
        scores[i] = -2.0f * static_cast<float>(i) - 0.37f * static_cast<float>(i % 3);
      scores[5] = -kInfinity;
      scores[6] = std::nanf("");
      std::vector<float> weights = scores;
      const float log2_sum = 0.25f;
      prim.weights({.rows = 1,
                    .columns = 64,
                    .scores = weights.data(),
                    .score_row = 64,
                    .log2_scale = 1.5f,
                    .log2_sum = &log2_sum});
      for (int i = 0; i < 64; ++i) {
        const double exact = std::exp2(static_cast<double>(scores[i]) * 1.5 - 0.25);
        if (std::isnan(exact)) {
          EXPECT_TRUE(std::isnan(weights[i]));
        } else if (exact < std::ldexp(1.0, -126)) {
          EXPECT_EQ(weights[i], 0.0f) << name_of(isa) << " " << scores[i];
        } else {
          EXPECT_NEAR(weights[i] / exact, 1.0, (prim.pairs ? 8e-5 : 1.5e-7) + std::ldexp(1.0, -18))
              << scores[i];
        }
      }
    }
  }
}

TEST(CpuPrimitives, DropoutDrawsTheCoresMask) {
  const uint64_t threshold = dropout_threshold(0.4), seed = 0x123456789abcdefull;
  for (const Isa isa : supported_isas()) {
    const Primitives& prim = primitives(isa, DType::kFloat32);
    for (const auto& [first, step] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {64, 1}, {3, 1}, {1, 3}}) {
      int64_t columns[kPanel];
      for (int64_t c = 0; c < kPanel; ++c) columns[c] = first + c * step;
      const uint32_t bits = prim.keep_bits(threshold, seed, 7, 11, columns);
      for (int64_t c = 0; c < kPanel; ++c) {
        EXPECT_EQ(bits >> c & 1u, static_cast<uint32_t>(dropout_keeps(threshold, seed, 7, 11, columns[c])))
            << name_of(isa) << " column " << columns[c];
      }
    }
  }
}

TEST(CpuPrimitives, SmallLoops) {
  for (const Isa isa : supported_isas()) {
    const Primitives& prim = primitives(isa, DType::kFloat32);
    for (const int64_t count : {0, 1, 15, 16, 17, 40}) {
      const auto a = normal(count, 1), b = normal(count, 2);
      double dot = 0, size = 0;
      for (int64_t i = 0; i < count; ++i) {
        dot += static_cast<double>(a[i]) * b[i];
        size += std::abs(static_cast<double>(a[i]) * b[i]);
      }
      EXPECT_NEAR(prim.dot(a.data(), b.data(), count), dot, std::ldexp(count + 1.0, -24) * size);
      float lanes[16] = {};
      prim.dot_lanes(a.data(), b.data(), count, lanes);
      double sum = 0;
      for (const float lane : lanes) sum += lane;
      EXPECT_NEAR(sum, dot, std::ldexp(count + 1.0, -24) * size);
      std::vector<float> c = a;
      prim.add_scaled(c.data(), b.data(), 0.5f, count);
      for (int64_t i = 0; i < count; ++i) EXPECT_NEAR(c[i], a[i] + 0.5 * b[i], 1e-6);
      EXPECT_TRUE(prim.finite(a.data(), count));
      for (int64_t i = 0; i < count; ++i) {
        std::vector<float> bad = a;
        bad[i] = i % 2 == 0 ? -kInfinity : std::nanf("");
        EXPECT_FALSE(prim.finite(bad.data(), count));
      }
    }
  }
}

// Half a step past the largest bfloat16 rounds to infinity.
TEST(CpuPrimitives, FiniteIsAskedOfCells) {
  const auto number = [](uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  };
  for (const Isa isa : supported_isas()) {
    const Primitives& prim = primitives(isa, DType::kBFloat16);
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const float last = number(sign | 0x7f7f7fffu), past = number(sign | 0x7f7f8000u);
      EXPECT_TRUE(prim.finite(&last, 1)) << name_of(isa);
      EXPECT_EQ(prim.finite(&past, 1), !prim.pairs) << name_of(isa);
    }
  }
}

TEST(CpuPrimitives, RotateTurnsAndBack) {
  for (const Isa isa : supported_isas()) {
    const Primitives& prim = primitives(isa, DType::kFloat32);
    for (const RopeStyle style : {RopeStyle::kHalf, RopeStyle::kAdjacent}) {
      const int64_t pairs = 11;
      std::vector<double> coarse(2 * pairs), fine(2 * pairs), frequencies(pairs);
      for (int64_t c = 0; c < pairs; ++c) {
        frequencies[c] = 1.0 / static_cast<double>(1 + c * c);
        coarse[c] = std::cos(640 * frequencies[c]);
        coarse[pairs + c] = std::sin(640 * frequencies[c]);
        fine[c] = std::cos(17 * frequencies[c]);
        fine[pairs + c] = std::sin(17 * frequencies[c]);
      }
      const auto start = normal(24, 3);
      std::vector<float> row = start;
      std::vector<double> expected(start.begin(), start.end());
      rotate(expected.data(), frequencies, style, 657);
      prim.rotate(row.data(), coarse.data(), fine.data(), pairs, style, false);
      for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(row[i], expected[i], 1e-6);
      prim.rotate(row.data(), coarse.data(), fine.data(), pairs, style, true);
      for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(row[i], start[i], 2e-6);
    }
  }
}

}  // namespace
}  // namespace iha::cpu
