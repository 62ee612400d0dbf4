// Gradients by the chain rule, from the loss back: collapse, weighted sum, softmax, scores, RoPE, mixing.
#include "iha/kernels/reference/collapse.h"
#include "iha/kernels/reference/pair_weights.h"
#include "iha/kernels/reference/pseudo_heads.h"

namespace iha::reference {
namespace {

// Which rows [heads, tokens, P] take part at all: pseudo-queries that see a key, pseudo-keys that some query
// sees.
struct Used {
  std::vector<char> queries, keys;
};

// The gradients of q~, k~ (turned) and v~.
using PseudoGradients = PseudoHeads;

// For weights w_j = exp(s_j - lse) (s_j includes the bias ln w of the pair), dropout factors m_j,
// o = sum_j w_j m_j v~_j and upstream gradients g of o and `grad_lse` of lse = log sum_j exp(s_j):
//   dw_j = m_j g . v~_j     D = sum_j w_j dw_j     ds_j = w_j (dw_j - D + grad_lse)     dv~_j += w_j m_j g
// and the sink, a score without a value: dsink = w_sink (grad_lse - D). Then dq~ += scale ds_j k~_j, dk~_j
// likewise, and ds_j is the gradient of the pair's bias.
void row_backward(const Problem& problem, const PseudoHeads& pseudo, const PairWeights& pair_weights,
                  const Row& row, int64_t b, int64_t h, int64_t query_row, const double* grad_part,
                  double grad_lse, PseudoGradients& grad, Gradients& gradients) {
  const int64_t d = problem.head_dim, dv = problem.value_dim,
                pseudo_keys = problem.keys * problem.pseudo_heads;
  const int64_t key_head = h / problem.group();
  const double* query = pseudo.query.data() + (h * problem.queries * problem.pseudo_heads + query_row) * d;
  const double* keys = pseudo.key.data() + key_head * pseudo_keys * d;
  const double* values = pseudo.value.data() + key_head * pseudo_keys * dv;
  double* grad_query = grad.query.data() + (query - pseudo.query.data());
  double* grad_keys = grad.key.data() + (keys - pseudo.key.data());
  double* grad_values = grad.value.data() + (values - pseudo.value.data());

  const std::size_t seen = row.columns.size();
  std::vector<double> grad_weights(seen);
  double mean = 0;  // D
  for (std::size_t at = 0; at < seen; ++at) {
    const int64_t column = row.columns[at];
    const double factor = dropout_factor(problem, b, h, query_row, column);
    for (int64_t c = 0; c < dv; ++c) {
      grad_weights[at] += factor * grad_part[c] * values[column * dv + c];
      grad_values[column * dv + c] += row.weights[at] * factor * grad_part[c];
    }
    mean += row.weights[at] * grad_weights[at];
  }
  for (std::size_t at = 0; at < seen; ++at) {
    const int64_t column = row.columns[at];
    const double grad_bias = row.weights[at] * (grad_weights[at] - mean + grad_lse);
    const double grad_score = problem.scale * grad_bias;
    pair_weights.add_gradient(h, query_row / problem.pseudo_heads, column / problem.pseudo_heads,
                              row.candidates[at], grad_bias, gradients);
    for (int64_t c = 0; c < d; ++c) {
      grad_query[c] += grad_score * keys[column * d + c];
      grad_keys[column * d + c] += grad_score * query[c];
    }
  }
  if (!gradients.sinks.empty()) gradients.sinks[h] += row.sink_weight * (grad_lse - mean);
}

// One softmax a pseudo-query, [Hq, Nq, P], and who takes part.
std::vector<Row> all_rows(const Problem& problem, const Visibility& visible, const PseudoHeads& pseudo,
                          const Inputs& inputs, int64_t b, Used& used) {
  const int64_t pseudo_heads = problem.pseudo_heads, pseudo_keys = problem.keys * pseudo_heads;
  used.queries.assign(problem.query_heads * problem.queries * pseudo_heads, 0);
  used.keys.assign(problem.key_heads * pseudo_keys, 0);
  std::vector<Row> rows;
  rows.reserve(used.queries.size());
  for (int64_t h = 0; h < problem.query_heads; ++h) {
    for (int64_t i = 0; i < problem.queries; ++i) {
      for (int64_t p = 0; p < pseudo_heads; ++p) {
        rows.push_back(softmax_row(problem, visible, pseudo, inputs, b, h, i, p));
        used.queries[rows.size() - 1] = !rows.back().columns.empty();
        for (const int64_t column : rows.back().columns)
          used.keys[h / problem.group() * pseudo_keys + column] = 1;
      }
    }
  }
  return rows;
}

// The gradient of every part o[h,n,p]: its own, and what comes through the collapse.
std::vector<double> part_gradients(const Problem& problem, const Inputs& inputs, const Outputs& outputs,
                                   const Upstream& upstream, const Used& used,
                                   std::vector<double>& grad_collapse) {
  std::vector<double> grad_parts(outputs.parts.size());
  if (upstream.parts != nullptr) grad_parts.assign(upstream.parts, upstream.parts + grad_parts.size());
  if (upstream.out != nullptr) {
    collapse_backward(problem, inputs.collapse, outputs.parts, used.queries, upstream.out, grad_parts,
                      grad_collapse);
  }
  return grad_parts;
}

void add(std::vector<double>& sum, const std::vector<double>& term) {
  for (std::size_t at = 0; at < sum.size(); ++at) sum[at] += term[at];
}

}  // namespace

Gradients backward_sequence(const Problem& problem, const Visibility& visible, const Inputs& inputs,
                            const Upstream& upstream, int64_t b) {
  const int64_t pseudo_heads = problem.pseudo_heads, rows_of_head = problem.queries * pseudo_heads;
  const PseudoHeads pseudo = make_pseudo_heads(problem, inputs, b);
  const Outputs outputs = forward_sequence(problem, visible, inputs, b);
  Used used;
  const std::vector<Row> rows = all_rows(problem, visible, pseudo, inputs, b, used);

  Gradients gradients = zero_shared(problem, inputs);
  if (inputs.block_weights != nullptr) {
    gradients.block_weights.resize(problem.query_heads * problem.queries * problem.key_blocks());
  }
  const PairWeights pair_weights(problem, inputs);
  const std::vector<double> grad_parts =
      part_gradients(problem, inputs, outputs, upstream, used, gradients.collapse);
  PseudoGradients grad{std::vector<double>(pseudo.query.size()), std::vector<double>(pseudo.key.size()),
                       std::vector<double>(pseudo.value.size())};
  for (std::size_t at = 0; at < rows.size(); ++at) {
    if (!used.queries[at]) continue;
    const int64_t h = static_cast<int64_t>(at) / rows_of_head,
                  query_row = static_cast<int64_t>(at) % rows_of_head;
    row_backward(problem, pseudo, pair_weights, rows[at], b, h, query_row,
                 grad_parts.data() + at * problem.value_dim, upstream.lse == nullptr ? 0.0 : upstream.lse[at],
                 grad, gradients);
  }
  turn(grad.query, problem, query_sizes(problem), problem.query_offset[b], -1);
  turn(grad.key, problem, key_sizes(problem), 0, -1);
  mix_backward(inputs.query, inputs.alpha_q, query_sizes(problem), grad.query, used.queries, gradients.query,
               gradients.alpha_q);
  mix_backward(inputs.key, inputs.alpha_k, key_sizes(problem), grad.key, used.keys, gradients.key,
               gradients.alpha_k);
  mix_backward(inputs.value, inputs.alpha_v, value_sizes(problem), grad.value, used.keys, gradients.value,
               gradients.alpha_v);
  return gradients;
}

Gradients zero_shared(const Problem& problem, const Inputs& inputs) {
  const int64_t heads = problem.query_heads, key_heads = problem.key_heads,
                pseudo_heads = problem.pseudo_heads;
  Gradients gradients;
  if (inputs.alpha_q != nullptr) gradients.alpha_q.resize(heads * heads * pseudo_heads);
  if (inputs.alpha_k != nullptr) gradients.alpha_k.resize(key_heads * key_heads * pseudo_heads);
  if (inputs.alpha_v != nullptr) gradients.alpha_v.resize(key_heads * key_heads * pseudo_heads);
  if (inputs.sinks != nullptr) gradients.sinks.resize(heads);
  if (inputs.mode_weights != nullptr) gradients.mode_weights.resize(heads * problem.modes());
  if (problem.collapse == CollapseKind::kPerHead) gradients.collapse.resize(heads * pseudo_heads);
  if (problem.collapse == CollapseKind::kGlobal) gradients.collapse.resize(heads * heads * pseudo_heads);
  return gradients;
}

Gradients backward(const Problem& problem, const Inputs& inputs, const Upstream& upstream) {
  check(problem, "iha::reference::backward");
  check_weights(problem, inputs, "iha::reference::backward");
  const Visibility visible(problem);
  const int64_t lse_size = problem.query_heads * problem.queries * problem.pseudo_heads;
  const int64_t out_size = problem.query_heads * problem.queries * problem.value_dim;
  Gradients total = zero_shared(problem, inputs);
  for (int64_t b = 0; b < problem.batch; ++b) {
    const auto slice = [b](const double* data, int64_t size) {
      return data == nullptr ? nullptr : data + b * size;
    };
    const Upstream own{slice(upstream.out, out_size), slice(upstream.parts, out_size * problem.pseudo_heads),
                       slice(upstream.lse, lse_size)};
    const Gradients share = backward_sequence(problem, visible, sequence_of(problem, inputs, b), own, b);
    total.query.insert(total.query.end(), share.query.begin(), share.query.end());
    total.key.insert(total.key.end(), share.key.begin(), share.key.end());
    total.value.insert(total.value.end(), share.value.begin(), share.value.end());
    total.block_weights.insert(total.block_weights.end(), share.block_weights.begin(),
                               share.block_weights.end());
    add_shared(total, share);
  }
  return total;
}

void add_shared(Gradients& total, const Gradients& share) {
  add(total.alpha_q, share.alpha_q);
  add(total.alpha_k, share.alpha_k);
  add(total.alpha_v, share.alpha_v);
  add(total.collapse, share.collapse);
  add(total.sinks, share.sinks);
  add(total.mode_weights, share.mode_weights);
}

}  // namespace iha::reference
