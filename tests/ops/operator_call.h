// Calls of the torch operator for tests: the oracle's random calls as tensors of any dtype and memory order,
// and random tensors with a few options for tests of single rules.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "iha/ops/arguments.h"
#include "iha/ops/attention.h"
#include "tests/kernels/calls.h"

namespace iha::testing {

inline constexpr std::array<const char*, ops::kInputCount> kInputNames = {
    "query",   "key",      "value", "alpha_q",      "alpha_k",
    "alpha_v", "collapse", "sinks", "mode_weights", "block_weights"};

struct OperatorCall {
  at::Tensor query, key, value;  // leaves that require gradients, as the tensors of `options` do
  AttentionOptions options;

  // The differentiable inputs; undefined where absent.
  std::array<at::Tensor, ops::kInputCount> inputs() const;
  at::Tensor attention() const { return iha::attention(query, key, value, options); }
  std::tuple<at::Tensor, at::Tensor> attention_with_lse() const {
    return iha::attention_with_lse(query, key, value, options);
  }
};

using Gradients = std::array<at::Tensor, ops::kInputCount>;
// Gradients of sum_i outputs[i] * upstream[i]; undefined for absent inputs, zeros for inputs that take no
// part.
Gradients gradients(const OperatorCall& call, const std::vector<at::Tensor>& outputs,
                    const std::vector<at::Tensor>& upstream);

// How the memory of query, key and value lies.
enum class Memory { kContiguous, kTokenMajor, kChannelsFirst, kCount };

// Rounds the data of `call` to what `dtype` holds, so that the oracle and the operator read the same numbers.
void round_to(Call& call, at::ScalarType dtype);
// The same call as tensors. Its problem must be one that the operator can be asked for: P > 1 with some
// alpha.
OperatorCall operator_call(const Call& call, at::ScalarType dtype, Memory memory = Memory::kContiguous);
bool askable(const Call& call);

at::Tensor tensor_of(const std::vector<double>& values, at::IntArrayRef shape,
                     at::ScalarType dtype = at::kDouble);

// Standard normal query, key and value, positive weights where patterns ask for them, all requiring
// gradients.
struct Sizes {
  int64_t batch = 2, query_heads = 2, key_heads = 2, queries = 9, keys = 9, head_dim = 8, value_dim = 8;
};
OperatorCall random_operator_call(const Sizes& sizes, const std::string& patterns,
                                  at::ScalarType dtype = at::kFloat, int64_t seed = 1);
// Adds alpha_q, alpha_k, alpha_v for P pseudo-heads and, if `global_collapse`, a global collapse.
void add_mixing(OperatorCall& call, int64_t pseudo_heads, bool global_collapse = true);

// Every bit the same, NaN equal to NaN.
bool same_bits(const at::Tensor& left, const at::Tensor& right);

// What the operator says when `run` throws c10::ValueError; fails the test where it does not.
std::string value_error(const std::function<void()>& run);

}  // namespace iha::testing
