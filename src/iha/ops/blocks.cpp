#include "iha/ops/blocks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <unordered_map>

#include "iha/core/philox.h"
#include "iha/patterns/arithmetic.h"

namespace iha::ops {
namespace {

// Scores held at a time: 1M float32 values fit the two cores' share of a last-level cache, and the passes of
// the softmax then stay out of memory.
constexpr int64_t kScores = int64_t{1} << 20;
// Fewer query tokens a block than this leaves the matrix products too thin; more wastes work at the edges of
// windows.
constexpr int64_t kFewestQueries = 16, kMostQueries = 256;
// Rows with which a product with a few dozen columns of depth is at its speed.
constexpr int64_t kProductRows = 128;

HeadGroup make_group(const Pattern& pattern, std::vector<int64_t> query_heads, int64_t group) {
  HeadGroup result{pattern, std::move(query_heads), {}, 1};
  bool whole = static_cast<int64_t>(result.query_heads.size()) % group == 0;
  for (size_t at = 0; whole && at < result.query_heads.size(); ++at) {
    const int64_t leader = result.query_heads[at - at % group];
    whole = leader % group == 0 && result.query_heads[at] == leader + static_cast<int64_t>(at % group);
  }
  result.fold = whole ? group : 1;
  for (size_t at = 0; at < result.query_heads.size(); at += result.fold) {
    result.key_heads.push_back(result.query_heads[at] / group);
  }
  return result;
}

// What reaches as far as any of a learned pattern's candidates.
Pattern reach_of(const Pattern& pattern) {
  Pattern reach{.left = pattern.left, .right = pattern.right};
  for (const Pattern& candidate : pattern.candidates) reach.first = std::max(reach.first, candidate.first);
  return pattern.learned() ? reach : pattern;
}

// The slice's tokens that lie in [low, high].
Slice within(Slice slice, int64_t low, int64_t high) {
  const int64_t skip = low <= slice.begin ? 0 : (low - slice.begin - 1) / slice.step + 1;
  const int64_t end = std::min(slice.count, floor_div(high - slice.begin, slice.step) + 1);
  const int64_t count = std::max<int64_t>(0, end - skip);
  if (count == 0) return {slice.begin, 1, 0};
  // The step of a single token means nothing, and may be as large as an int64.
  return {slice.begin + skip * slice.step, count == 1 ? 1 : slice.step, count};
}

}  // namespace

Heads::Heads(const Problem& problem) {
  const int64_t copies = problem.layout == Layout::kParallel ? problem.pseudo_heads : 1;
  query_heads = problem.query_heads * copies;
  key_heads = problem.key_heads * copies;
  pseudo_tokens = problem.pseudo_heads / copies;
}

int64_t Block::key_count() const {
  int64_t count = 0;
  for (const Slice& slice : keys) count += slice.count;
  return count;
}

Blocks::Blocks(const Problem& problem) : problem_(problem), heads_(problem), rank_(problem.documents.size()) {
  std::vector<std::pair<Pattern, std::vector<int64_t>>> heads_of;
  for (int64_t h = 0; h < heads_.query_heads; ++h) {
    const Pattern& pattern = problem.patterns[h % problem.query_heads];
    const auto known = std::find_if(heads_of.begin(), heads_of.end(),
                                    [&](const auto& entry) { return entry.first == pattern; });
    if (known == heads_of.end()) {
      heads_of.push_back({pattern, {h}});
    } else {
      known->second.push_back(h);
    }
  }
  for (auto& [pattern, heads] : heads_of) add_group(make_group(pattern, std::move(heads), problem.group()));

  for (size_t b = 0; b * problem.keys < rank_.size(); ++b) {
    std::unordered_map<int64_t, int64_t> seen;
    for (int64_t j = 0; j < problem.keys; ++j) {
      rank_[b * problem.keys + j] = seen[problem.documents[b * problem.keys + j]]++;
    }
  }
  one_offset_ = std::adjacent_find(problem.query_offset.begin(), problem.query_offset.end(),
                                   std::not_equal_to<>()) == problem.query_offset.end();
  const auto& lengths = problem.key_lengths;
  longest_ = lengths.empty() ? problem.keys : *std::max_element(lengths.begin(), lengths.end());
}

// About how many scores one query token of one head has.
int64_t Blocks::scores_of_query(const Pattern& pattern) const {
  int64_t width =
      std::min(problem_.keys, add_saturated(add_saturated(pattern.left, pattern.right), kMostQueries / 2));
  if (pattern.chunk > 0) width = std::min(width, add_saturated(pattern.chunk, kMostQueries / 2));
  return std::max<int64_t>(1, problem_.batch * width * heads_.pseudo_tokens * heads_.pseudo_tokens);
}

int64_t Blocks::queries_per_block(const HeadGroup& group) const {
  const int64_t query = static_cast<int64_t>(group.query_heads.size()) * scores_of_query(group.pattern);
  return std::clamp(kScores / query, kFewestQueries, kMostQueries);
}

// Fewer heads at a time where all of them together would leave their products thin.
void Blocks::add_group(const HeadGroup& whole) {
  const int64_t fold = whole.fold, rows = fold * heads_.pseudo_tokens;
  const int64_t queries = std::min(problem_.queries, (kProductRows + rows - 1) / rows);
  const auto key_heads = static_cast<int64_t>(whole.key_heads.size());
  const int64_t scores = fold * scores_of_query(whole.pattern) * std::max<int64_t>(1, queries);
  const int64_t step = std::clamp<int64_t>(kScores / scores, 1, key_heads);
  for (int64_t begin = 0; begin < key_heads; begin += step) {
    const int64_t end = std::min(begin + step, key_heads);
    groups_.push_back({whole.pattern,
                       {whole.query_heads.begin() + begin * fold, whole.query_heads.begin() + end * fold},
                       {whole.key_heads.begin() + begin, whole.key_heads.begin() + end},
                       fold});
  }
}

std::vector<Block> Blocks::blocks(const HeadGroup& group) const {
  std::vector<Block> result;
  const Pattern& pattern = group.pattern;
  // A relative step splits queries and keys by residue, unless that leaves less than a handful of queries a
  // block.
  const bool by_residue = pattern.step == Step::kRelative && pattern.first == 0 && one_offset_ &&
                          pattern.every <= problem_.queries / 4;
  if (!by_residue) {
    add_blocks(group, {0, 1, problem_.queries}, 1, result);
    return result;
  }
  for (int64_t residue = 0; residue < pattern.every; ++residue) {
    const int64_t count = (problem_.queries - residue + pattern.every - 1) / pattern.every;
    add_blocks(group, {residue, pattern.every, count}, pattern.every, result);
  }
  return result;
}

void Blocks::add_blocks(const HeadGroup& group, Slice queries, int64_t key_step,
                        std::vector<Block>& blocks) const {
  const int64_t rows = queries_per_block(group);
  const Pattern reach = reach_of(group.pattern);
  for (int64_t begin = 0; begin < queries.count; begin += rows) {
    const Slice part{queries.begin + begin * queries.step, queries.step,
                     std::min(rows, queries.count - begin)};
    blocks.push_back({part, reachable_keys(reach, part, key_step)});
  }
}

std::vector<Slice> Blocks::reachable_keys(const Pattern& pattern, Slice queries, int64_t key_step) const {
  if (problem_.batch == 0 || longest_ == 0) return {};
  const auto [least, most] = std::minmax_element(problem_.query_offset.begin(), problem_.query_offset.end());
  const int64_t earliest = *least + queries.begin;
  const int64_t latest = *most + queries.begin + (queries.count - 1) * queries.step;
  int64_t low = std::max<int64_t>(0, subtract_saturated(earliest, pattern.left));
  int64_t high = std::min(longest_ - 1, add_saturated(latest, pattern.right));
  if (pattern.chunk > 0) {
    low = std::max(low, floor_div(earliest, pattern.chunk) * pattern.chunk);
    high = std::min(high, floor_div(latest, pattern.chunk) * pattern.chunk + (pattern.chunk - 1));
  }
  // With documents the first tokens lie anywhere; without, before `first`.
  const int64_t reach = pattern.causal() ? std::min(latest, longest_ - 1) : longest_ - 1;
  const int64_t first = pattern.first == 0 ? -1 : rank_.empty() ? std::min(pattern.first - 1, reach) : reach;
  if (first >= 0 && (low > high || low <= first + 1)) {
    low = 0;
    high = std::max(high, first);
  }
  std::vector<Slice> result;
  if (first >= 0 && low > first) result.push_back({0, 1, first + 1});
  Slice base{0, 1, problem_.keys};
  if (pattern.step == Step::kAbsolute && pattern.first == 0) base = {0, pattern.every, problem_.keys};
  if (key_step > 1) base = {floor_mod(earliest, key_step), key_step, problem_.keys};
  const Slice main = within(base, low, high);
  if (main.count > 0) result.push_back(main);
  return result;
}

// Sets hidden[c] for every key token c of the block as query `token` of sequence b sees it.
void Blocks::mark_hidden(const Pattern& pattern, const Block& block, int64_t b, int64_t token,
                         bool* hidden) const {
  const int64_t position = problem_.query_offset[b] + token, length = problem_.keys_of(b);
  const bool causal = pattern.causal();
  if (pattern.step == Step::kNone && rank_.empty()) {
    int64_t low = subtract_saturated(position, pattern.left), high = add_saturated(position, pattern.right);
    if (pattern.chunk > 0) {
      const int64_t chunk = floor_div(position, pattern.chunk) * pattern.chunk;
      low = std::max(low, chunk);
      high = std::min(high, chunk + (pattern.chunk - 1));
    }
    high = std::min(high, length - 1);
    const int64_t first = std::min({pattern.first, length, causal ? position + 1 : length});
    for (const Slice& slice : block.keys) {
      for (int64_t at = 0, j = slice.begin; at < slice.count; ++at, j += slice.step) {
        *hidden++ = (j < low || j > high) && j >= first;
      }
    }
    return;
  }
  const int64_t* documents = rank_.empty() ? nullptr : problem_.documents.data() + b * problem_.keys;
  const int64_t* rank = rank_.empty() ? nullptr : rank_.data() + b * problem_.keys;
  for (const Slice& slice : block.keys) {
    for (int64_t at = 0, j = slice.begin; at < slice.count; ++at, j += slice.step) {
      const bool exists = j < length && (documents == nullptr || documents[j] == documents[position]);
      const bool first = (rank == nullptr ? j : rank[j]) < pattern.first && (!causal || j <= position);
      *hidden++ = !(exists && (first || base_visible(pattern, position, j)));
    }
  }
}

bool Blocks::all_visible(const Pattern& pattern, const Block& block, bool split_diagonal) const {
  if (pattern.step != Step::kNone || pattern.chunk > 0 || !rank_.empty() || !problem_.key_lengths.empty()) {
    return false;
  }
  const auto [least, most] = std::minmax_element(problem_.query_offset.begin(), problem_.query_offset.end());
  const int64_t earliest = *least + block.queries.begin;
  const int64_t latest = *most + block.queries.begin + (block.queries.count - 1) * block.queries.step;
  const Slice& last = block.keys.back();
  const int64_t last_key = last.begin + (last.count - 1) * last.step;
  return block.keys.front().begin >= subtract_saturated(latest, pattern.left) &&
         last_key <= add_saturated(earliest, pattern.right) - (split_diagonal ? 1 : 0);
}

BlockMask Blocks::mask(const HeadGroup& group, const Block& block, at::Device device) const {
  const int64_t pseudo = heads_.pseudo_tokens, queries = block.queries.count, keys = block.key_count();
  const bool each_sequence = !one_offset_ || !rank_.empty() || !problem_.key_lengths.empty();
  const int64_t batch = each_sequence ? problem_.batch : std::min<int64_t>(problem_.batch, 1);
  const bool split_diagonal = pseudo > 1 && problem_.order == Order::kFlat && group.pattern.causal();
  if (all_visible(group.pattern, block, split_diagonal)) return {};
  const auto options = at::TensorOptions().dtype(at::kBool);
  const at::Tensor hidden = at::empty({batch, 1, queries * pseudo, keys * pseudo}, options);
  const at::Tensor empty = at::empty({batch, 1, queries * pseudo, 1}, options);
  bool* hidden_data = hidden.mutable_data_ptr<bool>();
  bool* empty_data = empty.mutable_data_ptr<bool>();

  at::parallel_for(0, batch * queries, 64, [&](int64_t begin, int64_t end) {
    std::vector<char> token_hidden(keys);
    for (int64_t at = begin; at < end; ++at) {
      const int64_t b = at / queries, token = block.queries.begin + at % queries * block.queries.step;
      const int64_t position = problem_.query_offset[b] + token;
      mark_hidden(group.pattern, block, b, token, reinterpret_cast<bool*>(token_hidden.data()));
      for (int64_t p = 0; p < pseudo; ++p) {
        bool* row = hidden_data + (at * pseudo + p) * keys * pseudo;
        for (int64_t c = 0; c < keys; ++c) std::fill_n(row + c * pseudo, pseudo, token_hidden[c] != 0);
        int64_t column = 0;
        for (const Slice& slice : block.keys) {
          const int64_t steps = position - slice.begin;
          if (split_diagonal && steps >= 0 && steps % slice.step == 0 && steps / slice.step < slice.count) {
            const int64_t diagonal = column + steps / slice.step;
            std::fill(row + diagonal * pseudo + p + 1, row + (diagonal + 1) * pseudo, true);
          }
          column += slice.count;
        }
        empty_data[at * pseudo + p] =
            std::all_of(row, row + keys * pseudo, [](bool is_hidden) { return is_hidden; });
      }
    }
  });
  const auto any = [&](const at::Tensor& flags) {
    const bool* data = flags.const_data_ptr<bool>();
    return std::any_of(data, data + flags.numel(), [](bool flag) { return flag; });
  };
  BlockMask result;
  if (any(hidden)) result.hidden = hidden.to(device);
  if (any(empty)) result.empty = empty.to(device);
  return result;
}

at::Tensor Blocks::dropout(const HeadGroup& group, const Block& block, at::TensorOptions options) const {
  const int64_t pseudo = heads_.pseudo_tokens, rows = block.queries.count * pseudo;
  const int64_t columns = block.key_count() * pseudo,
                group_heads = static_cast<int64_t>(group.query_heads.size());
  const uint64_t threshold = dropout_threshold(problem_.dropout_p);
  // In layout `parallel` the one pseudo-token of head p * Hq + h is pseudo-head p.
  const int64_t total = problem_.pseudo_heads;
  const at::Tensor factors = at::empty({problem_.batch, group_heads, rows, columns}, at::kFloat);
  float* data = factors.mutable_data_ptr<float>();
  at::parallel_for(0, problem_.batch * group_heads * rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t row = at % rows, head = group.query_heads[at / rows % group_heads];
      const int64_t batch_head = at / rows / group_heads * problem_.query_heads + head % problem_.query_heads;
      const int64_t own = head / problem_.query_heads;  // the pseudo-head, in layout `parallel`
      const int64_t token = block.queries.begin + row / pseudo * block.queries.step;
      const int64_t pseudo_row = token * total + (pseudo == total ? row % pseudo : own);
      PhiloxCounter words{};
      int64_t drawn = -1;
      float* out = data + at * columns;
      for (const Slice& slice : block.keys) {
        for (int64_t c = 0; c < slice.count * pseudo; ++c) {
          const int64_t key = slice.begin + c / pseudo * slice.step;
          const int64_t column = key * total + (pseudo == total ? c % pseudo : own);
          if (column / 4 != drawn) {
            drawn = column / 4;
            words = philox4x32_10({static_cast<uint32_t>(drawn), static_cast<uint32_t>(pseudo_row),
                                   static_cast<uint32_t>(batch_head), 0},
                                  problem_.dropout_seed);
          }
          *out++ = words[column % 4] >= threshold ? 1.0F : 0.0F;
        }
      }
    }
  });
  const double kept = problem_.dropout_p < 1 ? 1 / (1 - problem_.dropout_p) : 0.0;
  return factors.to(options).mul_(kept);
}

}  // namespace iha::ops
