// Linear attention: out_i = phi(q_i)^T S_i / phi(q_i)^T z_i, with S and z the sums of phi(k_j) v_j^T and
// phi(k_j) over the keys so far, phi = elu + 1. A decoder keeps S and z, however long the sequence.
#include "iha/nn/linear_attention.h"

#include <cstdio>

using namespace iha::nn;

int main() {
  torch::manual_seed(0);
  torch::NoGradGuard no_grad;
  const int64_t tokens = 300, d_model = 64, heads = 4;
  LinearAttention layer(LinearAttentionOptions(d_model, heads).causal(true));
  layer->to(torch::kFloat64);
  const auto x = torch::randn({1, tokens, d_model}, torch::kFloat64);
  const auto out = layer(x);

  // The formula, token by token and head by head.
  const auto phi = [](const torch::Tensor& t) { return at::elu(t) + 1; };
  const auto split = [&](const torch::Tensor& t) { return t.view({tokens, heads, -1}); };
  const auto q = phi(split(layer->q_proj.forward(x))), k = phi(split(layer->k_proj.forward(x))),
             v = split(layer->v_proj.forward(x));
  auto sum = torch::zeros({heads, 16, 16}, torch::kFloat64), z = torch::zeros({heads, 16}, torch::kFloat64);
  std::vector<torch::Tensor> rows;
  for (int64_t n = 0; n < tokens; ++n) {
    sum += at::einsum("hd,he->hde", {k[n], v[n]});
    z += k[n];
    rows.push_back(at::einsum("hd,hde->he", {q[n], sum}) / (q[n] * z).sum(1, true));
  }
  const auto expected = layer->out_proj.forward(torch::stack(rows).view({1, tokens, -1}));

  // The same in steps: a prompt, then token by token.
  LinearAttentionState state;
  auto steps = std::vector{layer->step(x.narrow(1, 0, 250), state)};
  for (int64_t n = 250; n < tokens; ++n) steps.push_back(layer->step(x.narrow(1, n, 1), state));

  const auto difference = (out - expected).abs().max().item<double>();
  const auto of_steps = (torch::cat(steps, 1) - expected).abs().max().item<double>();
  std::printf(
      "linear attention: a state of %lld bytes for %lld tokens; off the formula by %.2g, in steps %.2g\n",
      static_cast<long long>(state.bytes()), static_cast<long long>(state.tokens), difference, of_steps);
  return difference < 1e-12 && of_steps < 1e-12 ? 0 : 1;
}
