// Relation composition (arXiv:2501.19215; its use here follows arXiv:2602.21371): from a random binary
// relation R on m elements, given as the m x m cells of its matrix, tell for every cell (i, j) whether it is
// in R o R (binary) or in R o R o R (ternary). Relations, their splits and batches; no training.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "iha/models/token_tagger.h"

namespace iha::tasks {

struct RelationCompositionOptions {
  int64_t factors = 2;  // copies of R that are composed: 2 binary, 3 ternary
  int64_t min_side = 6;
  int64_t max_side = 10;   // m is uniform in min_side..max_side
  double density = 0.325;  // each cell is in R with this probability, independently
  int64_t train = 20000;
  int64_t validation = 2000;
  int64_t test = 2000;
  uint64_t seed = 0;
  friend bool operator==(const RelationCompositionOptions&, const RelationCompositionOptions&) = default;

  static RelationCompositionOptions binary();   // m 6..10, density 0.325
  static RelationCompositionOptions ternary();  // m 5..8, density 0.264
  static RelationCompositionOptions small();    // binary with m = 5: the setting of the quick comparison
};

void to_json(nlohmann::json& json, const RelationCompositionOptions& options);
void from_json(const nlohmann::json& json, RelationCompositionOptions& options);

struct Relation {
  int64_t side = 0;            // m
  std::vector<uint8_t> cells;  // m * m of 0 or 1, row by row
  friend bool operator==(const Relation&, const Relation&) = default;
};

// Cell (i, j) of R o S: whether some k has R(i, k) and S(k, j). Throws std::invalid_argument where the sides
// differ.
Relation compose(const Relation& left, const Relation& right);
// R composed with itself, `factors` copies in all.
Relation power(const Relation& relation, int64_t factors);

// Relations drawn by the options' seed, the same on every machine. The test relations are distinct, and so
// are the validation relations; none of the test set is in the validation or training set, none of the
// validation set is in the training set (training relations may repeat). The test set does not depend on the
// sizes of the others.
struct RelationSplits {
  std::vector<Relation> train, validation, test;
};
// Throws std::invalid_argument for options out of range and where there are too few distinct relations.
RelationSplits draw_relations(const RelationCompositionOptions& options);

struct RelationBatch {
  models::GridTokens input;  // padded to the largest grid of the batch, tokens row by row
  torch::Tensor targets;     // float32 [B, N]; 0 in padding
};
// The relations at `indices`. Throws std::invalid_argument for an index out of range.
RelationBatch make_batch(const std::vector<Relation>& relations, const std::vector<int64_t>& indices,
                         int64_t factors);
// Relations first .. first + count - 1, cut at the end: for evaluation in order.
RelationBatch make_batch(const std::vector<Relation>& relations, int64_t first, int64_t count,
                         int64_t factors);

}  // namespace iha::tasks
