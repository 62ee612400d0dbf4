#include "iha/nn/linear_attention_function.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

namespace iha::nn {
namespace {

constexpr std::string_view kName = "iha::nn::linear_attention";
// Numbers of one intermediate tensor of a causal pass, 1 MB of float32: larger ones come from fresh pages
// each time, and at 8 MB the same work took three times as long.
constexpr int64_t kSegmentNumbers = int64_t{1} << 18;

void check_shapes(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value) {
  for (const auto& [tensor, name] : {std::pair{&query, "query"}, {&key, "key"}, {&value, "value"}}) {
    TORCH_CHECK_VALUE(tensor->dim() == 4 && tensor->is_floating_point(), kName, ": ", name, " is ",
                      tensor->scalar_type(), " of shape ", tensor->sizes(),
                      ", expected floating [batch, heads, tokens, channels]");
    TORCH_CHECK_VALUE(tensor->scalar_type() == query.scalar_type(), kName, ": ", name, " is ",
                      tensor->scalar_type(), ", expected ", query.scalar_type(), " as query is");
  }
  TORCH_CHECK_VALUE(key.size(0) == query.size(0) && key.size(3) == query.size(3), kName, ": key has shape ",
                    key.sizes(), ", expected batch and channels of the query's ", query.sizes());
  TORCH_CHECK_VALUE(value.sizes().slice(0, 3) == key.sizes().slice(0, 3), kName, ": value has shape ",
                    value.sizes(), ", expected batch, heads and tokens of the key's ", key.sizes());
  const auto multiple = key.size(1) == 0 ? query.size(1) == 0 : query.size(1) % key.size(1) == 0;
  TORCH_CHECK_VALUE(multiple, kName, ": ", query.size(1), " query heads is not a multiple of ", key.size(1),
                    " key heads");
}

void check_call(const torch::Tensor& query, const torch::Tensor& key, const LinearAttentionArguments& call) {
  TORCH_CHECK_VALUE(call.chunk >= 1, kName, ": chunk = ", call.chunk, ", expected at least 1");
  TORCH_CHECK_VALUE(!call.causal || key.size(2) == query.size(2), kName, ": ", query.size(2), " queries and ",
                    key.size(2), " keys in a causal call, expected as many of each");
  TORCH_CHECK_VALUE(call.causal || call.state == nullptr, kName,
                    ": a state in a call that is not causal, expected causal = true");
  const auto& lengths = call.key_lengths;
  if (!lengths.defined()) return;
  TORCH_CHECK_VALUE(lengths.scalar_type() == torch::kInt64 && lengths.sizes() == at::IntArrayRef(key.size(0)),
                    kName, ": key_lengths is ", lengths.scalar_type(), " of shape ", lengths.sizes(),
                    ", expected Long [", key.size(0), "] = [batch]");
  if (lengths.numel() == 0) return;
  TORCH_CHECK_VALUE(lengths.min().item<int64_t>() >= 0 && lengths.max().item<int64_t>() <= key.size(2), kName,
                    ": key_lengths from ", lengths.min().item<int64_t>(), " to ",
                    lengths.max().item<int64_t>(), ", expected 0 to ", key.size(2), " = keys");
}

// A cheap sign that holds for finite tensors of any usual size; false is always safe.
bool surely_finite(const torch::Tensor& x) {
  return std::isfinite(x.detach().sum().item<double>());
}

torch::Tensor finite_part(const torch::Tensor& x) {
  return at::where(x.isfinite(), x, at::zeros({}, x.options()));
}

// 0 where x is finite, else NaN.
torch::Tensor poison(const torch::Tensor& x) {
  return x.detach() - x.detach();
}

// Products of queries [n, G * C, d] with the keys of their own chunk up to themselves: [n, G * C, w]. A key
// or value that is not finite must reach no row before it, and 0 * NaN is NaN: it takes part as 0 and is put
// back as NaN from its own row on.
torch::Tensor within_chunks(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                            bool finite) {
  const auto chunk = key.size(1);
  const auto groups = query.size(1) / chunk;
  const auto attend = [&](const torch::Tensor& k, const torch::Tensor& v) {
    const auto scores = at::bmm(query, k.transpose(1, 2));
    return at::bmm(scores.view({-1, groups, chunk, chunk}).tril().view(scores.sizes()), v);
  };
  if (finite) return attend(key, value);
  const auto spoilt = (poison(key).sum(-1, /*keepdim=*/true) + poison(value)).cumsum(1);
  return attend(finite_part(key), finite_part(value)) + spoilt.repeat({1, groups, 1});
}

// query [B, Hkv, G, N, d], key [B, Hkv, N, d], value [B, Hkv, N, w] -> [B, Hkv, G, N, w]. `sums` [B, Hkv, d,
// w] is the state before the first token and becomes that after the last.
torch::Tensor causal_product(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                             int64_t longest_chunk, torch::Tensor& sums) {
  const auto batch = key.size(0), heads = key.size(1), tokens = key.size(2);
  const auto groups = query.size(2), depth = key.size(3), width = value.size(3);
  if (tokens == 0) return at::matmul(query, sums.unsqueeze(2));  // no rows, but part of the graph
  const bool finite = surely_finite(key) && surely_finite(value);
  const auto chunk = std::min(longest_chunk, tokens);
  const auto chunks = (tokens + chunk - 1) / chunk;
  // Rows of zeros fill the last chunk: they add nothing to any sum.
  const auto missing = chunks * chunk - tokens;
  const auto cut = [&](const torch::Tensor& x) {
    return (missing == 0 ? x : at::constant_pad_nd(x, {0, 0, 0, missing})).unflatten(-2, {chunks, chunk});
  };
  const auto rows = cut(query).transpose(2, 3).reshape({batch * heads * chunks, groups * chunk, depth});
  const auto keys = cut(key).reshape({batch * heads * chunks, chunk, depth});
  const auto values = cut(value).reshape({batch * heads * chunks, chunk, width});

  const auto own = at::bmm(keys.transpose(1, 2), values).view({batch, heads, chunks, depth, width});
  const auto states = at::cat({sums.unsqueeze(2), own}, 2).cumsum(2);
  sums = states.select(2, chunks);
  const auto before = states.narrow(2, 0, chunks).reshape({batch * heads * chunks, depth, width});
  const auto out = at::bmm(rows, before) + within_chunks(rows, keys, values, finite);
  return out.view({batch, heads, chunks, groups, chunk, width})
      .transpose(2, 3)
      .reshape({batch, heads, groups, chunks * chunk, width})
      .narrow(3, 0, tokens);
}

torch::Tensor state_before(const LinearAttentionState* state, at::IntArrayRef sizes,
                           const torch::TensorOptions& options) {
  if (state == nullptr || !state->sums.defined()) return torch::zeros(sizes, options);
  const auto dtype = c10::typeMetaToScalarType(options.dtype());
  TORCH_CHECK_VALUE(state->sums.sizes() == sizes && state->sums.scalar_type() == dtype, kName,
                    ": a state of ", state->sums.scalar_type(), " of shape ", state->sums.sizes(),
                    ", expected ", dtype, " of shape ", sizes);
  return state->sums;
}

// The whole call, checked, or one segment of it.
torch::Tensor attend(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                     const LinearAttentionArguments& arguments) {
  const bool normalise = arguments.normalise.value_or(normalised_by_default(arguments.feature_map));
  const auto dtype = query.scalar_type();
  const auto wide = at::isReducedFloatingType(dtype) ? torch::kFloat32 : dtype;
  const auto batch = query.size(0), key_heads = key.size(1), tokens = query.size(2);
  const auto groups = key_heads == 0 ? 1 : query.size(1) / key_heads;

  torch::Tensor hidden;
  if (arguments.key_lengths.defined()) {
    const auto places = at::arange(key.size(2), arguments.key_lengths.options());
    hidden = places.unsqueeze(0).ge(arguments.key_lengths.unsqueeze(1)).view({batch, 1, -1, 1});
  }
  const auto without_hidden = [&](const torch::Tensor& x) {
    return hidden.defined() ? x.masked_fill(hidden, 0) : x;
  };
  const auto rows = feature_map(arguments.feature_map, query.to(wide)).unflatten(1, {key_heads, groups});
  // Before the map, so that a hidden NaN has no derivative, and after it, since phi(0) is not 0.
  const auto keys = without_hidden(feature_map(arguments.feature_map, without_hidden(key.to(wide))));
  auto values = without_hidden(value.to(wide));
  // A value of 1 sums to the denominator; a hidden key's features are 0.
  if (normalise) values = at::cat({values, values.new_ones({batch, key_heads, key.size(2), 1})}, 3);

  torch::Tensor out;
  auto sums =
      state_before(arguments.state, {batch, key_heads, key.size(3), values.size(3)}, values.options());
  if (arguments.causal) {
    out = causal_product(rows, keys, values, arguments.chunk, sums);
    if (arguments.state != nullptr) {
      arguments.state->sums = sums;
      arguments.state->tokens += tokens;
    }
  } else {
    sums = at::matmul(keys.transpose(2, 3), values);
    out = at::matmul(rows.flatten(2, 3), sums).unflatten(2, {groups, tokens});
  }
  out = out.flatten(1, 2);
  if (normalise) {
    const auto denominator = out.narrow(3, value.size(3), 1);
    const auto none = denominator == 0;
    out = out.narrow(3, 0, value.size(3)).masked_fill(none, 0) / denominator.masked_fill(none, 1);
  }
  return out.to(dtype);
}

// Whole chunks, so that segments change no bit of what chunks give.
int64_t segment_tokens(const torch::Tensor& query, int64_t chunk) {
  const auto numbers_a_token = std::max<int64_t>(1, query.size(0) * query.size(1) * query.size(3));
  return std::max<int64_t>(1, kSegmentNumbers / numbers_a_token / chunk) * chunk;
}

}  // namespace

torch::Tensor feature_map(const std::string& name, const torch::Tensor& x) {
  if (name == "identity") return x;
  TORCH_CHECK_VALUE(name == "elu", kName, ": feature_map = '", name, "', expected 'elu' or 'identity'");
  // elu(x) + 1 without the difference that is 0 from x = -17 on in float32: exp(x) below 0, x + 1 above.
  return x.clamp_max(0).exp() + x.relu();
}

bool normalised_by_default(const std::string& feature_map) {
  return feature_map != "identity";
}

torch::Tensor linear_attention(const torch::Tensor& query, const torch::Tensor& key,
                               const torch::Tensor& value, const LinearAttentionArguments& arguments) {
  // Sums stay float32 also where autocast would make products of 16 bits.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  check_shapes(query, key, value);
  check_call(query, key, arguments);
  const auto tokens = query.size(2);
  const auto segment = segment_tokens(query, arguments.chunk);
  if (!arguments.causal || tokens <= segment) return attend(query, key, value, arguments);

  LinearAttentionState own;
  auto part = arguments;
  if (part.state == nullptr) part.state = &own;
  // Split, not narrowed: the gradients of many narrow pieces are as many whole tensors.
  const auto queries = query.split(segment, 2), keys = key.split(segment, 2),
             values = value.split(segment, 2);
  std::vector<torch::Tensor> outs;
  for (size_t at = 0; at < queries.size(); ++at) {
    if (arguments.key_lengths.defined()) {
      const auto first = static_cast<int64_t>(at) * segment;
      part.key_lengths = (arguments.key_lengths - first).clamp(0, queries[at].size(2));
    }
    outs.push_back(attend(queries[at], keys[at], values[at], part));
  }
  return at::cat(outs, 2);
}

}  // namespace iha::nn
