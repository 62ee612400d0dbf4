// Causal attention: query i sees keys j <= i, so that a decoder cannot look ahead.
#include <cstdio>

#include "examples/example.h"

using namespace iha::examples;

int main() {
  const int64_t tokens = 70, d = 16;
  const Array q = random(1, tokens, d, 1), v = random(1, tokens, d, 3);
  Array k = random(1, tokens, d, 2);
  const Array out = attention(q, k, v, iha::causal());
  std::printf("causal attention: %lld of %lld pairs\n",
              static_cast<long long>(iha::visible_pairs(iha::causal(), tokens, tokens, 0)),
              static_cast<long long>(tokens * tokens));
  if (verdict(out, softmax_attention(q, k, v, [](int64_t, int64_t i, int64_t j) { return j <= i; })) != 0)
    return 1;

  // Another token 40 changes no bit of tokens 0 to 39.
  for (int64_t c = 0; c < d; ++c) k(0, 40, c) = 7;
  const Array changed = attention(q, k, v, iha::causal());
  for (int64_t at = 0; at < 40 * d; ++at) {
    if (changed.values[at] != out.values[at]) return 1;
  }
  std::puts("a changed token 40 reached no earlier one");
  return 0;
}
