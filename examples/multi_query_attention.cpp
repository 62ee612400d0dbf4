// Multi-query attention: H query heads, one key and value head for all, so that a decoder's cache is H times
// smaller.
#include <cstdio>

#include "examples/example.h"

using namespace iha::examples;

int main() {
  const int64_t heads = 8, tokens = 33, d = 8;
  const Array q = random(heads, tokens, d, 1), k = random(1, tokens, d, 2), v = random(1, tokens, d, 3);
  std::printf("multi-query: %lld query heads over one; a cache holds %lld numbers a token, not %lld\n",
              static_cast<long long>(heads), static_cast<long long>(2 * d),
              static_cast<long long>(2 * heads * d));
  return verdict(attention(q, k, v, iha::causal()),
                 softmax_attention(q, k, v, [](int64_t, int64_t i, int64_t j) { return j <= i; }));
}
