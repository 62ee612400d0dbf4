// Flash attention: the same function without the N x N matrix. A query goes over its keys block by block and
// keeps a running maximum m, sum l and output o:
//   m' = max(m, max_j s_j),  l' = l exp(m - m') + sum_j exp(s_j - m'),  o' = o exp(m - m') + sum_j exp(s_j -
//   m') v_j
// and gives o / l. The engine is this, in register tiles; below it stands as written.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "examples/example.h"

using namespace iha::examples;

namespace {

constexpr int64_t kBlock = 16;

void stream_row(const Array& q, const Array& k, const Array& v, int64_t i, Array& out) {
  double m = -std::numeric_limits<double>::infinity(), l = 0;
  std::vector<double> o(v.channels);
  for (int64_t first = 0; first <= i; first += kBlock) {
    const int64_t last = std::min(first + kBlock, i + 1);
    std::vector<double> scores;
    for (int64_t j = first; j < last; ++j) {
      double dot = 0;
      for (int64_t c = 0; c < q.channels; ++c) dot += q(0, i, c) * k(0, j, c);
      scores.push_back(dot / std::sqrt(static_cast<double>(q.channels)));
    }
    const double larger = std::max(m, *std::max_element(scores.begin(), scores.end()));
    const double rescale = std::exp(m - larger);
    l *= rescale;
    for (double& value : o) value *= rescale;
    for (int64_t j = first; j < last; ++j) {
      const double weight = std::exp(scores[j - first] - larger);
      l += weight;
      for (int64_t c = 0; c < v.channels; ++c) o[c] += weight * v(0, j, c);
    }
    m = larger;
  }
  for (int64_t c = 0; c < v.channels; ++c) out(0, i, c) = static_cast<float>(o[c] / l);
}

}  // namespace

int main() {
  const int64_t tokens = 1000, d = 16;
  const Array q = random(1, tokens, d, 1), k = random(1, tokens, d, 2), v = random(1, tokens, d, 3);
  Array streamed(1, tokens, d);
  for (int64_t i = 0; i < tokens; ++i) stream_row(q, k, v, i, streamed);
  const Array whole = softmax_attention(q, k, v, [](int64_t, int64_t i, int64_t j) { return j <= i; });
  std::printf("flash attention: %lld bytes of scores a head are never stored; streamed against whole: %.2g\n",
              static_cast<long long>(tokens * tokens * 4), largest_difference(streamed, whole));
  return verdict(streamed, whole) | verdict(attention(q, k, v, iha::causal()), streamed);
}
