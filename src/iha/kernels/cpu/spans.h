// Who sees whom, as the kernels read it: each query row of a head is a range of key rows plus a prefix of
// first tokens, and where that does not say it all (documents, steps that were not gathered) 32 bits a row
// and panel. Derived from the pattern here, once, so that kernels never ask what "causal" means.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "iha/kernels/problem.h"

namespace iha::cpu {

// Tokens first, first + step, ...: a residue class, or all tokens. Before them may come a prefix of
// neighbouring tokens below `first`, from `prefix_first` on.
struct View {
  int64_t first = 0, step = 1, count = 0;  // count: the prefix too
  int64_t prefix = 0, prefix_first = 0;
  int64_t token(int64_t index) const {
    return index < prefix ? prefix_first + index : first + (index - prefix) * step;
  }
  // The index of the first token at or past `token`.
  int64_t index_from(int64_t token) const;
  // Tokens [begin, end) of the view, by index.
  View part(int64_t begin, int64_t end) const;
  bool operator==(const View&) const = default;
};

// Key rows that one query row sees: [begin, end) and [0, first_end). Rows of a view: index * rows_per_token +
// pseudo. Where a step is not in the view, tokens of [begin, end) whose index is `phase` modulo its period.
struct Span {
  int64_t begin = 0, end = 0, first_end = 0, phase = 0;
};

// How key rows relate to a group of query rows.
enum class Sight : uint8_t { kNone, kPartial, kFull };

struct Regions;

// One head's keys in one sequence. Of a learned head (`regions`) a row sees what a mode of positive weight
// shows; its span is the least that holds theirs, and panels are asked of the modes (query_tile.h).
class Scope {
 public:
  // `ranks`: of each token of the sequence among its document's, where documents meet first tokens; else
  // empty.
  Scope(const Problem& problem, int64_t batch, const Pattern& pattern, const View& keys,
        int64_t rows_per_token, std::span<const int64_t> ranks, const Regions* regions = nullptr);

  const Regions* regions() const { return regions_; }
  const std::vector<Scope>& modes() const { return modes_; }
  // Spans say it all: no bits are needed.
  bool spans_decide() const { return documents_.empty() && !step_hides_ && regions_ == nullptr; }
  int64_t rows() const { return rows_; }      // of the view, cut to the sequence's length
  const View& view() const { return view_; }  // cut likewise
  // The query at absolute position `position`, pseudo-query `pseudo` (0 where a token has one row).
  Span span(int64_t position, int64_t pseudo) const;
  // Bit c: is key row `row` + c visible?
  uint32_t bits(const Span& span, int64_t position, int64_t row) const;
  // The same for `count` query rows at once.
  void bits(const Span* spans, const int64_t* positions, int64_t count, int64_t row, uint32_t* bits) const;
  // Whether the row sees any key at all.
  bool sees_any(const Span& span, int64_t position, int64_t pseudo) const;
  // What `count` query rows see of the panel of 32 key rows from `row`.
  Sight sight(const Span* spans, const int64_t* positions, int64_t count, int64_t row) const;

 private:
  bool key_visible(const Span& span, int64_t position, int64_t index, int64_t row) const;
  // Bits of the rows on the step: `ahead` tokens from that of `row` to the next one on it.
  uint32_t step_bits(int64_t ahead, int64_t row) const;

  Pattern pattern_;
  View view_;
  int64_t rows_per_token_, rows_;
  bool flat_;           // a causal head in flat order: at j = i only pseudo-keys up to the pseudo-query's own
  int64_t period_ = 1;  // of the step, in tokens of the view
  uint32_t on_step_ = ~0u;  // bits of every period_-th of 32 tokens
  bool step_hides_;         // the step is not in the view: period_ > 1
  const Regions* regions_;
  std::vector<Scope> modes_;
  std::span<const int64_t> documents_, ranks_;
  std::vector<std::pair<int64_t, int64_t>> panel_documents_;  // smallest and largest number of a panel
};

// Views of a head: which queries and keys can see each other by its step, first tokens as the prefix of every
// class. One pair of all tokens where gathering does not pay; where first tokens are those of documents, or
// queries are few (one reads its keys in place, which have no prefix then).
constexpr int64_t kFewQueries = 32;
struct ViewPair {
  View queries, keys;
};
std::vector<ViewPair> split_by_step(const Problem& problem, const Pattern& pattern, int64_t query_offset);

// For each token of each sequence, how many tokens of its document come before it: [batch * keys],
// or nothing without documents.
std::vector<int64_t> document_ranks(const Problem& problem);

}  // namespace iha::cpu
