// The stable softmax: exp(s - max s) / sum exp(s - max s) is exp(s) / sum exp(s) and does not overflow.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "examples/example.h"

using namespace iha::examples;

int main() {
  const int64_t tokens = 40, d = 16;
  // Scores reach some hundreds; exp overflows float32 from 89 on.
  const Array q = random(1, tokens, d, 1, 40), k = random(1, tokens, d, 2, 40), v = random(1, tokens, d, 3);
  float naive = 0, largest = 0;
  for (int64_t j = 0; j < tokens; ++j) {
    float score = 0;
    for (int64_t c = 0; c < d; ++c) score += q(0, 0, c) * k(0, j, c) / 4;
    naive += std::exp(score);
    largest = std::max(largest, score);
  }
  std::printf(
      "stable softmax: the largest score of query 0 is %.0f, its sum of exp(score) is %g in float32\n",
      largest, naive);
  if (std::isfinite(naive)) return 1;
  // A score of 1000 in float32 is off by up to 1000 * 2^-24 * sqrt(d), and a weight by that share.
  return verdict(attention(q, k, v, iha::global()),
                 softmax_attention(q, k, v, [](int64_t, int64_t, int64_t) { return true; }), 1e-3);
}
