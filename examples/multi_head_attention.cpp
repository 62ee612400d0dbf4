// Multi-head attention: H softmaxes side by side, each over its own d channels.
#include <algorithm>
#include <cstdio>

#include "examples/example.h"

using namespace iha::examples;

int main() {
  const int64_t heads = 4, tokens = 33, d = 8;
  const Array q = random(heads, tokens, d, 1), k = random(heads, tokens, d, 2),
              v = random(heads, tokens, d, 3);
  const Array out = attention(q, k, v, iha::causal());
  // Head 2 alone is the same head.
  const auto alone = [&](const Array& x) {
    Array one(1, tokens, d);
    std::copy_n(x.values.begin() + 2 * tokens * d, tokens * d, one.values.begin());
    return one;
  };
  std::printf("multi-head: %lld heads; a cache holds %lld numbers a token\n", static_cast<long long>(heads),
              static_cast<long long>(2 * heads * d));
  const auto sees = [](int64_t, int64_t i, int64_t j) { return j <= i; };
  return verdict(out, softmax_attention(q, k, v, sees)) |
         verdict(alone(out), softmax_attention(alone(q), alone(k), alone(v), sees));
}
