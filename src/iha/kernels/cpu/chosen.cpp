#include "iha/kernels/cpu/chosen.h"

#include <algorithm>
#include <cstring>

#include "iha/kernels/cpu/buffer.h"

namespace iha::cpu {

namespace {

// Whether four weights are +0, as most are.
bool four_zeros(const float* weights) {
  uint64_t words[2];
  std::memcpy(words, weights, sizeof words);
  return (words[0] | words[1]) == 0;
}

}  // namespace

View keys_of_block(const Problem& problem, int64_t block) {
  const int64_t begin = block * problem.block();
  return {begin, 1, std::min(problem.block(), problem.keys - begin)};
}

void ChosenQueries::find(const Plan& plan, int64_t batch, int64_t head, int64_t begin, int64_t end,
                         int64_t first, int64_t last) {
  const Problem& problem = plan.problem;
  const core::Array& array = plan.inputs.block_weights;
  const int64_t size = problem.block();
  const bool causal = problem.patterns[head].causal();
  last = std::min(last, divide_up(problem.keys_of(batch), size));
  first_ = first;
  begin_.assign(std::max<int64_t>(last - first, 0) + 1, 0);
  found_blocks_.clear();
  found_tokens_.clear();
  found_weights_.clear();
  for (int64_t token = begin; token < end; ++token) {
    const int64_t position = problem.query_offset[batch] + token;
    const int64_t seen = !causal ? last : position < 0 ? 0 : std::min(last, position / size + 1);
    const int64_t row = batch * array.strides[0] + head * array.strides[1] + token * array.strides[2];
    const auto* lie_together = array.dtype == DType::kFloat32 && array.strides[3] == 1
                                   ? static_cast<const float*>(array.data) + row
                                   : nullptr;
    for (int64_t block = first; block < seen; ++block) {
      while (lie_together != nullptr && block + 4 <= seen && four_zeros(lie_together + block)) block += 4;
      if (block == seen) break;
      const int64_t at = row + block * array.strides[3];
      const auto weight = array.dtype == DType::kFloat32
                              ? static_cast<const float*>(array.data)[at]
                              : static_cast<float>(load(array.data, array.dtype, at));
      if (!(weight >= static_cast<float>(kSmallestWeight))) continue;
      ++begin_[block - first + 1];
      found_blocks_.push_back(block);
      found_tokens_.push_back(token);
      found_weights_.push_back(weight);
    }
  }
  for (size_t block = 1; block < begin_.size(); ++block) begin_[block] += begin_[block - 1];
  // By block; tokens stay in order.
  std::vector<int64_t> next(begin_.begin(), begin_.end() - 1);
  tokens_.resize(found_tokens_.size());
  weights_.resize(found_tokens_.size());
  for (size_t i = 0; i < found_tokens_.size(); ++i) {
    const int64_t to = next[found_blocks_[i] - first]++;
    tokens_[to] = found_tokens_[i];
    weights_[to] = found_weights_[i];
  }
}

}  // namespace iha::cpu
