// The document numbers of one sequence, prepared once, so that the documents and the first tokens of any tile
// are found without reading its tokens. Not here: what a pattern makes of them (tiles.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace iha {

// Of a range of tokens.
struct DocumentSpan {
  // Their documents lie between these two (both occur).
  int64_t least_document = 0;
  int64_t greatest_document = 0;
  // No token of the range has fewer tokens of its own document before it.
  int64_t least_rank = 0;
  // Where all the tokens of those documents lie, in the range or not.
  int64_t first_token = 0;
  int64_t last_token = 0;

  bool one_document() const { return least_document == greatest_document; }
};

class DocumentIndex {
 public:
  // `numbers` [N]: any values, in any order, and they may return. O(N) time, 80 bytes a token.
  explicit DocumentIndex(std::span<const int64_t> numbers);

  int64_t tokens() const { return tokens_; }
  // Tokens [begin, end), 0 <= begin < end <= tokens(). Documents are counted in the order in which they first
  // occur, whatever their numbers. O(log(end - begin)).
  DocumentSpan span(int64_t begin, int64_t end) const;
  // How many tokens of the same document come before `token`: it is a first token where this is below S.
  int64_t rank(int64_t token) const { return tree_[tokens_ + token].least_rank; }

 private:
  int64_t tokens_;
  std::vector<DocumentSpan>
      tree_;  // node k joins 2k and 2k + 1; leaf of token t at tokens_ + t; node 0 unused
};

}  // namespace iha
