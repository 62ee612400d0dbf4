// The layers beside softmax attention over all tokens: linear attention's time over N, forward and with
// backward, and one decoding step of latent attention in both forms beside plain heads with a cache of keys
// and values. float32, torch's threads: build/release/bin/layers_benchmark
#include <benchmark/benchmark.h>

#include "iha/nn/linear_attention_function.h"
#include "iha/nn/multi_head_latent_attention.h"
#include "iha/ops/attention.h"

namespace iha::nn {
namespace {

constexpr int64_t kHeads = 8, kDim = 64;

struct Inputs {
  explicit Inputs(int64_t tokens, bool grad) {
    torch::manual_seed(0);
    for (auto* tensor : {&query, &key, &value}) {
      *tensor = torch::randn({1, kHeads, tokens, kDim}, torch::requires_grad(grad));
    }
  }
  torch::Tensor query, key, value;
};

template <class Attend>
void over_tokens(benchmark::State& state, bool backward, const Attend& attend) {
  const Inputs in(state.range(0), backward);
  const auto grad = torch::ones({1, kHeads, state.range(0), kDim});
  for (auto _ : state) {
    const auto out = attend(in);
    if (backward) out.backward(grad);
  }
  state.counters["a_token"] =
      benchmark::Counter(static_cast<double>(state.range(0)),
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void linear(benchmark::State& state, bool backward) {
  over_tokens(state, backward, [](const Inputs& in) {
    return linear_attention(in.query, in.key, in.value, {.causal = true});
  });
}
void softmax(benchmark::State& state, bool backward) {
  over_tokens(state, backward,
              [](const Inputs& in) { return attention(in.query, in.key, in.value, {.patterns = causal()}); });
}
BENCHMARK_CAPTURE(linear, forward, false)->RangeMultiplier(4)->Range(1024, 16384)->UseRealTime();
BENCHMARK_CAPTURE(softmax, forward, false)->RangeMultiplier(4)->Range(1024, 16384)->UseRealTime();
BENCHMARK_CAPTURE(linear, with_backward, true)->RangeMultiplier(4)->Range(1024, 16384)->UseRealTime();
BENCHMARK_CAPTURE(softmax, with_backward, true)->RangeMultiplier(4)->Range(1024, 16384)->UseRealTime();

// DeepSeek-V2's proportions at 16 heads of 128 channels: a latent of 512 and 64 RoPE channels.
void latent_step(benchmark::State& state, LatentForm form) {
  torch::NoGradGuard no_grad;
  MultiHeadLatentAttention layer(
      MultiHeadLatentAttentionOptions(2048, 16).nope_dim(128).rope_dim(64).kv_rank(512));
  auto cache = layer->make_cache(1, state.range(0) + 1);
  cache.append(torch::randn({1, state.range(0), cache.width()}));
  const auto x = torch::randn({1, 1, 2048});
  for (auto _ : state) {
    layer->decode(x, cache, form);
    cache.truncate(state.range(0));
  }
  state.counters["cache_MB"] = static_cast<double>(cache.bytes()) / 1e6;
}
// The softmax alone over plain heads' cache, without their projections.
void plain_step(benchmark::State& state) {
  torch::NoGradGuard no_grad;
  const auto query = torch::randn({1, 16, 1, 128});
  const auto key = torch::randn({1, 16, state.range(0), 128}), value = torch::randn_like(key);
  for (auto _ : state) attention(query, key, value, {.patterns = causal()});
  state.counters["cache_MB"] = 2.0 * static_cast<double>(key.nbytes()) / 1e6;
}
BENCHMARK_CAPTURE(latent_step, absorbed, LatentForm::kAbsorbed)->Arg(1024)->Arg(8192)->UseRealTime();
BENCHMARK_CAPTURE(latent_step, plain, LatentForm::kPlain)->Arg(1024)->Arg(8192)->UseRealTime();
BENCHMARK(plain_step)->Arg(1024)->Arg(8192)->UseRealTime();

}  // namespace
}  // namespace iha::nn

BENCHMARK_MAIN();
