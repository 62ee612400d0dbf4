#include "iha/nn/multi_head_latent_attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <sstream>
#include <string_view>
#include <utility>

#include "iha/nn/heads.h"
#include "iha/nn/rope.h"
#include "iha/patterns/parse.h"

namespace iha::nn {
namespace {

using Options = MultiHeadLatentAttentionOptions;
constexpr std::string_view kName = "iha::nn::MultiHeadLatentAttention";

int64_t at_least_one(int64_t value, std::string_view option) {
  TORCH_CHECK_VALUE(value >= 1, kName, ": ", option, " = ", value, ", expected at least 1");
  return value;
}

void resolve_sizes(Options& options) {
  at_least_one(options.d_model(), "d_model");
  const auto heads = at_least_one(options.heads(), "heads");
  TORCH_CHECK_VALUE(options.nope_dim().has_value() || options.d_model() % heads == 0, kName, ": d_model ",
                    options.d_model(), " is not a multiple of ", heads, " heads; give nope_dim");
  const auto nope = at_least_one(options.nope_dim().value_or(options.d_model() / heads), "nope_dim");
  const auto rope = options.rope_dim().value_or((nope + 3) / 4 * 2);  // half, up to an even number
  TORCH_CHECK_VALUE(rope >= 0 && rope % 2 == 0, kName, ": rope_dim = ", rope,
                    ", expected an even number of at least 0");
  options.nope_dim(nope).rope_dim(rope);
  options.value_dim(at_least_one(options.value_dim().value_or(nope), "value_dim"));
  options.kv_rank(at_least_one(options.kv_rank().value_or(4 * nope), "kv_rank"));
  if (options.query_rank().has_value()) at_least_one(*options.query_rank(), "query_rank");
}

Options resolved(Options options) {
  resolve_sizes(options);
  TORCH_CHECK_VALUE(options.rope_style() == "half" || options.rope_style() == "adjacent", kName,
                    ": rope_style = '", options.rope_style(), "', expected 'half' or 'adjacent'");
  TORCH_CHECK_VALUE(options.rope_theta() > 0 && std::isfinite(options.rope_theta()), kName,
                    ": rope_theta = ", options.rope_theta(), ", expected a positive number");
  TORCH_CHECK_VALUE(options.dropout() >= 0 && options.dropout() <= 1, kName,
                    ": dropout = ", options.dropout(), ", expected a probability in [0, 1]");
  const auto count = static_cast<int64_t>(options.patterns().entries().size());
  TORCH_CHECK_VALUE(options.patterns().for_all() || count == options.heads(), kName, ": ", count,
                    " patterns for ", options.heads(), " heads, expected one a head, or one without a count");
  return options;
}

void check_tokens(const torch::Tensor& x, int64_t d_model) {
  TORCH_CHECK_VALUE(x.defined() && x.dim() == 3 && x.size(2) == d_model, kName, ": x of shape ",
                    x.defined() ? c10::str(x.sizes()) : "undefined", ", expected [B, N, ", d_model, "]");
}

void check_causal(const Options& options) {
  std::ostringstream found;
  const char* separator = "";
  const auto heads = options.patterns().expand(options.heads());
  for (size_t head = 0; head < heads.size(); ++head) {
    if (heads[head].causal()) continue;
    found << std::exchange(separator, ", ") << head << " (" << to_text(heads[head]) << ")";
  }
  TORCH_CHECK_VALUE(found.str().empty(), kName, ": decoding with heads ", found.str(),
                    " that are not causal, expected patterns that see no later token");
}

}  // namespace

MultiHeadLatentAttentionImpl::MultiHeadLatentAttentionImpl(Options options)
    : options(resolved(std::move(options))) {
  reset();  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall): as torch's own modules
}

void MultiHeadLatentAttentionImpl::reset() {
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name, torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false)));
  };
  const auto norm = [&](const char* name, int64_t width) {
    return register_module(name, RMSNorm(RMSNormOptions(width).eps(options.norm_eps())));
  };
  const auto heads = options.heads(), rank = *options.kv_rank();
  const auto query_width = heads * (*options.nope_dim() + *options.rope_dim());
  if (const auto query_rank = options.query_rank()) {
    q_a_proj = linear("q_a_proj", options.d_model(), *query_rank);
    q_a_layernorm = norm("q_a_layernorm", *query_rank);
    q_b_proj = linear("q_b_proj", *query_rank, query_width);
  } else {
    q_proj = linear("q_proj", options.d_model(), query_width);
  }
  kv_a_proj_with_mqa = linear("kv_a_proj_with_mqa", options.d_model(), rank + *options.rope_dim());
  kv_a_layernorm = norm("kv_a_layernorm", rank);
  kv_b_proj = linear("kv_b_proj", rank, heads * (*options.nope_dim() + *options.value_dim()));
  o_proj = linear("o_proj", heads * *options.value_dim(), options.d_model());
}

void MultiHeadLatentAttentionImpl::reset_parameters() {
  for (auto* layer : {&q_proj, &q_a_proj, &q_b_proj, &kv_a_proj_with_mqa, &kv_b_proj, &o_proj}) {
    if (!layer->is_empty()) (*layer)->reset_parameters();
  }
  for (auto* norm : {&q_a_layernorm, &kv_a_layernorm}) {
    if (!norm->is_empty()) (*norm)->reset_parameters();
  }
}

void MultiHeadLatentAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "iha::nn::MultiHeadLatentAttention(d_model=" << options.d_model() << ", heads=" << options.heads()
         << ", nope_dim=" << *options.nope_dim() << ", rope_dim=" << *options.rope_dim()
         << ", value_dim=" << *options.value_dim() << ", kv_rank=" << *options.kv_rank() << ", query_rank="
         << (options.query_rank() ? std::to_string(*options.query_rank()) : std::string("none"))
         << ", patterns=" << to_text(options.patterns()) << ", rope_theta=" << options.rope_theta()
         << ", rope_style=" << options.rope_style() << ", dropout=" << options.dropout() << ")";
}

AttentionOptions MultiHeadLatentAttentionImpl::attention_options() const {
  AttentionOptions attend;
  attend.patterns = options.patterns();
  attend.scale = 1.0 / std::sqrt(static_cast<double>(*options.nope_dim() + *options.rope_dim()));
  return attend;
}

torch::Tensor MultiHeadLatentAttentionImpl::queries(const torch::Tensor& x, int64_t position) {
  const auto nope = *options.nope_dim(), rope = *options.rope_dim();
  const auto flat = q_proj.is_empty() ? q_b_proj(q_a_layernorm(q_a_proj(x))) : q_proj(x);
  const auto query = split_heads(flat, options.heads(), nope + rope);
  if (rope == 0) return query;
  const auto style = options.rope_style() == "half" ? RopeStyle::kHalf : RopeStyle::kAdjacent;
  return at::cat({query.narrow(-1, 0, nope),
                  rotate(query.narrow(-1, nope, rope), position, options.rope_theta(), style)},
                 -1);
}

torch::Tensor MultiHeadLatentAttentionImpl::rows(const torch::Tensor& x, int64_t position) {
  const auto rank = *options.kv_rank(), rope = *options.rope_dim();
  const auto flat = kv_a_proj_with_mqa(x);
  const auto latent = kv_a_layernorm(flat.narrow(-1, 0, rank));
  if (rope == 0) return latent;
  const auto style = options.rope_style() == "half" ? RopeStyle::kHalf : RopeStyle::kAdjacent;
  return at::cat({latent, rotate(flat.narrow(-1, rank, rope), position, options.rope_theta(), style)}, -1);
}

torch::Tensor MultiHeadLatentAttentionImpl::plain(const torch::Tensor& query, const torch::Tensor& rows,
                                                  AttentionOptions attend) {
  const auto heads = options.heads(), nope = *options.nope_dim(), rope = *options.rope_dim();
  const auto rank = *options.kv_rank();
  const auto both = split_heads(kv_b_proj(rows.narrow(-1, 0, rank)), heads, nope + *options.value_dim());
  const auto turned = rows.narrow(-1, rank, rope).unsqueeze(1).expand({-1, heads, -1, -1});
  const auto key = at::cat({both.narrow(-1, 0, nope), turned}, -1);
  return attention(query, key, both.narrow(-1, nope, *options.value_dim()), attend);
}

torch::Tensor MultiHeadLatentAttentionImpl::absorbed(const torch::Tensor& query, const torch::Tensor& rows,
                                                     AttentionOptions attend) {
  const auto nope = *options.nope_dim(), rope = *options.rope_dim(), rank = *options.kv_rank();
  const auto weight = kv_b_proj->weight.unflatten(0, {options.heads(), nope + *options.value_dim()});
  const auto to_latent = at::einsum("bhnd,hdr->bhnr", {query.narrow(-1, 0, nope), weight.narrow(1, 0, nope)});
  const auto latent_query = at::cat({to_latent, query.narrow(-1, nope, rope)}, -1);
  const auto key = rows.unsqueeze(1);
  const auto mixed = attention(latent_query, key, key.narrow(-1, 0, rank), attend);  // [B, H, N, R]
  return at::einsum("bhnr,hvr->bhnv", {mixed, weight.narrow(1, nope, *options.value_dim())});
}

torch::Tensor MultiHeadLatentAttentionImpl::forward(const torch::Tensor& x, const LatentAttentionCall& call) {
  check_tokens(x, options.d_model());
  auto attend = attention_options();
  if (call.key_lengths.defined()) attend.key_lengths = call.key_lengths;
  if (call.documents.defined()) attend.documents = call.documents;
  attend.dropout_p = is_training() ? options.dropout() : 0.0;
  return o_proj(merge_heads(plain(queries(x, 0), rows(x, 0), attend)));
}

torch::Tensor MultiHeadLatentAttentionImpl::decode(const torch::Tensor& x, LatentCache& cache,
                                                   std::optional<LatentForm> form) {
  torch::NoGradGuard no_grad;
  check_tokens(x, options.d_model());
  check_causal(options);
  TORCH_CHECK_VALUE(cache.width() == *options.kv_rank() + *options.rope_dim(), kName, ": a cache of ",
                    cache.width(), " numbers a token, expected ", *options.kv_rank() + *options.rope_dim());
  const auto query = queries(x, cache.tokens());
  cache.append(rows(x, cache.tokens()).to(cache.rows().scalar_type()));  // autocast makes others
  const auto chosen = form.value_or(cheaper_form(x.size(1), cache.tokens()));
  const auto out = chosen == LatentForm::kPlain ? plain(query, cache.rows(), attention_options())
                                                : absorbed(query, cache.rows(), attention_options());
  return o_proj(merge_heads(out));
}

LatentCache MultiHeadLatentAttentionImpl::make_cache(int64_t batch, int64_t capacity) const {
  return {batch, *options.kv_rank() + *options.rope_dim(), kv_b_proj->weight.options(), capacity};
}

int64_t MultiHeadLatentAttentionImpl::cache_bytes_per_token() const {
  return (*options.kv_rank() + *options.rope_dim()) * static_cast<int64_t>(kv_b_proj->weight.element_size());
}

// Of one head, both. Plain: keys and values of all tokens are made again. Absorbed: two small products a
// query.
LatentForm MultiHeadLatentAttentionImpl::cheaper_form(int64_t queries, int64_t keys) const {
  const double nope = *options.nope_dim(), rope = *options.rope_dim(), values = *options.value_dim();
  const double rank = *options.kv_rank(), rows = queries, columns = keys;
  const double plain = columns * rank * (nope + values) + rows * columns * (nope + rope + values);
  const double absorbed = rows * rank * (nope + values) + rows * columns * (2 * rank + rope);
  return absorbed < plain ? LatentForm::kAbsorbed : LatentForm::kPlain;
}

}  // namespace iha::nn
