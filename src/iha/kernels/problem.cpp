#include "iha/kernels/problem.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "iha/core/error.h"

namespace iha {
namespace {

// The largest |position| * P: angles are formed in float64, which holds integers exactly up to here.
constexpr int64_t kLargestPosition = (int64_t{1} << 53) - 1;
// Counters of the dropout mask are 32-bit words; a word of columns counts four of them.
constexpr int64_t kWords = int64_t{1} << 32;

void check_sizes(const Problem& problem, std::string_view name) {
  const auto at_least = [&](int64_t size, int64_t least, std::string_view what) {
    check(size >= least, name, ": ", what, " is ", size, ", expected at least ", least);
  };
  at_least(problem.batch, 0, "batch size");
  at_least(problem.query_heads, 0, "number of query heads");
  at_least(problem.key_heads, 0, "number of key heads");
  at_least(problem.queries, 0, "number of queries");
  at_least(problem.keys, 0, "number of keys");
  at_least(problem.head_dim, 0, "head dimension");
  at_least(problem.value_dim, 0, "value dimension");
  at_least(problem.pseudo_heads, 1, "number of pseudo-heads");
  const bool multiple =
      problem.key_heads == 0 ? problem.query_heads == 0 : problem.query_heads % problem.key_heads == 0;
  check(multiple, name, ": ", problem.query_heads, " query heads is not a multiple of ", problem.key_heads,
        " key heads");
}

void check_patterns(const Problem& problem, std::string_view name) {
  const auto count = static_cast<int64_t>(problem.patterns.size());
  check(count == problem.query_heads, name, ": ", count, " patterns for ", problem.query_heads,
        " query heads, expected one a head");
  for (const Pattern& pattern : problem.patterns) check(pattern, name);
  dynamic_block(problem.patterns, name);
}

void check_rope(const Problem& problem, std::string_view name) {
  const Rope& rope = problem.rope;
  if (rope.kind == RopeKind::kNone) {
    check(rope.frequencies.empty(), name, ": ", rope.frequencies.size(),
          " RoPE frequencies without RoPE, expected rope token or virtual");
    return;
  }
  if (rope.frequencies.empty()) {
    check(problem.head_dim % 2 == 0, name, ": head dimension is ", problem.head_dim,
          ", expected even with RoPE");
    check(std::isfinite(rope.theta) && rope.theta > 0, name, ": rope_theta is ", rope.theta,
          ", expected a positive number");
    return;
  }
  check(static_cast<int64_t>(rope.frequencies.size()) <= problem.head_dim / 2, name, ": ",
        rope.frequencies.size(), " RoPE frequencies, expected at most ", problem.head_dim / 2,
        " for head dimension ", problem.head_dim);
  for (const double frequency : rope.frequencies) {
    check(std::isfinite(frequency), name, ": a RoPE frequency is ", frequency, ", expected a finite number");
  }
}

void check_positions(const Problem& problem, std::string_view name) {
  const int64_t limit = kLargestPosition / problem.pseudo_heads;
  check(problem.keys <= limit && problem.queries <= limit, name, ": ", problem.queries, " queries and ",
        problem.keys, " keys of ", problem.pseudo_heads, " pseudo-heads, expected positions below 2^53 / P");
  const auto count = static_cast<int64_t>(problem.query_offset.size());
  check(count == problem.batch, name, ": ", count, " query offsets, expected one for each of ", problem.batch,
        " sequences");
  for (const int64_t offset : problem.query_offset) {
    check(-limit <= offset && offset <= limit - std::max<int64_t>(problem.queries - 1, 0), name,
          ": query offset is ", offset, " with ", problem.queries, " queries and ", problem.pseudo_heads,
          " pseudo-heads, expected |position| * P < 2^53");
  }
}

void check_lengths(const Problem& problem, std::string_view name) {
  if (problem.key_lengths.empty()) return;
  const auto count = static_cast<int64_t>(problem.key_lengths.size());
  check(count == problem.batch, name, ": ", count, " key lengths, expected one for each of ", problem.batch,
        " sequences");
  for (const int64_t length : problem.key_lengths) {
    check(0 <= length && length <= problem.keys, name, ": key length is ", length, ", expected 0 to ",
          problem.keys, " (the number of keys)");
  }
}

void check_documents(const Problem& problem, std::string_view name) {
  if (problem.documents.empty()) return;
  const auto count = static_cast<int64_t>(problem.documents.size());
  check(count == problem.batch * problem.keys, name, ": ", count, " document numbers, expected ",
        problem.batch, " * ", problem.keys, " (one a token)");
  if (problem.queries == 0) return;
  for (const int64_t offset : problem.query_offset) {
    check(0 <= offset && offset + problem.queries <= problem.keys, name,
          ": with documents the queries lie at ", offset, " to ", offset + problem.queries - 1,
          ", expected within 0 to ", problem.keys - 1);
  }
}

void check_dropout(const Problem& problem, std::string_view name) {
  const double p = problem.dropout_p;
  check(0 <= p && p <= 1, name, ": dropout_p is ", p, ", expected 0 to 1");
  if (p == 0) return;
  const int64_t pseudo = problem.pseudo_heads;
  check(problem.queries <= kWords / pseudo && problem.keys <= 4 * kWords / pseudo, name, ": ",
        problem.queries, " queries and ", problem.keys, " keys of ", pseudo,
        " pseudo-heads, expected at most 2^32 pseudo-queries and 2^34 pseudo-keys with dropout");
  check(problem.query_heads == 0 || problem.batch <= kWords / problem.query_heads, name, ": batch ",
        problem.batch, " of ", problem.query_heads, " query heads, expected at most 2^32 pairs with dropout");
}

}  // namespace

int64_t Problem::block() const {
  for (const Pattern& pattern : patterns) {
    if (pattern.dynamic()) return pattern.block;
  }
  return 0;
}

int64_t Problem::key_blocks() const {
  const int64_t size = block();
  return size == 0 ? 0 : keys / size + (keys % size == 0 ? 0 : 1);
}

void check_weight(double weight, std::string_view operator_name, std::string_view what) {
  if (is_weight(weight)) return;
  fail(operator_name, ": a value of ", what, " is ", std::isnan(weight) ? std::string("NaN") : text(weight),
       ", expected a finite number of at least 0");
}

void check(const Problem& problem, std::string_view operator_name) {
  check_sizes(problem, operator_name);
  check_patterns(problem, operator_name);
  check(std::isfinite(problem.scale), operator_name, ": scale is ", problem.scale,
        ", expected a finite number");
  check_rope(problem, operator_name);
  check_positions(problem, operator_name);
  check_lengths(problem, operator_name);
  check_documents(problem, operator_name);
  check_dropout(problem, operator_name);
}

Visibility::Visibility(const Problem& problem) : problem_(problem), rank_(problem.documents.size()) {
  for (std::size_t b = 0; b * problem.keys < rank_.size(); ++b) {
    std::unordered_map<int64_t, int64_t> tokens_of_document;
    for (int64_t j = 0; j < problem.keys; ++j) {
      const std::size_t token = b * problem.keys + j;
      rank_[token] = tokens_of_document[problem.documents[token]]++;
    }
  }
}

uint32_t Visibility::candidates(int64_t b, int64_t h, int64_t i, int64_t p, int64_t j, int64_t r) const {
  if (j >= problem_.keys_of(b)) return 0;
  if (problem_.layout == Layout::kParallel && r != p) return 0;
  const Pattern& pattern = problem_.patterns[h];
  if (!pattern.learned()) return shows(pattern, b, i, p, j, r) ? 1 : 0;
  uint32_t bits = 0;
  for (std::size_t m = 0; m < pattern.candidates.size(); ++m) {
    if (shows(pattern.candidates[m], b, i, p, j, r)) bits |= uint32_t{1} << m;
  }
  return bits;
}

bool Visibility::shows(const Pattern& pattern, int64_t b, int64_t i, int64_t p, int64_t j, int64_t r) const {
  const int64_t position = problem_.query_offset[b] + i;
  int64_t rank = j;
  if (!problem_.documents.empty()) {
    const int64_t* documents = problem_.documents.data() + b * problem_.keys;
    if (documents[position] != documents[j]) return false;
    rank = rank_[b * problem_.keys + j];
  }
  if (problem_.order == Order::kFlat && pattern.causal() && j == position && r > p) return false;
  return base_visible(pattern, position, j) || (rank < pattern.first && (!pattern.causal() || j <= position));
}

}  // namespace iha
