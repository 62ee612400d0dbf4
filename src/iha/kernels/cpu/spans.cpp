#include "iha/kernels/cpu/spans.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "iha/kernels/cpu/buffer.h"
#include "iha/kernels/cpu/primitives.h"
#include "iha/kernels/cpu/regions.h"
#include "iha/patterns/arithmetic.h"

namespace iha::cpu {
namespace {

// Whether residue classes on their own cost less than masks on all pairs, in nanoseconds measured with 64
// channels: a class at least 1.2 us, and packing each of `first` tokens anew; of masks 3 ns a pair in the
// panels of 32 keys that hold any (8 rows of a group lie on steps of their own, so some more) and 0.27 ns a
// pair for looking at all the others.
bool classes_pay(int64_t queries, int64_t keys, int64_t every, int64_t first) {
  constexpr double kClass = 1200, kPack = 60, kPair = 3, kLook = 0.27, kTouched = 40;
  const auto all = static_cast<double>(keys), prefix = static_cast<double>(first),
             rows = static_cast<double>(queries);
  const double touched = std::min(all, kTouched * static_cast<double>(divide_up(keys, every)) + prefix);
  return static_cast<double>(std::min(every, queries)) * (kClass + kPack * prefix) + rows * prefix * kPair <=
         rows * (touched * kPair + all * kLook);
}

// Bits c of [0, 32) with begin <= row + c < end.
uint32_t range_bits(int64_t begin, int64_t end, int64_t row) {
  const int64_t low = std::clamp<int64_t>(begin - row, 0, 32), high = std::clamp<int64_t>(end - row, 0, 32);
  if (low >= high) return 0;
  return static_cast<uint32_t>(((uint64_t{1} << high) - 1) & ~((uint64_t{1} << low) - 1));
}

}  // namespace

int64_t View::index_from(int64_t token) const {
  if (token < prefix_first + prefix) return std::clamp<int64_t>(token - prefix_first, 0, count);
  if (token <= first) return std::min(count, prefix);
  return std::min(count, prefix + (step == 1 ? token - first : (token - first + step - 1) / step));
}

View View::part(int64_t begin, int64_t end) const {
  const int64_t prefix_begin = std::min(begin, prefix), prefix_end = std::min(end, prefix);
  return {token(std::max(begin, prefix)), step, end - begin, prefix_end - prefix_begin,
          prefix_first + prefix_begin};
}

Scope::Scope(const Problem& problem, int64_t batch, const Pattern& pattern, const View& keys,
             int64_t rows_per_token, std::span<const int64_t> ranks, const Regions* regions)
    : pattern_(pattern), view_(keys), rows_per_token_(rows_per_token), regions_(regions), ranks_(ranks) {
  for (size_t m = 0; regions != nullptr && m < regions->modes.size(); ++m) {
    modes_.emplace_back(problem, batch, regions->modes[m], keys, rows_per_token, ranks);
  }
  view_.count = keys.index_from(problem.keys_of(batch));
  rows_ = view_.count * rows_per_token;
  flat_ = problem.order == Order::kFlat && pattern.causal() && rows_per_token > 1;
  if (pattern.step != Step::kNone) period_ = pattern.every / std::gcd(pattern.every, view_.step);
  step_hides_ = period_ > 1;
  for (int64_t token = 0; token < kPanel; ++token) {
    if (token % period_ != 0) on_step_ &= ~(uint32_t{1} << token);
  }
  if (problem.documents.empty()) return;
  documents_ = std::span(problem.documents).subspan(batch * problem.keys, problem.keys);
  for (int64_t row = 0; row < rows_; row += kPanel) {
    auto& [low, high] = panel_documents_.emplace_back(INT64_MAX, INT64_MIN);
    const int64_t last = std::min(row + kPanel, rows_) - 1;
    for (int64_t index = row / rows_per_token; index <= last / rows_per_token; ++index) {
      low = std::min(low, documents_[view_.token(index)]);
      high = std::max(high, documents_[view_.token(index)]);
    }
  }
}

Span Scope::span(int64_t position, int64_t pseudo) const {
  if (regions_ != nullptr) {
    Span hull;
    for (size_t m = 0; m < modes_.size(); ++m) {
      if ((regions_->positive >> m & 1u) == 0) continue;
      const Span own = modes_[m].span(position, pseudo);
      hull.first_end = std::max(hull.first_end, own.first_end);
      if (own.begin >= own.end) continue;
      hull.begin = hull.end == 0 ? own.begin : std::min(hull.begin, own.begin);
      hull.end = std::max(hull.end, own.end);
    }
    return hull;
  }
  const Pattern& p = pattern_;
  constexpr int64_t kFar = int64_t{1} << 60;  // beyond any position, small enough to add to one
  int64_t begin = position - std::min(p.left, kFar), end = position + std::min(p.right, kFar) + 1;
  if (p.chunk > 0) {
    const int64_t chunk_begin = floor_div(position, p.chunk) * p.chunk;
    begin = std::max(begin, chunk_begin);
    // No overflow: a chunk longer than the position begins at 0, or at -chunk for a negative one.
    end = std::min(end, chunk_begin + p.chunk);
  }
  const auto rows_before = [&](int64_t token) { return view_.index_from(token) * rows_per_token_; };
  // Where the row's own token is the last one visible and order is flat, its later pseudo-keys are not.
  const auto rows_up_to = [&](int64_t token_end) {
    const int64_t rows = rows_before(token_end);
    const bool own =
        flat_ && token_end == position + 1 && rows > 0 && view_.token(rows / rows_per_token_ - 1) == position;
    return own ? rows - rows_per_token_ + pseudo + 1 : rows;
  };
  Span span{rows_before(begin), rows_up_to(end), 0};
  if (p.first > 0) {
    if (documents_.empty()) {
      span.first_end = rows_up_to(p.causal() ? std::min(p.first, position + 1) : p.first);
    } else {  // anywhere in the document: bits decide
      span.first_end = rows_up_to(p.causal() ? position + 1 : kFar);
    }
  }
  if (span.begin >= span.end) span.begin = span.end = 0;
  if (step_hides_) {  // the view holds whole classes of the step, so the division leaves no rest
    const int64_t origin = p.step == Step::kRelative ? position : 0;
    span.phase = floor_mod(floor_div(origin - view_.first, view_.step), period_);
  }
  return span;
}

bool Scope::key_visible(const Span& span, int64_t position, int64_t index, int64_t row) const {
  const int64_t token = view_.token(index);
  if (!documents_.empty() && documents_[token] != documents_[position]) return false;
  if (row < span.first_end && (documents_.empty() || ranks_[token] < pattern_.first)) return true;
  if (row < span.begin || row >= span.end) return false;
  return !step_hides_ || floor_mod(index - span.phase, period_) == 0;
}

uint32_t Scope::step_bits(int64_t ahead, int64_t row) const {
  if (ahead >= kPanel) return 0;
  if (rows_per_token_ == 1) return on_step_ << ahead;
  uint32_t bits = 0;
  const int64_t first = row - row % rows_per_token_ + ahead * rows_per_token_;
  for (int64_t own = first; own < row + kPanel; own += std::min(period_, kPanel) * rows_per_token_) {
    bits |= range_bits(own, own + rows_per_token_, row);
  }
  return bits;
}

void Scope::bits(const Span* spans, const int64_t* positions, int64_t count, int64_t row,
                 uint32_t* bits) const {
  if (!documents_.empty()) {
    for (int64_t i = 0; i < count; ++i) bits[i] = this->bits(spans[i], positions[i], row);
    return;
  }
  const int64_t phase = step_hides_ ? row / rows_per_token_ % period_ : 0;
  for (int64_t i = 0; i < count; ++i) {
    bits[i] = range_bits(spans[i].begin, spans[i].end, row);
    if (step_hides_ && bits[i] != 0) {
      const int64_t ahead = spans[i].phase - phase;
      bits[i] &= step_bits(ahead < 0 ? ahead + period_ : ahead, row);
    }
    bits[i] |= range_bits(0, spans[i].first_end, row);
  }
}

uint32_t Scope::bits(const Span& span, int64_t position, int64_t row) const {
  uint32_t bits = 0;
  if (documents_.empty()) {
    this->bits(&span, &position, 1, row, &bits);
    return bits;
  }
  const int64_t end = std::min(row + kPanel, rows_);
  for (int64_t key = row, index = row / rows_per_token_, next = (index + 1) * rows_per_token_; key < end;
       ++key) {
    if (key == next) {
      ++index;
      next += rows_per_token_;
    }
    if (key_visible(span, position, index, key)) bits |= uint32_t{1} << (key - row);
  }
  return bits;
}

bool Scope::sees_any(const Span& span, int64_t position, int64_t pseudo) const {
  for (size_t m = 0; m < modes_.size(); ++m) {
    if ((regions_->positive >> m & 1u) != 0 &&
        modes_[m].sees_any(modes_[m].span(position, pseudo), position, pseudo)) {
      return true;
    }
  }
  if (regions_ != nullptr) return false;
  const bool in_range = span.begin < span.end || span.first_end > 0;
  if (!in_range || (documents_.empty() && !step_hides_)) return in_range;
  for (int64_t row = 0; row < rows_; row += kPanel) {
    if (sight(&span, &position, 1, row) != Sight::kNone && bits(span, position, row) != 0) return true;
  }
  return false;
}

Sight Scope::sight(const Span* spans, const int64_t* positions, int64_t count, int64_t row) const {
  const int64_t end = row + kPanel;
  bool touched = false, full = !step_hides_;
  for (int64_t i = 0; i < count; ++i) {
    const Span& span = spans[i];
    touched |= (row < span.end && end > span.begin) || row < span.first_end;
    full &= (row >= span.begin && end <= span.end) || (documents_.empty() && end <= span.first_end);
  }
  if (!touched) return Sight::kNone;
  if (!documents_.empty()) {
    const auto [low, high] = panel_documents_[row / kPanel];
    bool meets = false;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t own = documents_[positions[i]];
      meets |= own >= low && own <= high;
      full &= own == low && own == high;
    }
    if (!meets) return Sight::kNone;
  }
  return full ? Sight::kFull : Sight::kPartial;
}

std::vector<ViewPair> split_by_step(const Problem& problem, const Pattern& pattern, int64_t query_offset) {
  const View all_queries{0, 1, problem.queries}, all_keys{0, 1, problem.keys};
  const int64_t every = pattern.every, first = std::min(pattern.first, problem.keys);
  if (pattern.step == Step::kNone || every == 1 || problem.queries == 0 || problem.keys == 0) {
    return {{all_queries, all_keys}};
  }
  if (first > 0 && (!problem.documents.empty() || problem.queries <= kFewQueries)) {
    return {{all_queries, all_keys}};
  }
  // First tokens, and those of the class of `key`, below `every`, that come after them.
  const auto class_of = [&](int64_t key) {
    const int64_t begin = first + floor_mod(key - first, every);
    const int64_t rest = begin < problem.keys ? divide_up(problem.keys - begin, every) : 0;
    return View{begin, every, first + rest, first, 0};
  };
  if (pattern.step == Step::kAbsolute) {
    if (every > problem.keys) return {{all_queries, {0, 1, std::max<int64_t>(1, first)}}};
    return {{all_queries, class_of(0)}};
  }
  if (every > problem.keys || !classes_pay(problem.queries, problem.keys, every, first)) {
    return {{all_queries, all_keys}};
  }
  std::vector<ViewPair> pairs;
  for (int64_t residue = 0; residue < std::min(every, problem.queries); ++residue) {
    pairs.push_back({{residue, every, divide_up(problem.queries - residue, every)},
                     class_of(floor_mod(query_offset + residue, every))});
  }
  return pairs;
}

std::vector<int64_t> document_ranks(const Problem& problem) {
  std::vector<int64_t> ranks(problem.documents.size());
  if (ranks.empty()) return ranks;
  for (int64_t b = 0; b < problem.batch; ++b) {
    std::unordered_map<int64_t, int64_t> seen;
    for (int64_t j = 0; j < problem.keys; ++j) {
      ranks[b * problem.keys + j] = seen[problem.documents[b * problem.keys + j]]++;
    }
  }
  return ranks;
}

}  // namespace iha::cpu
