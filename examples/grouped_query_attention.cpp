// Grouped-query attention: query head h reads key head h / (H / Hkv): neighbours share, they are not dealt
// out in turn.
#include <cstdio>

#include "examples/example.h"

using namespace iha::examples;

int main() {
  const int64_t heads = 6, key_heads = 2, tokens = 33, d = 8;
  const Array q = random(heads, tokens, d, 1), k = random(key_heads, tokens, d, 2),
              v = random(key_heads, tokens, d, 3);
  // The same with every key head written out for each of its query heads: 0, 0, 0, 1, 1, 1.
  Array keys(heads, tokens, d), values(heads, tokens, d);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t n = 0; n < tokens; ++n) {
      for (int64_t c = 0; c < d; ++c) {
        keys(h, n, c) = k(h / 3, n, c);
        values(h, n, c) = v(h / 3, n, c);
      }
    }
  }
  std::printf("grouped-query: %lld query heads over %lld; a cache holds %lld numbers a token, not %lld\n",
              static_cast<long long>(heads), static_cast<long long>(key_heads),
              static_cast<long long>(2 * key_heads * d), static_cast<long long>(2 * heads * d));
  return verdict(attention(q, k, v, iha::causal()),
                 softmax_attention(q, keys, values, [](int64_t, int64_t i, int64_t j) { return j <= i; }));
}
