// A program of somebody else's that uses the operator and the layer of an installed copy.
#include <iha/iha.h>
#include <torch/torch.h>

#include <cstdio>

int main() {
  torch::manual_seed(0);
  const auto q = torch::randn({2, 4, 16, 8}, torch::requires_grad());
  const auto k = torch::randn({2, 4, 16, 8}), v = torch::randn({2, 4, 16, 8});
  const auto out = iha::attention(q, k, v, {.patterns = iha::causal() * 4});
  const auto expected = torch::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
  if (!torch::allclose(out, expected, 1e-4, 1e-5)) {
    std::puts("causal heads differ from scaled_dot_product_attention");
    return 1;
  }
  out.sum().backward();
  if (!q.grad().defined() || !q.grad().isfinite().all().item<bool>()) {
    std::puts("no gradient");
    return 1;
  }

  iha::nn::InterleavedHeadAttention layer(iha::nn::InterleavedHeadAttentionOptions::interleaved(32, 4));
  const auto y = layer->forward(torch::randn({2, 10, 32}));
  if (y.sizes() != torch::IntArrayRef({2, 10, 32})) {
    std::puts("the layer's output has another shape");
    return 1;
  }

  try {
    iha::attention(q, k.narrow(1, 0, 3), v.narrow(1, 0, 3));
  } catch (const c10::Error& error) {
    std::printf("found iha with torch and used it; an error reads: %s\n", error.what_without_backtrace());
    return 0;
  }
  std::puts("4 query heads over 3 key heads were taken");
  return 1;
}
