// Linear attention as a function: a feature map phi in place of the softmax, so that the sums over keys are
// taken before any query is known. With phi applied to each row of query and key, and j over the keys that
// query i sees (all of them, or j <= i where `causal`):
//   S_i = sum_j phi(k_j) v_j^T   [d, dv]        z_i = sum_j phi(k_j)   [d]
//   out_i = (phi(q_i)^T S_i) / (phi(q_i)^T z_i)     normalised
//   out_i = phi(q_i)^T S_i                          not normalised
// Feature maps: `elu`, phi(x) = elu(x) + 1 (arXiv:2006.16236), which is positive; `identity`, phi(x) = x,
// with which theory works: out_i = sum_j (q_i . k_j) v_j, and not normalised unless asked for. Where the
// denominator is exactly 0 the output is 0, without a gradient: a query that sees no key, features that are
// all 0, or, with `identity` alone, products of both signs that cancel. Such products may also nearly cancel,
// and then the output is as large as the formula says: nothing is clamped. Not here: projections
// (linear_attention.h), patterns, RoPE.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace iha::nn {

// What a causal pass leaves for the tokens after it, of the same size however many they were. Empty at first.
// It holds the graph of its gradients where these are recorded; `sums = sums.detach()` lets go of it.
struct LinearAttentionState {
  // [B, Hkv, d, dv + 1]: S and, as the last column, z; without it where the output is not normalised.
  // float32, or float64 for float64 inputs.
  torch::Tensor sums = {};
  int64_t tokens = 0;  // that it has seen

  int64_t bytes() const { return sums.defined() ? static_cast<int64_t>(sums.nbytes()) : 0; }
};

struct LinearAttentionArguments {
  std::string feature_map = "elu";               // or "identity"
  std::optional<bool> normalise = std::nullopt;  // absent: true for "elu", false for "identity"
  bool causal = false;
  // Causal: tokens that meet each other directly, by a product of chunk x chunk, while everything before the
  // chunk comes from its running state. Time N * (chunk + d) * dv, memory one state a chunk. The result does
  // not depend on it but for rounding.
  int64_t chunk = 64;
  torch::Tensor key_lengths = {};         // int64 [B]: keys of this call at or past it do not exist
  LinearAttentionState* state = nullptr;  // causal only: begins from it and leaves it at the last token
};

// phi(x). Throws c10::ValueError for another name.
torch::Tensor feature_map(const std::string& name, const torch::Tensor& x);
// Whether the map's output is normalised where nobody says.
bool normalised_by_default(const std::string& feature_map);

// query [B, H, N, d], key [B, Hkv, Nk, d], value [B, Hkv, Nk, dv] of one floating dtype; Hkv divides H, and
// head h reads key head h / (H/Hkv). -> [B, H, N, dv]. Nk = N where causal. Sums are float32 for 16-bit
// inputs. What a query does not see never reaches it, NaN included, and changes no bit of it; a visible NaN
// makes the output NaN. Gradients are those of torch operations: they are of use where the output is finite.
// Throws c10::ValueError for what does not fit.
torch::Tensor linear_attention(const torch::Tensor& query, const torch::Tensor& key,
                               const torch::Tensor& value, const LinearAttentionArguments& arguments = {});

}  // namespace iha::nn
