// Whole calls of the operator for tests: a problem with random data for every array it may have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "iha/core/philox.h"
#include "iha/kernels/problem.h"
#include "iha/kernels/reference/reference.h"

namespace iha::testing {

struct Shape {
  int64_t batch = 1, query_heads = 1, key_heads = 1, queries = 1, keys = 1, head_dim = 1, value_dim = 1;
  int64_t pseudo_heads = 1;
};

// Defaults resolved as the operator does: scale 1 / sqrt(d), queries at the end of the keys.
Problem make_problem(const Shape& shape, const std::vector<Pattern>& patterns = {global()});

enum Present : unsigned { kNothing = 0, kAlphaQ = 1, kAlphaK = 2, kAlphaV = 4, kAlphas = 7, kSinks = 8 };

inline const double* data_or_null(const std::vector<double>& values) {
  return values.empty() ? nullptr : values.data();
}

// The oracle's inputs of anything with these members; empty ones are absent.
template <class Arrays>
reference::Inputs inputs_of(const Arrays& a) {
  return {a.query.data(),
          a.key.data(),
          a.value.data(),
          data_or_null(a.alpha_q),
          data_or_null(a.alpha_k),
          data_or_null(a.alpha_v),
          data_or_null(a.collapse),
          data_or_null(a.sinks),
          data_or_null(a.mode_weights),
          data_or_null(a.block_weights)};
}

// A problem with standard normal data; upstream gradients included.
struct Call {
  Problem problem;
  // Mode and block weights are positive, where patterns ask for them.
  std::vector<double> query, key, value, alpha_q, alpha_k, alpha_v, collapse, sinks, mode_weights,
      block_weights;
  std::vector<double> grad_out, grad_parts, grad_lse;

  Call(Problem problem, unsigned present, uint64_t seed);
  reference::Inputs inputs() const { return inputs_of(*this); }
  reference::Upstream upstream() const;
  reference::Outputs forward() const { return reference::forward(problem, inputs()); }
  reference::Gradients backward() const { return reference::backward(problem, inputs(), upstream()); }
};

// A call with everything drawn: sizes up to `most_tokens`, patterns, layout, order, RoPE, collapse, scope,
// what is present. The same seed gives the same call everywhere.
Call random_call(uint64_t seed, int64_t most_tokens = 9);

// Makes about a third of the mode and block weights 0, or too small to count: those pairs are hidden.
void hide_some(Call& call, uint64_t seed);
// Whether pseudo-query (i, p) sees pseudo-key (j, r), weights considered.
bool weighs(const Call& call, const Visibility& visible, int64_t b, int64_t h, int64_t i, int64_t p,
            int64_t j, int64_t r);

// What the call is, for messages.
std::string describe(const Problem& problem);

// Calls visit(name, member of the first, member of the second ...) for each of the arrays.
template <class Visit>
void for_each_array(const reference::Gradients& left, const reference::Gradients& right, Visit visit) {
  visit("query", left.query, right.query);
  visit("key", left.key, right.key);
  visit("value", left.value, right.value);
  visit("alpha_q", left.alpha_q, right.alpha_q);
  visit("alpha_k", left.alpha_k, right.alpha_k);
  visit("alpha_v", left.alpha_v, right.alpha_v);
  visit("collapse", left.collapse, right.collapse);
  visit("sinks", left.sinks, right.sinks);
  visit("mode_weights", left.mode_weights, right.mode_weights);
  visit("block_weights", left.block_weights, right.block_weights);
}

}  // namespace iha::testing
