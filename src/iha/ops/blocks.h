// How `composed` cuts a call into dense pieces: heads of one pattern together, their queries in blocks, for
// each block the keys that its pattern reaches and a mask where not all of them are visible. No tensor of
// queries x keys is ever made for windows, chunks, strides or `every`. Plain arithmetic on the host; not
// here: the products.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "iha/kernels/problem.h"

namespace iha::ops {

// Heads are those of the products: in layout `parallel` pseudo-head p of head h is head p * Hq + h with one
// pseudo-token a token, which keeps the groups of grouped-query attention in place (row (p * Hq + h) / group
// of the keys).
struct Heads {
  explicit Heads(const Problem& problem);
  int64_t query_heads, key_heads;
  int64_t pseudo_tokens;  // pseudo-tokens a token: P (interleaved) or 1 (parallel)
};

struct HeadGroup {
  Pattern pattern;
  std::vector<int64_t> query_heads, key_heads;  // query_heads.size() = fold * key_heads.size()
  int64_t fold = 1;                             // query heads that share one key head
};

// Tokens begin, begin + step, ..., `count` of them.
struct Slice {
  int64_t begin = 0, step = 1, count = 0;
};

struct Block {
  Slice queries;
  std::vector<Slice> keys;  // ascending, disjoint
  int64_t key_count() const;
};

// Bool tensors that broadcast against scores [B, heads, rows, columns] of a block; rows and columns are
// pseudo-tokens.
struct BlockMask {
  at::Tensor hidden;  // [B or 1, heads or 1, rows, columns]; undefined: everything is visible
  at::Tensor empty;   // [B or 1, heads or 1, rows, 1]: rows that see nothing; undefined: none
};

class Blocks {
 public:
  explicit Blocks(const Problem& problem);

  const Heads& heads() const { return heads_; }
  const std::vector<HeadGroup>& groups() const { return groups_; }
  // The blocks of one group, covering every query once. Blocks whose queries see nothing have no keys.
  std::vector<Block> blocks(const HeadGroup& group) const;
  // Of a block that has keys, by the group's pattern, which is not a learned one.
  BlockMask mask(const HeadGroup& group, const Block& block, at::Device device) const;
  // 0 for a dropped weight, 1 / (1 - p) for a kept one: [B, heads of the group, rows, columns].
  at::Tensor dropout(const HeadGroup& group, const Block& block, at::TensorOptions options) const;

 private:
  void add_blocks(const HeadGroup& group, Slice queries, int64_t key_step, std::vector<Block>& blocks) const;
  std::vector<Slice> reachable_keys(const Pattern& pattern, Slice queries, int64_t key_step) const;
  int64_t scores_of_query(const Pattern& pattern) const;
  int64_t queries_per_block(const HeadGroup& group) const;
  void add_group(const HeadGroup& whole);
  bool all_visible(const Pattern& pattern, const Block& block, bool split_diagonal) const;
  void mark_hidden(const Pattern& pattern, const Block& block, int64_t b, int64_t token, bool* hidden) const;

  const Problem& problem_;
  Heads heads_;
  std::vector<HeadGroup> groups_;  // heads of one pattern, cut where they are too many for one block
  std::vector<int64_t>
      rank_;         // [batch * keys]: tokens of the same document before this one; empty: no documents
  bool one_offset_;  // all sequences have the same query offset
  int64_t longest_;  // the largest key length
};

}  // namespace iha::ops
