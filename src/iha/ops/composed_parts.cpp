#include "iha/ops/composed_parts.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "iha/ops/linear_maps.h"

namespace iha::ops {
namespace {

bool is_range(const std::vector<int64_t>& heads) {
  for (size_t at = 1; at < heads.size(); ++at) {
    if (heads[at] != heads[0] + static_cast<int64_t>(at)) return false;
  }
  return true;
}

at::Tensor index_of(const std::vector<int64_t>& heads, at::Device device) {
  return at::tensor(heads, at::kLong).to(device);
}

at::Tensor tokens(const at::Tensor& x, const Slice& slice) {
  return x.slice(2, slice.begin, slice.begin + (slice.count - 1) * slice.step + 1, slice.step);
}

}  // namespace

at::Tensor widened(const Arguments& arguments, Input input) {
  const at::Tensor& tensor = arguments.inputs[input];
  return tensor.defined() ? tensor.to(accumulate_type(arguments.query().scalar_type())) : tensor;
}

at::Tensor sinks_of_heads(const Arguments& arguments, const Problem& problem) {
  const at::Tensor sinks = widened(arguments, kSinks);
  return sinks.defined() && problem.layout == Layout::kParallel ? sinks.repeat(problem.pseudo_heads) : sinks;
}

std::vector<int64_t> offsets_of(const Problem& problem) {
  const std::vector<int64_t>& all = problem.query_offset;
  const bool one = std::all_of(all.begin(), all.end(), [&](int64_t offset) { return offset == all.front(); });
  return one && !all.empty() ? std::vector<int64_t>{all.front()} : all;
}

PseudoHeads make_pseudo_heads(const Arguments& arguments, const Problem& problem) {
  const auto mixed = [&](Input input, Input alpha) {
    return mix(widened(arguments, input), widened(arguments, alpha), problem);
  };
  PseudoHeads result;
  // Scaled before the product, which then overflows no earlier than the scaled score does.
  result.query = turn(mixed(kQuery, kAlphaQ), offsets_of(problem), problem, 1).mul(problem.scale);
  result.key = turn(mixed(kKey, kAlphaK), {0}, problem, 1);
  if (arguments.value().defined()) result.value = mixed(kValue, kAlphaV);
  return result;
}

at::Tensor take_heads(const at::Tensor& x, int64_t dim, const std::vector<int64_t>& heads) {
  if (!is_range(heads)) return x.index_select(dim, index_of(heads, x.device()));
  return x.narrow(dim, heads.front(), static_cast<int64_t>(heads.size()));
}

void add_to_keys(const at::Tensor& sum, const std::vector<int64_t>& heads, const std::vector<Slice>& slices,
                 const at::Tensor& keys) {
  const auto count = static_cast<int64_t>(heads.size());
  int64_t column = 0;
  for (const Slice& slice : slices) {
    const int64_t columns = slice.count * sum.size(3);
    const at::Tensor share =
        keys.narrow(1, column, columns).reshape({sum.size(0), count, slice.count, sum.size(3), sum.size(4)});
    const at::Tensor place = tokens(sum, slice);
    if (is_range(heads)) {
      place.narrow(1, heads.front(), count).add_(share);
    } else {
      place.index_add_(1, index_of(heads, sum.device()), share);
    }
    column += columns;
  }
}

void put_rows(const at::Tensor& x, const std::vector<int64_t>& heads, const Slice& slice,
              const at::Tensor& rows) {
  const auto count = static_cast<int64_t>(heads.size());
  const at::Tensor shaped = rows.reshape({x.size(0), count, slice.count, x.size(3), x.size(4)});
  const at::Tensor place = tokens(x, slice);
  if (is_range(heads)) {
    place.narrow(1, heads.front(), count).copy_(shaped);
  } else {
    place.index_copy_(1, index_of(heads, x.device()), shaped);
  }
}

at::Tensor take_rows(const at::Tensor& x, const Slice& slice, int64_t fold) {
  const int64_t matrices = x.size(0) * x.size(1) / fold;
  return tokens(x, slice).reshape({matrices, fold * slice.count * x.size(3), x.size(4)});
}

at::Tensor take_keys(const at::Tensor& x, const std::vector<Slice>& slices) {
  if (slices.size() == 1) return take_rows(x, slices.front(), 1);
  std::vector<at::Tensor> pieces;
  for (const Slice& slice : slices) pieces.push_back(take_rows(x, slice, 1));
  return at::cat(pieces, 1);
}

BlockScores block_scores(const at::Tensor& query, const at::Tensor& key, int64_t batch, int64_t heads) {
  BlockScores result;
  result.scores = product(query, key.transpose(1, 2));
  const int64_t rows = result.scores.size(0) * result.scores.size(1) / (batch * heads);
  result.by_head = result.scores.view({batch, heads, rows, key.size(1)});
  return result;
}

at::Tensor product_mask(const at::Tensor& hidden, const BlockScores& block) {
  return hidden.defined() ? hidden.expand(block.by_head.sizes()).reshape(block.scores.sizes()) : hidden;
}

at::Tensor token_major(const at::Tensor& x, at::ScalarType dtype) {
  const at::Tensor memory =
      at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options().dtype(dtype)).transpose(1, 2);
  memory.copy_(x);
  return memory;
}

}  // namespace iha::ops
