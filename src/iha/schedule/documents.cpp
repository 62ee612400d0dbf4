#include "iha/schedule/documents.h"

#include <algorithm>
#include <cassert>
#include <unordered_map>

namespace iha {
namespace {

DocumentSpan join(const DocumentSpan& a, const DocumentSpan& b) {
  return {.least_document = std::min(a.least_document, b.least_document),
          .greatest_document = std::max(a.greatest_document, b.greatest_document),
          .least_rank = std::min(a.least_rank, b.least_rank),
          .first_token = std::min(a.first_token, b.first_token),
          .last_token = std::max(a.last_token, b.last_token)};
}

}  // namespace

DocumentIndex::DocumentIndex(std::span<const int64_t> numbers)
    : tokens_(static_cast<int64_t>(numbers.size())), tree_(2 * numbers.size()) {
  struct Document {
    int64_t index = 0;
    int64_t tokens = 0;
    int64_t first_token = 0;
    int64_t last_token = 0;
  };
  std::unordered_map<int64_t, Document> documents;
  for (int64_t token = 0; token < tokens_; ++token) {
    const Document next{.index = static_cast<int64_t>(documents.size()), .first_token = token};
    Document& document = documents.try_emplace(numbers[token], next).first->second;
    document.last_token = token;
    tree_[tokens_ + token] = {.least_document = document.index,
                              .greatest_document = document.index,
                              .least_rank = document.tokens++,
                              .first_token = document.first_token};
  }
  for (int64_t token = 0; token < tokens_; ++token) {
    tree_[tokens_ + token].last_token = documents[numbers[token]].last_token;
  }
  for (int64_t node = tokens_ - 1; node > 0; --node) tree_[node] = join(tree_[2 * node], tree_[2 * node + 1]);
}

DocumentSpan DocumentIndex::span(int64_t begin, int64_t end) const {
  assert(0 <= begin && begin < end && end <= tokens_);
  DocumentSpan result = tree_[tokens_ + begin];
  // From the leaves up: a right child at the left edge, a left child at the right edge have no parent inside.
  for (int64_t left = tokens_ + begin, right = tokens_ + end; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) result = join(result, tree_[left++]);
    if (right % 2 == 1) result = join(result, tree_[--right]);
  }
  return result;
}

}  // namespace iha
