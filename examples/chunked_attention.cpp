// Chunked attention and a hierarchy of it: below, tokens see their own chunk of C; above, global heads join
// the chunks. Two layers of N C + N^2 pairs; of L layers only the upper ones pay N^2.
#include <cstdio>

#include "examples/example.h"

using namespace iha::examples;

int main() {
  const int64_t tokens = 100, chunk = 16, heads = 2, d = 16;  // the last chunk has 4 tokens
  const Array q = random(heads, tokens, d, 1), k = random(heads, tokens, d, 2),
              v = random(heads, tokens, d, 3);
  const Array below = attention(q, k, v, iha::chunked(chunk));
  const Array above = attention(below, below, below, iha::global());
  std::printf("chunked: %lld pairs below, %lld above\n",
              static_cast<long long>(iha::visible_pairs(iha::chunked(chunk), tokens, tokens, 0)),
              static_cast<long long>(iha::visible_pairs(iha::global(), tokens, tokens, 0)));

  const Array local =
      softmax_attention(q, k, v, [](int64_t, int64_t i, int64_t j) { return i / chunk == j / chunk; });
  const Array whole = softmax_attention(local, local, local, [](int64_t, int64_t, int64_t) { return true; });
  return verdict(below, local) | verdict(above, whole);
}
