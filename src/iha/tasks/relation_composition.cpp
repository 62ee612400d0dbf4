#include "iha/tasks/relation_composition.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <utility>

#include "iha/core/error.h"
#include "iha/core/philox.h"
#include "iha/models/json_fields.h"

namespace iha::tasks {
namespace {

// Each split has a stream of its own, so that its size does not move the others.
enum Stream : uint32_t { kTest, kValidation, kTrain };

// After so many repeats in a row the rest of the space is taken to be out of reach: a relation that is still
// missing would have a probability of about 1e-6.
constexpr int64_t kMaxRepeats = 1'000'000;

using Seen = std::unordered_set<std::string>;

std::string key_of(const Relation& relation) {
  std::string key(relation.cells.begin(), relation.cells.end());  // its length tells the side
  return key;
}

Relation draw(PhiloxStream& stream, const RelationCompositionOptions& options) {
  Relation relation;
  relation.side = options.min_side + stream.next_below(options.max_side - options.min_side + 1);
  relation.cells.resize(relation.side * relation.side);
  const uint64_t threshold = dropout_threshold(options.density);  // density * 2^32
  for (uint8_t& cell : relation.cells) cell = stream.next_word() < threshold;
  return relation;
}

void check_options(const RelationCompositionOptions& options) {
  constexpr auto kName = "iha::tasks::draw_relations: ";
  check(options.factors >= 2, kName, options.factors, " factors, expected at least 2");
  check(1 <= options.min_side && options.min_side <= options.max_side && options.max_side <= 1000, kName,
        "sides ", options.min_side, "..", options.max_side, ", expected 1 <= min_side <= max_side <= 1000");
  check(options.density > 0 && options.density < 1, kName, "density ", options.density,
        ", expected between 0 and 1");
  check(options.train >= 0 && options.validation >= 0 && options.test >= 0, kName, "sizes ", options.train,
        ", ", options.validation, ", ", options.test, ", expected none below 0");
}

// Relations of all sides; 2^62 stands for anything larger.
int64_t distinct_relations(const RelationCompositionOptions& options) {
  constexpr int64_t kMany = int64_t{1} << 62;
  int64_t count = 0;
  for (int64_t side = options.min_side; side <= options.max_side; ++side) {
    if (side * side >= 62) return kMany;
    count = std::min(kMany, count + (int64_t{1} << (side * side)));
  }
  return count;
}

// `count` relations that are not in `seen`; with `distinct` each is then added to it.
std::vector<Relation> draw_split(const RelationCompositionOptions& options, Stream which, int64_t count,
                                 bool distinct, Seen& seen) {
  PhiloxStream stream(options.seed, which);
  std::vector<Relation> relations;
  relations.reserve(count);
  int64_t repeats = 0;
  while (static_cast<int64_t>(relations.size()) < count) {
    Relation relation = draw(stream, options);
    std::string key = key_of(relation);
    if (distinct ? seen.insert(std::move(key)).second : !seen.contains(key)) {
      relations.push_back(std::move(relation));
      repeats = 0;
    } else {
      check(++repeats < kMaxRepeats, "iha::tasks::draw_relations: found ", relations.size(), " of ", count,
            " relations with sides ", options.min_side, "..", options.max_side, " and density ",
            options.density, " apart from those held out, expected a larger side or fewer relations");
    }
  }
  return relations;
}

}  // namespace

RelationCompositionOptions RelationCompositionOptions::binary() {
  return {};
}

RelationCompositionOptions RelationCompositionOptions::ternary() {
  RelationCompositionOptions options;
  options.factors = 3;
  options.min_side = 5;
  options.max_side = 8;
  options.density = 0.264;
  return options;
}

RelationCompositionOptions RelationCompositionOptions::small() {
  RelationCompositionOptions options;
  options.min_side = options.max_side = 5;
  return options;
}

namespace {

template <class Visitor, class Options>
void visit(Visitor& visitor, Options& options) {
  visitor("factors", options.factors);
  visitor("min_side", options.min_side);
  visitor("max_side", options.max_side);
  visitor("density", options.density);
  visitor("train", options.train);
  visitor("validation", options.validation);
  visitor("test", options.test);
  visitor("seed", options.seed);
}

}  // namespace

void to_json(nlohmann::json& json, const RelationCompositionOptions& options) {
  models::JsonWriter writer(json);
  visit(writer, options);
}

void from_json(const nlohmann::json& json, RelationCompositionOptions& options) {
  models::JsonReader reader(json, "relation composition options");
  visit(reader, options);
  reader.finish();
}

Relation compose(const Relation& left, const Relation& right) {
  check(left.side == right.side, "iha::tasks::compose: relations on ", left.side, " and ", right.side,
        " elements, expected the same number");
  const int64_t m = left.side;
  Relation result{m, std::vector<uint8_t>(m * m, 0)};
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t k = 0; k < m; ++k) {
      if (!left.cells[i * m + k]) continue;
      for (int64_t j = 0; j < m; ++j) result.cells[i * m + j] |= right.cells[k * m + j];
    }
  }
  return result;
}

Relation power(const Relation& relation, int64_t factors) {
  check(factors >= 1, "iha::tasks::power: ", factors, " factors, expected at least 1");
  Relation result = relation;
  for (int64_t factor = 1; factor < factors; ++factor) result = compose(result, relation);
  return result;
}

RelationSplits draw_relations(const RelationCompositionOptions& options) {
  check_options(options);
  const int64_t needed = options.test + options.validation + (options.train > 0 ? 1 : 0);
  const int64_t available = distinct_relations(options);
  check(needed <= available, "iha::tasks::draw_relations: ", available, " distinct relations with sides ",
        options.min_side, "..", options.max_side, ", expected at least ", needed,
        " so that no held-out relation is trained on");
  Seen held_out;
  RelationSplits splits;
  splits.test = draw_split(options, kTest, options.test, true, held_out);
  splits.validation = draw_split(options, kValidation, options.validation, true, held_out);
  splits.train = draw_split(options, kTrain, options.train, false, held_out);
  return splits;
}

RelationBatch make_batch(const std::vector<Relation>& relations, const std::vector<int64_t>& indices,
                         int64_t factors) {
  const auto batch = static_cast<int64_t>(indices.size());
  int64_t tokens = 0;
  for (const int64_t index : indices) {
    check(index >= 0 && index < static_cast<int64_t>(relations.size()), "iha::tasks::make_batch: index ",
          index, ", expected one below ", relations.size());
    tokens = std::max(tokens, static_cast<int64_t>(relations[index].cells.size()));
  }
  RelationBatch result;
  models::GridTokens& input = result.input;
  for (torch::Tensor* tensor : {&input.values, &input.rows, &input.columns}) {
    *tensor = torch::zeros({batch, tokens}, torch::kInt64);
  }
  input.lengths = torch::zeros({batch}, torch::kInt64);
  result.targets = torch::zeros({batch, tokens});
  auto values = input.values.accessor<int64_t, 2>(), rows = input.rows.accessor<int64_t, 2>(),
       columns = input.columns.accessor<int64_t, 2>();
  auto targets = result.targets.accessor<float, 2>();
  for (int64_t b = 0; b < batch; ++b) {
    const Relation& relation = relations[indices[b]];
    const Relation answer = power(relation, factors);
    const auto length = static_cast<int64_t>(relation.cells.size());
    input.lengths[b] = length;
    for (int64_t n = 0; n < length; ++n) {
      values[b][n] = relation.cells[n];
      rows[b][n] = n / relation.side;
      columns[b][n] = n % relation.side;
      targets[b][n] = answer.cells[n];
    }
  }
  return result;
}

RelationBatch make_batch(const std::vector<Relation>& relations, int64_t first, int64_t count,
                         int64_t factors) {
  std::vector<int64_t> indices;
  const int64_t end = std::min(first + count, static_cast<int64_t>(relations.size()));
  for (int64_t index = first; index < end; ++index) indices.push_back(index);
  return make_batch(relations, indices, factors);
}

}  // namespace iha::tasks
