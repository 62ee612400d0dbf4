#include "iha/kernels/cpu/plan.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "iha/core/philox.h"
#include "iha/kernels/cpu/buffer.h"

namespace iha::cpu {
namespace {

constexpr int64_t kFinePositions = 64;

std::vector<float> widened(const core::Array& array, int64_t outer, int64_t middle, int64_t inner) {
  std::vector<float> values;
  if (array.data == nullptr) return values;
  values.reserve(outer * middle * inner);
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t j = 0; j < middle; ++j) {
      for (int64_t k = 0; k < inner; ++k) {
        const int64_t at = i * array.strides[0] + j * array.strides[1] + k * array.strides[2];
        values.push_back(static_cast<float>(load(array.data, array.dtype, at)));
      }
    }
  }
  return values;
}

}  // namespace

std::vector<Slice> Plan::slices_at(int64_t query_offset) const {
  std::vector<Slice> slices;
  for (int64_t begin = 0; begin < problem.query_heads;) {
    const int64_t key_head = begin / problem.group();
    const Pattern& pattern = problem.patterns[begin];
    if (pattern.learned()) {
      add_learned(begin++, query_offset, slices);
      continue;
    }
    int64_t end = begin + 1;
    while (!pattern.dynamic() && end < (key_head + 1) * problem.group() && problem.patterns[end] == pattern) {
      ++end;
    }
    for (const ViewPair& views : split_by_step(problem, pattern, query_offset)) {
      slices.push_back({key_head, begin, end, pattern, views.queries, views.keys});
    }
    begin = end;
  }
  return slices;
}

void Plan::add_learned(int64_t head, int64_t query_offset, std::vector<Slice>& slices) const {
  const Regions& regions = *regions_[head];
  Slice slice{head / problem.group(), head, head + 1, problem.patterns[head], {0, 1, problem.queries}, {}};
  if (regions.positive == 0) {  // sees nothing
    slice.pattern = global();
    slices.push_back(slice);
    return;
  }
  const bool one = regions.modes.size() == 1 && !mode_gradients_;
  if (one) {
    slice.pattern = regions.modes.front();
    slice.log2_weight = std::log2(regions.weight[1]);
  } else {
    slice.regions = &regions;
  }
  for (const ViewPair& views : one ? split_by_step(problem, slice.pattern, query_offset)
                                   : split_by_modes(problem, regions, query_offset)) {
    slice.queries = views.queries;
    slice.keys = views.keys;
    slices.push_back(slice);
  }
}

Scope Plan::scope(int64_t batch, const Slice& slice, const View& keys) const {
  return Scope(problem, batch, slice.pattern, keys, rows_per_token, ranks_of(batch), slice.regions);
}

Rotation::Rotation(const Problem& problem) : style_(problem.rope.style) {
  if (problem.rope.kind == RopeKind::kNone) return;
  frequencies_ = rope_frequencies(problem.rope, problem.head_dim);
  pairs_ = static_cast<int64_t>(frequencies_.size());
  if (pairs_ == 0) return;
  const int64_t positions =
      problem.keys * (problem.rope.kind == RopeKind::kVirtual ? problem.pseudo_heads : 1);
  blocks_ = divide_up(positions, kFinePositions);
  fine_.resize(2 * pairs_ * kFinePositions);
  coarse_.resize(2 * pairs_ * blocks_);
  for (int64_t i = 0; i < kFinePositions; ++i) fill(static_cast<double>(i), &fine_[2 * pairs_ * i]);
  for (int64_t i = 0; i < blocks_; ++i)
    fill(static_cast<double>(i * kFinePositions), &coarse_[2 * pairs_ * i]);
}

void Rotation::fill(double position, double* target) const {
  for (int64_t c = 0; c < pairs_; ++c) {
    target[c] = std::cos(position * frequencies_[c]);
    target[pairs_ + c] = std::sin(position * frequencies_[c]);
  }
}

std::pair<const double*, const double*> Rotation::angles(int64_t position, double* scratch) const {
  const int64_t within =
      position & (kFinePositions - 1);  // also for negative positions: blocks begin at multiples
  const int64_t block = (position - within) / kFinePositions;
  const double* fine = &fine_[2 * pairs_ * within];
  if (block >= 0 && block < blocks_) return {&coarse_[2 * pairs_ * block], fine};
  fill(static_cast<double>(position - within), scratch);
  return {scratch, fine};
}

Plan::Plan(const Problem& problem, const core::AttentionInputs& inputs, Isa isa, bool mode_gradients)
    : problem(problem),
      inputs(inputs),
      primitives(cpu::primitives(isa, inputs.query.dtype)),
      element_size(static_cast<int64_t>(size_of(inputs.query.dtype))),
      streams(problem.layout == Layout::kParallel ? problem.pseudo_heads : 1),
      rows_per_token(problem.layout == Layout::kParallel ? 1 : problem.pseudo_heads),
      key_depth(primitives.pairs ? divide_up(problem.head_dim, 2) : problem.head_dim),
      value_depth(primitives.pairs ? divide_up(problem.value_dim, 2) : problem.value_dim),
      key_columns(round_up(problem.head_dim, kColumnMultiple)),
      value_columns(round_up(problem.value_dim, kColumnMultiple)),
      rotation(problem),
      alpha_q(widened(inputs.alpha_q, problem.query_heads, problem.query_heads, problem.pseudo_heads)),
      alpha_k(widened(inputs.alpha_k, problem.key_heads, problem.key_heads, problem.pseudo_heads)),
      alpha_v(widened(inputs.alpha_v, problem.key_heads, problem.key_heads, problem.pseudo_heads)),
      sinks(widened(inputs.sinks, problem.query_heads, 1, 1)),
      mode_weights(widened(inputs.mode_weights, problem.query_heads, problem.modes(), 1)),
      mode_gradients_(mode_gradients) {
  const int64_t heads = problem.query_heads, pseudo_heads = problem.pseudo_heads;
  if (problem.collapse == CollapseKind::kMean && pseudo_heads > 1)
    collapse.assign(heads * pseudo_heads, 1.0f / static_cast<float>(pseudo_heads));
  if (problem.collapse == CollapseKind::kPerHead) collapse = widened(inputs.collapse, heads, pseudo_heads, 1);
  if (problem.collapse == CollapseKind::kGlobal)
    collapse = widened(inputs.collapse, heads, heads, pseudo_heads);
  // The sign of the scale goes into the queries, and so does a scale of 0: masks of -inf times 0 would be
  // NaN.
  const double log2_e = std::numbers::log2e;
  query_factor = problem.scale > 0 ? 1.0f : problem.scale < 0 ? -1.0f : 0.0f;
  log2_scale = static_cast<float>(problem.scale == 0 ? log2_e : std::abs(problem.scale) * log2_e);
  drop_threshold = problem.dropout_p > 0 ? dropout_threshold(problem.dropout_p) : 0;
  keep_scale = problem.dropout_p < 1 ? static_cast<float>(1.0 / (1.0 - problem.dropout_p)) : 0.0f;

  const bool first =
      std::any_of(problem.patterns.begin(), problem.patterns.end(), [](const Pattern& pattern) {
        return pattern.first > 0 || std::any_of(pattern.candidates.begin(), pattern.candidates.end(),
                                                [](const Pattern& candidate) { return candidate.first > 0; });
      });
  if (first && !problem.documents.empty()) ranks = document_ranks(problem);
  for (float& weight : mode_weights) {
    if (!(weight >= static_cast<float>(kSmallestWeight))) weight = 0.0f;
  }
  regions_.resize(heads);
  for (int64_t head = 0; head < heads; ++head) {
    const Pattern& pattern = problem.patterns[head];
    if (!pattern.learned()) continue;
    const auto own = std::span(mode_weights).subspan(head * problem.modes(), pattern.candidates.size());
    regions_[head] = std::make_unique<Regions>(pattern, own, mode_gradients, log2_scale);
  }
  const auto& offsets = problem.query_offset;
  const bool one_offset =
      std::all_of(offsets.begin(), offsets.end(), [&](int64_t offset) { return offset == offsets.front(); });
  for (int64_t b = 0; b < (one_offset ? std::min<int64_t>(1, problem.batch) : problem.batch); ++b) {
    slices_.push_back(slices_at(offsets[b]));
  }
}

std::span<const int64_t> Plan::ranks_of(int64_t batch) const {
  if (ranks.empty()) return {};
  return std::span(ranks).subspan(batch * problem.keys, problem.keys);
}

}  // namespace iha::cpu
