// The backward pass: recomputes weights from logsumexp; nothing of size queries x keys is kept.
//
// Order. First the row terms of all rows (part 1), with the gradients of collapse and sinks. Then units: the
// heads of one key head, or, where alpha mixes heads, all heads of a sequence, whose gradients of inputs
// gather in a unit's own sums. Key heads of a unit follow each other; each is taken in parts of queries and
// ranges of keys (part 2), whose shares in the gradients of queries are added up in order, turned back and
// unmixed by tokens (part 3).
//
// Threads. Many units (batch * heads): each is one task, in one range, in a worker's own memory. Few: units
// follow each other and the ranges and tokens of parts 2 and 3 are the tasks. Which of both, and all cuts,
// depend on shapes alone, sums have one order however many ranges run at once, and no two tasks write to one
// place, so any number of workers gives the same bits.
#include <algorithm>
#include <cmath>
#include <memory>

#include "iha/kernels/cpu/backward_parts.h"
#include "iha/kernels/cpu/engine.h"

namespace iha::cpu {
namespace {

constexpr int64_t kManyUnits = 8;
constexpr int64_t kMostRanges = 8;
constexpr int64_t kRangesOfWorker = 2;  // of a wave; ranges of causal heads are uneven
constexpr int64_t kRangeRows = 256;     // the least that a range of keys has
// Queries of a head that meet all ranges before the next do, which bounds the memory of shares. For so many,
// packing keys once more takes a thousandth of the products.
constexpr int64_t kQueryRows = 4096;
constexpr int64_t kTokensOfTask = 64;  // of part 3

// Where range `range` of `ranges` begins: whole blocks where there are dynamic heads, whose weights'
// gradients have no share then.
int64_t range_begin(const Problem& problem, int64_t range, int64_t ranges) {
  const int64_t token = problem.keys * range / ranges, block = problem.block();
  return block == 0 || range == ranges ? token : token / block * block;
}

// Ranges of keys that run before their shares in the gradients of queries are added up. Sums have the same
// order whatever its size; it bounds the memory of shares by what the workers need.
int64_t wave_of(int64_t workers, int64_t ranges) {
  return std::min(ranges, workers > 1 ? kRangesOfWorker * workers : 1);
}

// A unit's sums and the gradients of rows of the head in flight.
struct UnitMemory {
  Buffer<float> query_sums, key_sums, value_sums;  // [heads of the unit, tokens, columns]
  Buffer<float> query_rows, key_rows, value_rows;  // HeadGradients, those of queries for a wave of ranges
  std::vector<float> lanes;
};

struct Worker {
  explicit Worker(const BackwardCall& call) : terms(call), range(call), tokens(call.plan) {}
  RowTerms terms;
  KeyRange range;
  TokenGradients tokens;
  UnitMemory memory;
};

// A ParallelFor whose tasks get a worker's memory, made when first used.
class Crew {
 public:
  Crew(const BackwardCall& call, const ParallelFor& parallel)
      : call_(call), parallel_(parallel), workers_(std::max(1, parallel.workers)) {}
  int64_t workers() const { return static_cast<int64_t>(workers_.size()); }
  template <class Body>
  void run(int64_t tasks, const Body& body) {
    if (tasks <= 0) return;
    parallel_.run(tasks, [&](int64_t task, int index) {
      auto& worker = workers_[index];
      if (worker == nullptr) worker = std::make_unique<Worker>(call_);
      const TaskGuard guard(call_.plan.primitives);
      body(task, *worker);
    });
  }

 private:
  const BackwardCall& call_;
  const ParallelFor& parallel_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

// One worker by itself, as a crew.
struct Alone {
  Worker& worker;
  static constexpr int64_t workers() { return 1; }
  template <class Body>
  void run(int64_t tasks, const Body& body) {
    for (int64_t task = 0; task < tasks; ++task) body(task, worker);
  }
};

// Gradients of alpha_q, alpha_k and alpha_v, summed over a unit: [heads, heads, P], empty where not wanted.
struct AlphaSums {
  std::vector<float> query, key, value;
};

class Backward {
 public:
  explicit Backward(const BackwardCall& call);
  void run(const ParallelFor& parallel);

 private:
  void run_terms(Crew& crew);
  void clear_block_weights(Crew& crew);
  void write_modes() const;
  template <class CrewType>
  void run_unit(CrewType& crew, UnitMemory& memory, int64_t unit, int64_t ranges);
  template <class CrewType>
  void run_head(CrewType& crew, UnitMemory& memory, AlphaSums& alpha, int64_t batch, int64_t key_head,
                int64_t ranges);
  template <class CrewType>
  void run_queries(CrewType& crew, UnitMemory& memory, int64_t batch, int64_t key_head, int64_t begin,
                   int64_t end, int64_t ranges);
  int64_t query_step(int64_t batch, int64_t key_head) const;
  template <class CrewType>
  void add_shares(CrewType& crew, float* shares, int64_t count, int64_t size) const;
  template <class CrewType>
  void unmix(CrewType& crew, UnitMemory& memory, Unmix unmix, int64_t batch, int64_t end, int64_t tokens,
             int64_t position, std::vector<float>& alpha);
  template <class CrewType>
  void write(CrewType& crew, const core::MutableArray& array, int64_t batch, int64_t head_begin,
             int64_t heads, int64_t tokens, int64_t width, const float* sums, int64_t columns);
  void write_alpha(const core::MutableArray& array, int64_t heads,
                   std::vector<float> AlphaSums::*member) const;

  const BackwardCall& call_;
  const Plan& plan_;
  const Problem& problem_;
  RowSource query_source_, key_source_, value_source_;
  bool joins_heads_;  // alpha: a unit is a whole sequence
  int64_t units_;
  std::vector<AlphaSums> alpha_;   // a unit
  std::vector<double> mode_sums_;  // [batch, ranges, Hq, M]: the share of each
};

Backward::Backward(const BackwardCall& call)
    : call_(call),
      plan_(call.plan),
      problem_(call.plan.problem),
      query_source_(query_source(plan_)),
      key_source_(key_source(plan_)),
      value_source_(value_source(plan_)),
      joins_heads_(!plan_.alpha_q.empty() || !plan_.alpha_k.empty() || !plan_.alpha_v.empty()),
      units_(problem_.batch * (joins_heads_ ? 1 : problem_.key_heads)),
      alpha_(units_),
      mode_sums_(call.wants_modes() ? problem_.batch * kMostRanges * problem_.query_heads * problem_.modes()
                                    : 0) {
  const auto wanted = [](const core::MutableArray& array, const std::vector<float>& alpha) {
    return std::vector<float>(array.data != nullptr ? alpha.size() : 0, 0.0f);
  };
  for (AlphaSums& sums : alpha_) {
    sums.query = wanted(call.gradients.alpha_q, plan_.alpha_q);
    sums.key = wanted(call.gradients.alpha_k, plan_.alpha_k);
    sums.value = wanted(call.gradients.alpha_v, plan_.alpha_v);
  }
}

void Backward::run(const ParallelFor& parallel) {
  Crew crew(call_, parallel);
  run_terms(crew);
  clear_block_weights(crew);
  if (units_ >= kManyUnits) {
    crew.run(units_, [&](int64_t unit, Worker& worker) {
      Alone alone{worker};
      run_unit(alone, worker.memory, unit, 1);
    });
  } else {
    UnitMemory memory;
    const int64_t ranges =
        std::clamp<int64_t>(problem_.keys * plan_.rows_per_token / kRangeRows, 1, kMostRanges);
    for (int64_t unit = 0; unit < units_; ++unit) run_unit(crew, memory, unit, ranges);
  }
  write_modes();
  write_alpha(call_.gradients.alpha_q, problem_.query_heads, &AlphaSums::query);
  write_alpha(call_.gradients.alpha_k, problem_.key_heads, &AlphaSums::key);
  write_alpha(call_.gradients.alpha_v, problem_.key_heads, &AlphaSums::value);
}

// Part 1 over all tiles; then the sums for collapse and sinks, tile by tile in order.
void Backward::run_terms(Crew& crew) {
  struct Tile {
    int64_t batch, begin, end;
    const Slice* slice;
  };
  std::vector<Tile> tiles;
  for (int64_t b = 0; b < problem_.batch; ++b) {
    for (const Slice& slice : plan_.slices(b)) {
      const int64_t step = tile_tokens(plan_, slice);
      for (int64_t begin = 0; begin < slice.queries.count; begin += step) {
        tiles.push_back({b, begin, std::min(begin + step, slice.queries.count), &slice});
      }
    }
  }
  const int64_t heads = problem_.query_heads, pseudo_heads = problem_.pseudo_heads;
  const bool global = problem_.collapse == CollapseKind::kGlobal;
  const bool wants_collapse = call_.gradients.collapse.data != nullptr,
             wants_sinks = call_.gradients.sinks.data != nullptr;
  const int64_t cells = wants_collapse ? pseudo_heads * (global ? heads : 1) : 0;  // a head
  const int64_t size = problem_.group() * (cells + 1);
  std::vector<float> sums((wants_collapse || wants_sinks) ? tiles.size() * size : 0, 0.0f);
  const auto sums_of = [&](int64_t tile) { return sums.data() + tile * size; };
  crew.run(static_cast<int64_t>(tiles.size()), [&](int64_t task, Worker& worker) {
    const Tile& tile = tiles[task];
    worker.terms.run(tile.batch, *tile.slice, tile.begin, tile.end, wants_collapse ? sums_of(task) : nullptr,
                     wants_sinks ? sums_of(task) + problem_.group() * cells : nullptr);
  });
  std::vector<double> collapse(wants_collapse ? heads * cells : 0, 0.0), sinks(wants_sinks ? heads : 0, 0.0);
  for (size_t task = 0; task < tiles.size(); ++task) {
    const Slice& slice = *tiles[task].slice;
    for (int64_t head = slice.head_begin; head < slice.head_end; ++head) {
      const int64_t in_slice = head - slice.head_begin;
      for (int64_t cell = 0; cell < cells; ++cell) {
        const int64_t to = global ? (cell / pseudo_heads * heads + head) * pseudo_heads + cell % pseudo_heads
                                  : head * pseudo_heads + cell;
        collapse[to] += sums_of(task)[in_slice * cells + cell];
      }
      if (wants_sinks) sinks[head] += sums_of(task)[problem_.group() * cells + in_slice];
    }
  }
  if (wants_collapse) {
    const auto& array = call_.gradients.collapse;
    for (size_t i = 0; i < collapse.size(); ++i) {
      const auto number = static_cast<int64_t>(i), p = number % pseudo_heads,
                 in = number / pseudo_heads % heads;
      const int64_t at = global ? number / (heads * pseudo_heads) * array.strides[0] + in * array.strides[1] +
                                      p * array.strides[2]
                                : in * array.strides[0] + p * array.strides[1];
      store(array.data, array.dtype, at, collapse[i]);
    }
  }
  for (size_t head = 0; head < sinks.size(); ++head) {
    const auto& array = call_.gradients.sinks;
    store(array.data, array.dtype, static_cast<int64_t>(head) * array.strides[0], sinks[head]);
  }
}

// Weights of blocks that nobody chose have no gradient.
void Backward::clear_block_weights(Crew& crew) {
  const core::MutableArray& array = call_.gradients.block_weights;
  if (array.data == nullptr) return;
  const auto& s = array.strides;
  crew.run(problem_.batch * problem_.query_heads, [&](int64_t task, Worker&) {
    const int64_t at = task / problem_.query_heads * s[0] + task % problem_.query_heads * s[1];
    for (int64_t token = 0; token < problem_.queries; ++token) {
      for (int64_t block = 0; block < problem_.key_blocks(); ++block) {
        store(array.data, array.dtype, at + token * s[2] + block * s[3], 0.0);
      }
    }
  });
}

void Backward::write_modes() const {
  const core::MutableArray& array = call_.gradients.mode_weights;
  if (array.data == nullptr) return;
  const int64_t modes = problem_.modes(), size = problem_.query_heads * modes;
  for (int64_t i = 0; i < size; ++i) {
    double sum = 0;
    for (int64_t share = 0; share < problem_.batch * kMostRanges; ++share)
      sum += mode_sums_[share * size + i];
    store(array.data, array.dtype, i / modes * array.strides[0] + i % modes * array.strides[1], sum);
  }
}

template <class CrewType>
void Backward::run_unit(CrewType& crew, UnitMemory& memory, int64_t unit, int64_t ranges) {
  const Problem& p = problem_;
  const int64_t batch = joins_heads_ ? unit : unit / p.key_heads;
  const int64_t key_begin = joins_heads_ ? 0 : unit % p.key_heads, key_heads = joins_heads_ ? p.key_heads : 1;
  const int64_t query_begin = key_begin * p.group(), query_heads = key_heads * p.group();
  const auto zeroed = [](Buffer<float>& buffer, int64_t size) {
    std::fill_n(buffer.ensure(size), size, 0.0f);
  };
  zeroed(memory.query_sums, query_heads * p.queries * plan_.key_columns);
  zeroed(memory.key_sums, key_heads * p.keys * plan_.key_columns);
  zeroed(memory.value_sums, key_heads * p.keys * plan_.value_columns);
  const int64_t shares = std::min(ranges, wave_of(crew.workers(), ranges) + 1);
  int64_t step = 0;
  for (int64_t key_head = key_begin; key_head < key_begin + key_heads; ++key_head) {
    step = std::max(step, query_step(batch, key_head));
  }
  memory.query_rows.ensure(shares * p.group() * step * p.pseudo_heads * plan_.key_columns);
  memory.key_rows.ensure(p.keys * p.pseudo_heads * plan_.key_columns);
  memory.value_rows.ensure(p.keys * p.pseudo_heads * plan_.value_columns);
  for (int64_t key_head = key_begin; key_head < key_begin + key_heads; ++key_head) {
    run_head(crew, memory, alpha_[unit], batch, key_head, ranges);
  }
  write(crew, call_.gradients.query, batch, query_begin, query_heads, p.queries, p.head_dim,
        memory.query_sums.get(), plan_.key_columns);
  write(crew, call_.gradients.key, batch, key_begin, key_heads, p.keys, p.head_dim, memory.key_sums.get(),
        plan_.key_columns);
  write(crew, call_.gradients.value, batch, key_begin, key_heads, p.keys, p.value_dim,
        memory.value_sums.get(), plan_.value_columns);
}

// How many query tokens go through all ranges of keys at once: all of them where they meet few ranges anyway
// (windows, chunks) or are few already (classes of a step, blocks of keys).
int64_t Backward::query_step(int64_t batch, int64_t key_head) const {
  for (const Slice& slice : plan_.slices(batch)) {
    const Pattern& pattern = slice.pattern;
    const bool window = pattern.left < Pattern::kUnbounded && pattern.right < Pattern::kUnbounded;
    const bool bounded = window || pattern.chunk > 0;
    if (slice.key_head == key_head && (bounded || slice.queries.step > 1 || pattern.dynamic())) {
      return problem_.queries;
    }
  }
  const int64_t tokens = std::max<int64_t>(1, kQueryRows / (problem_.group() * problem_.pseudo_heads));
  return std::min(problem_.queries, round_up(tokens, kTokensOfTask));
}

template <class CrewType>
void Backward::run_head(CrewType& crew, UnitMemory& memory, AlphaSums& alpha, int64_t batch, int64_t key_head,
                        int64_t ranges) {
  const Problem& p = problem_;
  const int64_t key_begin = joins_heads_ ? 0 : key_head, step = query_step(batch, key_head);
  int64_t end = 0;
  do {  // once without queries too: keys' gradients are 0 then
    const int64_t begin = end;
    end = std::min(begin + step, p.queries);
    run_queries(crew, memory, batch, key_head, begin, end, ranges);
    const int64_t size = (end - begin) * p.pseudo_heads * plan_.key_columns;
    for (int64_t in_group = 0; in_group < p.group(); ++in_group) {
      unmix(crew, memory,
            {&query_source_, memory.query_rows.get() + in_group * size, key_head * p.group() + in_group,
             plan_.key_columns, key_begin * p.group(), memory.query_sums.get(), nullptr, begin},
            batch, end, p.queries, p.query_offset[batch], alpha.query);
    }
  } while (end < p.queries);
  unmix(crew, memory,
        {&key_source_, memory.key_rows.get(), key_head, plan_.key_columns, key_begin, memory.key_sums.get(),
         nullptr},
        batch, p.keys, p.keys, 0, alpha.key);
  unmix(crew, memory,
        {&value_source_, memory.value_rows.get(), key_head, plan_.value_columns, key_begin,
         memory.value_sums.get(), nullptr},
        batch, p.keys, p.keys, 0, alpha.value);
}

// Query tokens [begin, end) against all ranges of keys, wave by wave; the first rows of memory.query_rows
// then hold the sum of all ranges' shares.
template <class CrewType>
void Backward::run_queries(CrewType& crew, UnitMemory& memory, int64_t batch, int64_t key_head, int64_t begin,
                           int64_t end, int64_t ranges) {
  const Problem& p = problem_;
  const int64_t size = p.group() * (end - begin) * p.pseudo_heads * plan_.key_columns;
  const int64_t wave = wave_of(crew.workers(), ranges);
  for (int64_t first = 0; first < ranges; first += wave) {
    const int64_t before = first == 0 ? 0 : 1, count = std::min(wave, ranges - first);
    crew.run(count, [&](int64_t task, Worker& worker) {
      const int64_t range = first + task;
      double* modes = mode_sums_.empty()
                          ? nullptr
                          : mode_sums_.data() + (batch * kMostRanges + range) * p.query_heads * p.modes();
      worker.range.run(batch, key_head,
                       {begin, end, range_begin(p, range, ranges), range_begin(p, range + 1, ranges)},
                       {memory.query_rows.get() + (before + task) * size, memory.key_rows.get(),
                        memory.value_rows.get(), modes});
    });
    add_shares(crew, memory.query_rows.get(), before + count, size);
  }
}

// Adds shares 1.. to the first, in order.
template <class CrewType>
void Backward::add_shares(CrewType& crew, float* shares, int64_t count, int64_t size) const {
  constexpr int64_t kStep = 1 << 14;
  if (count == 1) return;
  crew.run(divide_up(size, kStep), [&](int64_t task, Worker&) {
    const int64_t begin = task * kStep, length = std::min(kStep, size - begin);
    for (int64_t share = 1; share < count; ++share) {
      plan_.primitives.add_scaled(shares + begin, shares + share * size + begin, 1.0f, length);
    }
  });
}

// Part 3 of tokens [rows_begin, end) by pieces, whose sums for alpha are added up in order.
template <class CrewType>
void Backward::unmix(CrewType& crew, UnitMemory& memory, Unmix unmix, int64_t batch, int64_t end,
                     int64_t tokens, int64_t position, std::vector<float>& alpha) {
  const int64_t tasks = divide_up(end - unmix.rows_begin, kTokensOfTask), heads = unmix.source->heads;
  const int64_t pseudo_heads = problem_.pseudo_heads, size = heads * pseudo_heads * 16;
  if (!alpha.empty()) memory.lanes.assign(tasks * size, 0.0f);
  crew.run(tasks, [&](int64_t task, Worker& worker) {
    Unmix mine = unmix;
    if (!alpha.empty()) mine.alpha_lanes = memory.lanes.data() + task * size;
    const int64_t begin = unmix.rows_begin + task * kTokensOfTask;
    worker.tokens.run(mine, batch, begin, std::min(begin + kTokensOfTask, end), tokens, position);
  });
  for (size_t task = 0; !alpha.empty() && task < static_cast<size_t>(tasks); ++task) {
    for (int64_t m = 0; m < heads; ++m) {
      for (int64_t p = 0; p < pseudo_heads; ++p) {
        const float* lanes = memory.lanes.data() + task * size + (m * pseudo_heads + p) * 16;
        float& sum = alpha[(m * heads + unmix.head) * pseudo_heads + p];
        for (int lane = 0; lane < 16; ++lane) sum += lanes[lane];
      }
    }
  }
}

// Rounds a unit's sums [heads, tokens, columns] once, to `array` [B, heads, tokens, width].
template <class CrewType>
void Backward::write(CrewType& crew, const core::MutableArray& array, int64_t batch, int64_t head_begin,
                     int64_t heads, int64_t tokens, int64_t width, const float* sums, int64_t columns) {
  if (array.data == nullptr) return;
  const auto& s = array.strides;
  const int64_t tasks = divide_up(tokens, kTokensOfTask);
  crew.run(tasks, [&](int64_t task, Worker&) {
    const int64_t end = std::min((task + 1) * kTokensOfTask, tokens);
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t begin = task * kTokensOfTask, at = batch * s[0] + (head_begin + head) * s[1];
      const float* rows = sums + (head * tokens + begin) * columns;
      if (s[3] == 1) {
        auto* data = static_cast<char*>(array.data) + (at + begin * s[2]) * plan_.element_size;
        plan_.primitives.narrow_rows(rows, columns, array.dtype, end - begin, width, data, s[2]);
        continue;
      }
      for (int64_t token = begin; token < end; ++token, rows += columns) {
        for (int64_t c = 0; c < width; ++c)
          store(array.data, array.dtype, at + token * s[2] + c * s[3], rows[c]);
      }
    }
  });
}

void Backward::write_alpha(const core::MutableArray& array, int64_t heads,
                           std::vector<float> AlphaSums::*member) const {
  if (array.data == nullptr) return;
  const int64_t pseudo_heads = problem_.pseudo_heads;
  for (int64_t i = 0; i < heads * heads * pseudo_heads; ++i) {
    double sum = 0;
    for (const AlphaSums& unit : alpha_) sum += (unit.*member)[i];
    const int64_t at = i / (heads * pseudo_heads) * array.strides[0] +
                       i / pseudo_heads % heads * array.strides[1] + i % pseudo_heads * array.strides[2];
    store(array.data, array.dtype, at, sum);
  }
}

}  // namespace

void backward(const Problem& problem, const core::AttentionInputs& inputs,
              const core::AttentionUpstream& upstream, const core::AttentionGradients& gradients,
              const ParallelFor& parallel, Isa isa) {
  const Plan plan(problem, inputs, isa, gradients.mode_weights.data != nullptr);
  Buffer<float> row_terms;
  row_terms.ensure(problem.batch * problem.query_heads * problem.queries * problem.pseudo_heads);
  const BackwardCall call{plan, upstream, gradients, row_terms.get()};
  Backward(call).run(parallel);
}

}  // namespace iha::cpu
