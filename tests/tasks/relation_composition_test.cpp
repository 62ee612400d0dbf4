#include "iha/tasks/relation_composition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "iha/core/philox.h"

namespace iha::tasks {
namespace {

using testing::HasSubstr;
using testing::Property;
using testing::Throws;

// The same data by a plain loop over the words of Philox: no stream class, no class of relations.
class PlainDraw {
 public:
  PlainDraw(uint64_t seed, uint32_t split) : seed_(seed), split_(split) {}

  std::string relation(int64_t min_side, int64_t max_side, double density) {
    const uint64_t sides = max_side - min_side + 1;
    uint64_t number;
    do {
      const uint64_t high = word();
      number = high << 32 | word();
    } while (number < (0 - sides) % sides);
    const int64_t side = min_side + static_cast<int64_t>(number % sides);
    std::string cells;
    for (int64_t n = 0; n < side * side; ++n) {
      cells += word() < std::llround(density * 4294967296.0) ? '1' : '0';
    }
    return cells;
  }

 private:
  uint32_t word() {
    const uint64_t block = count_ / 4;
    const auto words = philox4x32_10({static_cast<uint32_t>(block), 0, split_, 1}, seed_);
    return words[count_++ % 4];
  }
  uint64_t seed_;
  uint32_t split_;
  uint64_t count_ = 0;
};

std::string cells_text(const Relation& relation) {
  std::string text;
  for (const uint8_t cell : relation.cells) text += static_cast<char>('0' + cell);
  return text;
}

std::set<std::string> texts(const std::vector<Relation>& relations) {
  std::set<std::string> result;
  for (const Relation& relation : relations) result.insert(cells_text(relation));
  return result;
}

// FNV-1a over all cells.
uint64_t checksum(const std::vector<std::string>& relations) {
  uint64_t hash = 14695981039346656037u;
  for (const std::string& relation : relations) {
    for (const char cell : relation + '/') hash = (hash ^ static_cast<unsigned char>(cell)) * 1099511628211u;
  }
  return hash;
}

TEST(DrawRelations, IsThePlainLoop) {
  for (const auto& options : {RelationCompositionOptions::binary(), RelationCompositionOptions::ternary()}) {
    RelationCompositionOptions small = options;
    small.test = 300, small.validation = 200, small.train = 400, small.seed = 0x123456789abcdef;
    const RelationSplits splits = draw_relations(small);
    std::set<std::string> held_out;
    const auto expect = [&](uint32_t split, const std::vector<Relation>& relations, bool distinct) {
      PlainDraw plain(small.seed, split);
      for (const Relation& relation : relations) {
        std::string expected;
        do {
          expected = plain.relation(small.min_side, small.max_side, small.density);
        } while (held_out.contains(expected));
        if (distinct) held_out.insert(expected);
        ASSERT_EQ(cells_text(relation), expected);
        ASSERT_EQ(relation.side * relation.side, static_cast<int64_t>(expected.size()));
      }
    };
    ASSERT_EQ(splits.test.size(), 300u);
    ASSERT_EQ(splits.validation.size(), 200u);
    ASSERT_EQ(splits.train.size(), 400u);
    expect(0, splits.test, true);
    expect(1, splits.validation, true);
    expect(2, splits.train, false);
  }
}

// The value is that of PlainDraw on the machine this was written on; another one must find the same.
TEST(DrawRelations, IsTheSameOnEveryMachine) {
  PlainDraw plain(7, 0);
  std::vector<std::string> expected, found;
  RelationCompositionOptions options;
  options.seed = 7, options.test = 1000, options.validation = options.train = 0;
  for (const Relation& relation : draw_relations(options).test) {
    found.push_back(cells_text(relation));
    expected.push_back(plain.relation(6, 10, 0.325));
  }
  EXPECT_EQ(checksum(found), checksum(expected));
  EXPECT_EQ(checksum(found), 5496747586709421494u);
}

TEST(DrawRelations, KeepsTheSplitsApart) {
  RelationCompositionOptions options;  // 512 relations in all: random splits would overlap
  options.min_side = options.max_side = 3;
  options.test = options.validation = 100;
  options.train = 3000;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    options.seed = seed;
    const RelationSplits splits = draw_relations(options);
    const auto train = texts(splits.train), validation = texts(splits.validation), test = texts(splits.test);
    EXPECT_EQ(test.size(), 100u);
    EXPECT_EQ(validation.size(), 100u);
    EXPECT_EQ(splits.train.size(), 3000u);
    for (const std::string& relation : test) {
      EXPECT_FALSE(train.contains(relation));
      EXPECT_FALSE(validation.contains(relation));
    }
    for (const std::string& relation : validation) EXPECT_FALSE(train.contains(relation));
  }
}

TEST(DrawRelations, TestSetDoesNotDependOnOtherSizes) {
  RelationCompositionOptions options = RelationCompositionOptions::small();
  options.test = 50;
  const auto test = draw_relations(options).test;
  options.train = 10, options.validation = 3;
  EXPECT_EQ(draw_relations(options).test, test);
  options.seed = 1;
  EXPECT_NE(draw_relations(options).test, test);
}

TEST(DrawRelations, FollowsDensityAndSides) {
  RelationCompositionOptions options = RelationCompositionOptions::binary();
  options.test = options.validation = 0;
  const auto relations = draw_relations(options).train;
  double cells = 0, ones = 0;
  std::vector<int64_t> sides(11);
  for (const Relation& relation : relations) {
    ++sides[relation.side];
    cells += static_cast<double>(relation.cells.size());
    for (const uint8_t cell : relation.cells) ones += cell;
  }
  // Five standard deviations of a binomial count.
  EXPECT_NEAR(ones, 0.325 * cells, 5 * std::sqrt(0.325 * 0.675 * cells));
  for (int64_t side = 6; side <= 10; ++side) EXPECT_NEAR(sides[side], 4000, 5 * std::sqrt(20000 * 0.2 * 0.8));
}

TEST(DrawRelations, UsesAllOfATinySpace) {
  RelationCompositionOptions options;
  options.min_side = options.max_side = 2;  // 16 relations
  options.test = 10, options.validation = 5, options.train = 20;
  const RelationSplits splits = draw_relations(options);
  EXPECT_EQ(texts(splits.train).size(), 1u);
  options.min_side = options.max_side = 1;
  options.test = 1, options.validation = 0;
  EXPECT_EQ(texts(draw_relations(options).train).size(), 1u);
}

auto throws_with(const std::string& part) {
  return Throws<std::invalid_argument>(Property(&std::exception::what, HasSubstr(part)));
}

TEST(DrawRelations, RefusesTooSmallSpaces) {
  RelationCompositionOptions options;
  options.min_side = options.max_side = 2;
  options.test = 10, options.validation = 6, options.train = 1;
  EXPECT_THAT([&] { draw_relations(options); },
              throws_with("16 distinct relations with sides 2..2, expected at "
                          "least 17"));
  options.min_side = options.max_side = 4;
  options.density = 1e-9;  // the space is large, but only the empty relation comes up
  EXPECT_THAT([&] { draw_relations(options); }, throws_with("found 1 of 10 relations"));
}

TEST(DrawRelations, RefusesOptionsOutOfRange) {
  const auto refuses = [](auto change, const std::string& part) {
    RelationCompositionOptions options;
    change(options);
    EXPECT_THAT([&] { draw_relations(options); }, throws_with(part));
  };
  refuses([](auto& o) { o.density = 0; }, "density 0, expected between 0 and 1");
  refuses([](auto& o) { o.density = 1; }, "density 1");
  refuses([](auto& o) { o.density = std::nan(""); }, "density nan");
  refuses([](auto& o) { o.min_side = 0; }, "sides 0..10");
  refuses([](auto& o) { o.min_side = 11; }, "sides 11..10");
  refuses([](auto& o) { o.train = -1; }, "sizes -1");
  refuses([](auto& o) { o.factors = 1; }, "1 factors");
}

TEST(Power, IsTheDefinition) {
  RelationCompositionOptions options;
  options.min_side = 1, options.max_side = 6;
  options.test = options.validation = 0, options.train = 200;
  for (const Relation& relation : draw_relations(options).train) {
    const int64_t m = relation.side;
    const auto holds = [&](int64_t i, int64_t j) { return relation.cells[i * m + j] != 0; };
    const Relation binary = power(relation, 2), ternary = power(relation, 3);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < m; ++j) {
        bool two = false, three = false;
        for (int64_t k = 0; k < m; ++k) {
          two |= holds(i, k) && holds(k, j);
          for (int64_t l = 0; l < m; ++l) three |= holds(i, k) && holds(k, l) && holds(l, j);
        }
        EXPECT_EQ(binary.cells[i * m + j], two);
        EXPECT_EQ(ternary.cells[i * m + j], three);
      }
    }
  }
}

TEST(Compose, TakesTheLeftFactorFirst) {
  // 0 -> 1 in the left, 1 -> 0 in the right relation: only (0, 0) is composed, not (1, 1).
  const Relation left{2, {0, 1, 0, 0}}, right{2, {0, 0, 1, 0}};
  EXPECT_EQ(compose(left, right), (Relation{2, {1, 0, 0, 0}}));
  EXPECT_THAT([&] { compose(left, Relation{1, {1}}); }, throws_with("relations on 2 and 1 elements"));
}

TEST(MakeBatch, PadsToTheLargestGrid) {
  const std::vector<Relation> relations = {{1, {1}}, {2, {0, 1, 1, 0}}, {3, std::vector<uint8_t>(9, 1)}};
  const RelationBatch batch = make_batch(relations, {1, 0, 1}, 2);
  EXPECT_TRUE(batch.input.lengths.equal(torch::tensor({4, 1, 4}, torch::kInt64)));
  EXPECT_TRUE(
      batch.input.values.equal(torch::tensor({{0, 1, 1, 0}, {1, 0, 0, 0}, {0, 1, 1, 0}}, torch::kInt64)));
  EXPECT_TRUE(
      batch.input.rows.equal(torch::tensor({{0, 0, 1, 1}, {0, 0, 0, 0}, {0, 0, 1, 1}}, torch::kInt64)));
  EXPECT_TRUE(
      batch.input.columns.equal(torch::tensor({{0, 1, 0, 1}, {0, 0, 0, 0}, {0, 1, 0, 1}}, torch::kInt64)));
  // A swap composed with itself is the identity.
  EXPECT_TRUE(
      batch.targets.equal(torch::tensor({{1.f, 0.f, 0.f, 1.f}, {1.f, 0.f, 0.f, 0.f}, {1.f, 0.f, 0.f, 1.f}})));
}

TEST(MakeBatch, CutsAtTheEndAndTakesNothing) {
  const std::vector<Relation> relations = {{1, {1}}, {2, {0, 1, 1, 0}}};
  EXPECT_EQ(make_batch(relations, 1, 5, 2).targets.sizes(), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(make_batch(relations, 2, 5, 2).targets.sizes(), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(make_batch(relations, {}, 2).input.lengths.size(0), 0);
  EXPECT_THAT([&] { make_batch(relations, {2}, 2); }, throws_with("index 2, expected one below 2"));
  EXPECT_THAT([&] { make_batch(relations, {-1}, 2); }, throws_with("index -1"));
}

TEST(RelationCompositionOptions, GoThroughJson) {
  RelationCompositionOptions options{3, 2, 4, 0.5, 7, 8, 9, uint64_t{1} << 63};
  const nlohmann::json json = options;
  EXPECT_EQ(json.get<RelationCompositionOptions>(), options);
  EXPECT_EQ(nlohmann::json::object().get<RelationCompositionOptions>(), RelationCompositionOptions::binary());
  EXPECT_THAT([] { nlohmann::json::parse(R"({"densty": 0.5})").get<RelationCompositionOptions>(); },
              throws_with("unknown field `densty`"));
  EXPECT_THAT([] { nlohmann::json::parse(R"({"density": "high"})").get<RelationCompositionOptions>(); },
              throws_with("`density` is \"high\""));
}

}  // namespace
}  // namespace iha::tasks
