// Cross-attention: the queries of one sequence ask the keys and values of another, as a decoder asks an
// encoder.
#include <cstdio>

#include "examples/example.h"

using namespace iha::examples;

int main() {
  const int64_t queries = 9, keys = 50, d = 16, dv = 24;
  const Array q = random(2, queries, d, 1), k = random(2, keys, d, 2), v = random(2, keys, dv, 3);
  const Array out = attention(q, k, v, iha::global());
  std::printf("cross-attention: %lld queries of one sequence ask %lld keys of another\n",
              static_cast<long long>(queries), static_cast<long long>(keys));
  return verdict(out, softmax_attention(q, k, v, [](int64_t, int64_t, int64_t) { return true; }));
}
