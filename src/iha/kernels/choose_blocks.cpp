#include "iha/kernels/choose_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "iha/patterns/arithmetic.h"

namespace iha {
namespace {

// Queries a task takes: some ten microseconds of work.
constexpr int64_t kQueries = 128;

// The places of the highest of a row of scores, one after the other. Scores stand in groups of 8 with the
// maximum of each, so that one costs count / 8 + 16 comparisons, not count.
template <class Real>
class Highest {
 public:
  static constexpr Real kNone = -std::numeric_limits<Real>::infinity();

  // Scores [0, count) but `skipped`; NaN counts as -inf.
  void read(const Real* scores, int64_t count, int64_t skipped) {
    const int64_t groups = (count + kGroup - 1) / kGroup;
    scores_.resize(groups * kGroup);
    maxima_.resize(groups);
    for (int64_t j = 0; j < count; ++j) scores_[j] = scores[j] > kNone ? scores[j] : kNone;
    std::fill(scores_.begin() + count, scores_.end(), kNone);
    if (skipped >= 0 && skipped < count) scores_[skipped] = kNone;
    for (int64_t g = 0; g < groups; ++g) maxima_[g] = maximum(g);
  }
  // The place of the highest score left, the first of equal ones, which is then gone; -1 where none is left.
  int64_t take() {
    const auto group = std::max_element(maxima_.begin(), maxima_.end()) - maxima_.begin();
    if (maxima_.empty() || maxima_[group] == kNone) return -1;
    Real* in_group = scores_.data() + group * kGroup;
    const auto place = std::find(in_group, in_group + kGroup, maxima_[group]) - in_group;
    in_group[place] = kNone;
    maxima_[group] = maximum(group);
    return group * kGroup + place;
  }

 private:
  static constexpr int64_t kGroup = 8;

  Real maximum(int64_t group) const {
    const Real* scores = scores_.data() + group * kGroup;
    Real largest = scores[0];
    for (int64_t j = 1; j < kGroup; ++j) largest = scores[j] > largest ? scores[j] : largest;
    return largest;
  }

  std::vector<Real> scores_, maxima_;
};

struct Row {
  int64_t own, eligible;  // block own, and the end of the blocks that may be chosen
  friend bool operator==(const Row&, const Row&) = default;
};

Row row_of(const BlockChoice& choice, const Pattern& pattern, int64_t b, int64_t i) {
  const int64_t exist = choice.key_lengths.empty() ? choice.keys : choice.key_lengths[b];
  const int64_t own = floor_div(choice.query_offset[b] + i, pattern.block);
  const int64_t blocks = (exist + pattern.block - 1) / pattern.block;
  return {own, pattern.causal() ? std::clamp<int64_t>(own, 0, blocks) : blocks};
}

struct Sizes {
  explicit Sizes(const BlockChoice& choice)
      : block(dynamic_block(choice.patterns, "iha::choose_blocks")),
        heads(static_cast<int64_t>(choice.patterns.size())),
        blocks(block == 0 ? 0 : (choice.keys + block - 1) / block),
        rows((choice.queries + choice.tile - 1) / choice.tile),
        place(heads) {
    for (int64_t h = 0; h < heads; ++h) {
      place[h] = choice.patterns[h].dynamic() ? dynamic++ : -1;
      if (place[h] >= 0) head_of.push_back(h);
    }
  }
  int64_t block, heads, blocks, rows, dynamic = 0;  // tokens of a block; of scores
  std::vector<int64_t> place, head_of;              // of a head among the dynamic ones, and back
};

template <class Real>
void choose_row(const Pattern& pattern, const Row& row, int64_t blocks, const Real* scores, Real* weights,
                Highest<Real>& highest) {
  std::fill_n(weights, blocks, Real{0});
  if (row.own >= 0 && row.own < blocks) weights[row.own] = 1;
  highest.read(scores, row.eligible, row.own);
  for (int64_t k = std::min(pattern.chosen, row.eligible); k > 0; --k) {
    const int64_t block = highest.take();
    if (block < 0) return;
    weights[block] = 1 / (1 + std::exp(-scores[block]));
  }
}

}  // namespace

template <class Real>
void choose_blocks(const BlockChoice& choice, const Real* scores, Real* weights,
                   const ParallelFor& parallel) {
  const Sizes sizes(choice);
  if (sizes.block == 0) return;
  const int64_t heads = sizes.heads, blocks = sizes.blocks;
  // A tile lies in one task.
  const int64_t step = (kQueries + choice.tile - 1) / choice.tile * choice.tile;
  const int64_t cuts = (choice.queries + step - 1) / step;
  std::vector<Highest<Real>> highest(parallel.workers);
  parallel.run(choice.batch * heads * cuts, [&](int64_t task, int worker) {
    const int64_t cut = task % cuts, h = task / cuts % heads, b = task / cuts / heads;
    const int64_t begin = cut * step, end = std::min(begin + step, choice.queries);
    const Pattern& pattern = choice.patterns[h];
    Real* out = weights + ((b * heads + h) * choice.queries + begin) * blocks;
    if (!pattern.dynamic()) return (void)std::fill_n(out, (end - begin) * blocks, Real{0});
    Row above{};
    for (int64_t i = begin; i < end; ++i, out += blocks) {
      const Row row = row_of(choice, pattern, b, i);
      if (i % choice.tile != 0 && row == above) {
        std::copy_n(out - blocks, blocks, out);
      } else {
        const Real* own_scores =
            scores + ((b * sizes.dynamic + sizes.place[h]) * sizes.rows + i / choice.tile) * blocks;
        choose_row(pattern, row, blocks, own_scores, out, highest[worker]);
      }
      above = row;
    }
  });
}

template <class Real>
void choose_blocks_backward(const BlockChoice& choice, const BlockChoiceGradients<Real>& arrays,
                            const ParallelFor& parallel) {
  const Sizes sizes(choice);
  if (sizes.block == 0) return;
  const int64_t dim = arrays.dim;
  std::vector<std::vector<double>> sums(parallel.workers);
  parallel.run(choice.batch * sizes.dynamic, [&](int64_t task, int worker) {
    const int64_t b = task / sizes.dynamic, e = task % sizes.dynamic;
    const int64_t first_row = ((b * sizes.heads) + sizes.head_of[e]) * choice.queries;
    const Real* keys = arrays.key + task * sizes.blocks * dim;
    std::vector<double>& grad_keys = sums[worker];
    grad_keys.assign(sizes.blocks * dim, 0.0);
    std::fill_n(arrays.grad_query + task * sizes.rows * dim, sizes.rows * dim, Real{0});
    for (int64_t i = 0; i < choice.queries; ++i) {
      const Real* weights = arrays.weights + (first_row + i) * sizes.blocks;
      const Real* grads = arrays.grad + (first_row + i) * sizes.blocks;
      const int64_t at = (task * sizes.rows + i / choice.tile) * dim;
      const Real* query = arrays.query + at;
      Real* grad_query = arrays.grad_query + at;
      for (int64_t j = 0; j < sizes.blocks; ++j) {
        if (!(weights[j] > 0 && weights[j] < 1)) continue;
        const Real c = grads[j] * weights[j] * (1 - weights[j]);
        for (int64_t k = 0; k < dim; ++k) {
          grad_query[k] += c * keys[j * dim + k];
          grad_keys[j * dim + k] += c * query[k];
        }
      }
    }
    std::copy(grad_keys.begin(), grad_keys.end(), arrays.grad_key + task * sizes.blocks * dim);
  });
}

template void choose_blocks(const BlockChoice&, const float*, float*, const ParallelFor&);
template void choose_blocks(const BlockChoice&, const double*, double*, const ParallelFor&);
template void choose_blocks_backward(const BlockChoice&, const BlockChoiceGradients<float>&,
                                     const ParallelFor&);
template void choose_blocks_backward(const BlockChoice&, const BlockChoiceGradients<double>&,
                                     const ParallelFor&);

}  // namespace iha
