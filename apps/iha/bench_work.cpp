#include "bench_work.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>

#include "iha/kernels/problem.h"
#include "iha/nn/block_index.h"
#include "iha/ops/attention.h"
#include "iha/ops/engine.h"
#include "iha/patterns/count.h"

namespace iha::app {
namespace {

struct Inputs {
  at::Tensor query, key, value, alpha_q, alpha_k, alpha_v, collapse, mode_weights, block_weights;
  // Dynamic heads: what their blocks are chosen by, tokens [B, N, heads * d] and the index of a layer.
  at::Tensor tokens;
  nn::BlockIndex index{nullptr};

  std::vector<at::Tensor> all() const {
    std::vector<at::Tensor> list{query, key, value};
    for (const at::Tensor& weights : {alpha_q, alpha_k, alpha_v, collapse, mode_weights, block_weights}) {
      if (weights.defined()) list.push_back(weights);
    }
    return list;
  }
  at::Tensor choose() const { return index.ptr()->forward(tokens, tokens, {}, {}); }
};

// The problem as far as its patterns' weights go.
Problem choices_of(const Work& work) {
  Problem problem;
  problem.patterns = parse_patterns(work.patterns).expand(work.heads);
  problem.keys = work.keys;
  return problem;
}

at::Tensor draw_mode_weights(const Work& work, int64_t modes) {
  if (work.only_candidate < 0) return at::rand({work.heads, modes}) + 0.2;
  const at::Tensor weights = at::zeros({work.heads, modes});
  weights.select(1, work.only_candidate).fill_(1);
  return weights;
}

Inputs draw(const Work& work, at::ScalarType dtype) {
  // Token-major memory, as a layer's projections leave it.
  const auto tensor = [&](int64_t heads, int64_t tokens) {
    return at::randn({work.batch, tokens, heads, work.head_dim}, dtype).transpose(1, 2);
  };
  Inputs inputs{.query = tensor(work.heads, work.queries),
                .key = tensor(work.key_heads, work.keys),
                .value = tensor(work.key_heads, work.keys),
                .alpha_q = {},
                .alpha_k = {},
                .alpha_v = {},
                .collapse = {},
                .mode_weights = {},
                .block_weights = {},
                .tokens = {}};
  const Problem choices = choices_of(work);
  if (choices.modes() > 0) inputs.mode_weights = draw_mode_weights(work, choices.modes());
  if (choices.block() > 0) {
    const int64_t width = work.heads * work.head_dim;
    inputs.tokens = at::randn({work.batch, work.queries, width}, dtype);
    inputs.index = nn::BlockIndex(nn::BlockIndexOptions(width, choices.patterns).tile(work.index_tile));
    inputs.index->to(dtype);
    inputs.block_weights = inputs.choose().detach();
  }
  if (work.pseudo_heads > 1) {
    const auto mixing = [&](int64_t heads) {
      return (at::eye(heads).unsqueeze(2) + 0.3 * at::randn({heads, heads, work.pseudo_heads})).to(dtype);
    };
    inputs.alpha_q = mixing(work.heads);
    inputs.alpha_k = mixing(work.key_heads);
    inputs.alpha_v = mixing(work.key_heads);
    inputs.collapse = mixing(work.heads) / work.pseudo_heads;
  }
  if (work.backward) {
    for (at::Tensor& input : std::vector<at::Tensor>(inputs.all())) input.requires_grad_();
    if (inputs.tokens.defined()) inputs.tokens.requires_grad_();
  }
  return inputs;
}

AttentionOptions options_of(const Work& work, const Inputs& inputs) {
  AttentionOptions options{.patterns = parse_patterns(work.patterns)};
  if (inputs.alpha_q.defined()) {
    options.alpha_q = inputs.alpha_q;
    options.alpha_k = inputs.alpha_k;
    options.alpha_v = inputs.alpha_v;
    options.collapse = inputs.collapse;
  }
  if (inputs.mode_weights.defined()) options.mode_weights = inputs.mode_weights;
  if (inputs.block_weights.defined()) options.block_weights = inputs.block_weights;
  return options;
}

// Learned heads after each took one candidate, the first for the first of them, and so on.
PatternList hardened(const Work& work) {
  std::vector<Pattern> heads = parse_patterns(work.patterns).expand(work.heads);
  for (std::size_t head = 0; head < heads.size(); ++head) {
    const std::vector<Pattern> candidates = heads[head].candidates;
    if (!candidates.empty()) heads[head] = candidates[head * candidates.size() / heads.size()];
  }
  return heads;
}

// True where torch's operator says the patterns by is_causal alone.
bool one_pattern(const Work& work, const Pattern& wanted) {
  for (const Pattern& pattern : parse_patterns(work.patterns).expand(work.heads)) {
    if (!(pattern == wanted)) return false;
  }
  return true;
}

// [1, H, Nq, Nk] of tokens: what each head sees; [1, 1, Nq, Nk] where all see the same. Without the batch in
// front torch takes a slower way.
at::Tensor mask_of(const Work& work) {
  auto patterns = parse_patterns(work.patterns).expand(work.heads);
  if (std::ranges::all_of(patterns, [&](const Pattern& p) { return p == patterns.front(); })) {
    patterns.resize(1);
  }
  const auto heads = static_cast<int64_t>(patterns.size());
  at::Tensor mask = at::empty({1, heads, work.queries, work.keys}, at::kBool);
  at::parallel_for(0, heads * work.queries, 1, [&](int64_t begin, int64_t end) {
    bool* cell = mask.data_ptr<bool>() + begin * work.keys;
    for (int64_t row = begin; row < end; ++row) {
      const Pattern& pattern = patterns[row / work.queries];
      const int64_t i = row % work.queries + work.keys - work.queries;
      for (int64_t j = 0; j < work.keys; ++j) *cell++ = visible(pattern, i, j);
    }
  });
  return mask;
}

// torch alone: einsum, interleaving, SDPA over N * P rows, and the collapse.
at::Tensor torch_attention(const Work& work, const Inputs& inputs, const std::optional<at::Tensor>& mask,
                           bool causal) {
  const bool grouped = work.heads != work.key_heads;
  if (work.pseudo_heads == 1) {
    return at::scaled_dot_product_attention(inputs.query, inputs.key, inputs.value, mask, 0.0, causal,
                                            std::nullopt, grouped);
  }
  const auto interleave = [](const at::Tensor& x, const at::Tensor& alpha) {
    return at::einsum("bmnd,mhp->bhnpd", {x, alpha}).flatten(2, 3);
  };
  const at::Tensor parts = at::scaled_dot_product_attention(
      interleave(inputs.query, inputs.alpha_q), interleave(inputs.key, inputs.alpha_k),
      interleave(inputs.value, inputs.alpha_v), mask, 0.0, causal, std::nullopt, grouped);
  return at::einsum("bmnpd,hmp->bhnd",
                    {parts.unflatten(2, {work.queries, work.pseudo_heads}), inputs.collapse});
}

// For as long as it lives `path` computes, whatever IHA_CPU says.
class PathAlone {
 public:
  explicit PathAlone(ops::CpuPath path) { ops::set_cpu_path(path); }
  ~PathAlone() { ops::set_cpu_path(before_); }
  PathAlone(const PathAlone&) = delete;
  PathAlone& operator=(const PathAlone&) = delete;

 private:
  ops::CpuPath before_ = ops::cpu_path();
};

}  // namespace

const std::vector<Work>& standard_work() {
  static const std::vector<Work> work = [] {
    const auto self = [](std::string name, int64_t batch, int64_t heads, int64_t tokens, int64_t head_dim,
                         int64_t pseudo_heads, std::string patterns, bool backward) {
      return Work{std::move(name),     batch,   heads, heads, tokens, tokens, head_dim, pseudo_heads,
                  std::move(patterns), backward};
    };
    const std::string mixed = "causal*4,sliding:256*4,global*4";
    const std::string learned = "learned(global|sliding:256|strided:8)";
    const auto decided = [&](std::string name, int64_t candidate) {
      Work work = self(std::move(name), 1, 12, 4096, 64, 1, learned, false);
      work.only_candidate = candidate;
      return work;
    };
    const std::string blocks = "dynamic:128:2";  // and its own: 3 of 32 blocks
    const auto dynamic = [&](std::string name, std::string patterns, int64_t tile, bool backward) {
      Work work = self(std::move(name), 1, 12, 4096, 64, 1, std::move(patterns), backward);
      work.index_tile = tile;
      return work;
    };
    return std::vector<Work>{
        self("dense", 1, 12, 4096, 64, 1, "global", false),
        self("dense-d128", 1, 12, 4096, 128, 1, "global", false),
        self("causal-512", 1, 12, 512, 64, 1, "causal", false),
        self("causal", 1, 12, 4096, 64, 1, "causal", false),
        self("dense-train", 1, 12, 2048, 64, 1, "global", true),
        self("causal-train", 1, 12, 2048, 64, 1, "causal", true),
        self("short-train", 64, 4, 144, 32, 1, "global", true),
        self("mixed", 1, 12, 4096, 64, 1, mixed, false),
        self("mixed-8192", 1, 12, 8192, 64, 1, mixed, false),
        self("window", 1, 12, 8192, 64, 1, "sliding:256", false),
        self("strided", 1, 12, 4096, 64, 1, "strided:8", false),
        self("learned", 1, 12, 4096, 64, 1, learned, false),
        self("learned-train", 1, 12, 4096, 64, 1, learned, true),
        decided("learned-window", 1),
        decided("learned-strided", 2),
        dynamic("dynamic", blocks, 1, false),
        dynamic("dynamic-tile", blocks, 128, false),
        dynamic("dynamic-causal", "causal_" + blocks, 1, false),
        dynamic("dynamic-train", blocks, 1, true),
        dynamic("dynamic-tile-train", blocks, 128, true),
        self("interleaved-p2", 1, 8, 2048, 64, 2, "causal", false),
        self("interleaved-p4", 1, 8, 1024, 64, 4, "causal", false),
        self("interleaved-p2-train", 1, 8, 2048, 64, 2, "causal", true),
        self("interleaved-p4-train", 1, 8, 1024, 64, 4, "causal", true),
        self("interleaved-p4-long-train", 1, 8, 2048, 64, 4, "causal", true),
        self("interleaved-p8-short-train", 64, 8, 100, 16, 8, "global", true),
        Work{"decode", 1, 16, 4, 1, 32768, 128, 1, "causal", false},
    };
  }();
  return work;
}

double flops_of(const Work& work) {
  double pairs = 0;
  for (const Pattern& pattern : parse_patterns(work.patterns).expand(work.heads)) {
    const bool decided = pattern.learned() && work.only_candidate >= 0;
    pairs += static_cast<double>(
        read_pseudo_pairs(decided ? pattern.candidates[work.only_candidate] : pattern, work.queries,
                          work.keys, work.keys - work.queries, work.pseudo_heads, true, true));
  }
  return 4.0 * pairs * static_cast<double>(work.batch * work.head_dim) * (work.backward ? 3.5 : 1.0);
}

double key_value_bytes(const Work& work, at::ScalarType dtype) {
  return 2.0 * static_cast<double>(work.batch * work.key_heads * work.keys * work.head_dim) *
         static_cast<double>(c10::elementSize(dtype));
}

std::vector<Contender> contenders_for(const Work& work, at::ScalarType dtype) {
  const auto inputs = std::make_shared<Inputs>(draw(work, dtype));
  const auto gradient = std::make_shared<at::Tensor>(
      at::randn({work.batch, work.queries, work.heads, work.head_dim}, dtype).transpose(1, 2));
  const auto finish = [=](const at::Tensor& out, const std::vector<at::Tensor>& wanted) {
    if (work.backward) torch::autograd::grad({out}, wanted, {*gradient}, std::nullopt, false, true);
    return out.detach();
  };
  const auto by = [=](ops::CpuPath path, const AttentionOptions& options) {
    return [=] {
      const PathAlone alone(path);
      return finish(attention(inputs->query, inputs->key, inputs->value, options), inputs->all());
    };
  };
  const AttentionOptions options = options_of(work, *inputs);
  const auto engine = by(ops::CpuPath::kEngine, options), composed = by(ops::CpuPath::kComposed, options);
  // With the choice of blocks, as a layer computes it.
  const auto choosing = [=] {
    const PathAlone alone(ops::CpuPath::kEngine);
    const torch::AutoGradMode gradients(work.backward);
    AttentionOptions chosen = options;
    chosen.block_weights = inputs->choose();
    std::vector<at::Tensor> wanted{inputs->query, inputs->key, inputs->value, inputs->tokens};
    for (const at::Tensor& weight : inputs->index->parameters()) wanted.push_back(weight);
    return finish(attention(inputs->query, inputs->key, inputs->value, chosen), wanted);
  };
  if (choices_of(work).weighted()) {
    std::vector<Contender> contenders{
        {"iha", engine}, {"iha, dense", by(ops::CpuPath::kEngine, {}), 0, false}, {"composed", composed}};
    if (choices_of(work).modes() > 0 && work.only_candidate < 0) {
      const AttentionOptions fixed{.patterns = hardened(work)};
      contenders.insert(contenders.begin() + 1,
                        {"iha, hardened", by(ops::CpuPath::kEngine, fixed), 0, false});
    }
    if (inputs->index) {
      contenders.front().name = "iha, blocks given";
      contenders.insert(contenders.begin(), {"iha", choosing});
    }
    return contenders;
  }
  const bool square = work.queries == work.keys;
  const bool causal = one_pattern(work, iha::causal()) && square;
  std::optional<at::Tensor> mask;
  // A single causal query that stands last sees everything.
  const bool sees_all =
      one_pattern(work, iha::global()) || (one_pattern(work, iha::causal()) && work.queries == 1);
  if (!causal && !sees_all && work.pseudo_heads == 1) mask = mask_of(work);
  return {{"iha", engine},
          {"composed", composed},
          {mask ? "torch, masked" : "torch",
           [=] { return finish(torch_attention(work, *inputs, mask, causal), inputs->all()); },
           mask ? static_cast<int64_t>(mask->nbytes()) : 0}};
}

}  // namespace iha::app
