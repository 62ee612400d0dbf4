// Which queries of a dynamic head chose which block of keys: the work of such a head, block by block, so that
// what nobody chose costs nothing and queries that chose alike share a product however far apart they lie.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "iha/kernels/cpu/plan.h"

namespace iha::cpu {

class ChosenQueries {
 public:
  // Query tokens [begin, end) of `head` and key blocks [first, last) of sequence `batch`. Choices are block
  // weights > 0 of blocks that begin before the sequence's length and, in causal heads, not after the query.
  void find(const Plan& plan, int64_t batch, int64_t head, int64_t begin, int64_t end, int64_t first,
            int64_t last);
  // Of one block: tokens, ascending, and the weights of their choices.
  std::span<const int64_t> tokens(int64_t block) const { return of(tokens_, block); }
  std::span<const float> weights(int64_t block) const { return of(weights_, block); }
  // Where the block's choices begin among all, which are numbered by blocks.
  int64_t number(int64_t block) const { return begin_[block - first_]; }
  int64_t count() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  template <class T>
  std::span<const T> of(const std::vector<T>& all, int64_t block) const {
    if (block - first_ + 1 >= static_cast<int64_t>(begin_.size())) return {};  // past the sequence's length
    const int64_t begin = begin_[block - first_];
    return std::span(all).subspan(begin, begin_[block - first_ + 1] - begin);
  }

  int64_t first_ = 0;
  std::vector<int64_t> begin_;  // a block, and the end
  std::vector<int64_t> tokens_, found_blocks_, found_tokens_;
  std::vector<float> weights_, found_weights_;
};

// The keys of one block: a view of its own, so that blocks of any size begin a panel.
View keys_of_block(const Problem& problem, int64_t block);

}  // namespace iha::cpu
