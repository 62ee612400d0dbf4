// Pseudo-head attention for torch: the public C++ functions over the operators `iha::attention`,
// `iha::attention_with_lse` and `iha::attention_weights`. Formulas and rules: docs/operator.md.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>

#include "iha/patterns/parse.h"
#include "iha/patterns/pattern.h"

namespace iha {

// Everything but query, key and value. Absent tensors are std::nullopt; strings are spelt as in the schema.
struct AttentionOptions {
  PatternList patterns = global();
  std::optional<at::Tensor> alpha_q = std::nullopt;   // [Hq, Hq, P]: [source head, head, pseudo-head]
  std::optional<at::Tensor> alpha_k = std::nullopt;   // [Hkv, Hkv, P]
  std::optional<at::Tensor> alpha_v = std::nullopt;   // [Hkv, Hkv, P]
  std::optional<at::Tensor> collapse = std::nullopt;  // absent: mean; [Hq, P]: per head; [Hq, Hq, P]: global
  std::string layout = "interleaved";                 // or "parallel"
  std::string order = "flat";                         // or "token"
  std::string rope = "none";                          // or "token", "virtual"
  double rope_theta = 10000.0;
  std::optional<at::Tensor> rope_freqs = std::nullopt;     // [r/2] radians per position
  std::string rope_style = "half";                         // or "adjacent"
  std::optional<double> scale = std::nullopt;              // default 1 / sqrt(d)
  std::optional<at::Tensor> query_offset = std::nullopt;   // int64, one element or [B]; default Nk - Nq
  std::optional<at::Tensor> key_lengths = std::nullopt;    // int64 [B]
  std::optional<at::Tensor> documents = std::nullopt;      // int64 [B, Nk]
  std::optional<at::Tensor> sinks = std::nullopt;          // [Hq]
  std::optional<at::Tensor> mode_weights = std::nullopt;   // [Hq, M], for learned heads
  std::optional<at::Tensor> block_weights = std::nullopt;  // [B, Hq, Nq, ceil(Nk / B_)], for dynamic heads
  double dropout_p = 0.0;
  std::optional<int64_t> dropout_seed = std::nullopt;  // default: drawn from torch's generator
};

// query [B, Hq, Nq, d], key [B, Hkv, Nk, d], value [B, Hkv, Nk, dv] of one dtype (float64, float32, bfloat16,
// float16), any strides -> [B, Hq, Nq, dv] over token-major memory, so that transpose(1, 2).reshape({B, Nq,
// Hq * dv}) copies nothing. Throws c10::ValueError (ValueError in Python) naming what was found and what was
// expected.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionOptions& options = {});

// parts [B, Hq, Nq, P, dv] (before the collapse) and lse [B, Hq, Nq, P]; both differentiable.
std::tuple<at::Tensor, at::Tensor> attention_with_lse(const at::Tensor& query, const at::Tensor& key,
                                                      const at::Tensor& value,
                                                      const AttentionOptions& options = {});

// The softmax weights of the query rows `rows` (int64 [R]): [B, Hq, R, P, Nk, P]. For looking, not for speed;
// dropout does not apply.
at::Tensor attention_weights(const at::Tensor& query, const at::Tensor& key, const at::Tensor& rows,
                             const AttentionOptions& options = {});

}  // namespace iha
