// Sliding-window attention: query i sees keys within `window` tokens, on both sides or behind it; it costs
// N * (2 window + 1) pairs, not N^2.
#include <cstdio>
#include <cstdlib>

#include "examples/example.h"

using namespace iha::examples;

int main() {
  const int64_t tokens = 200, window = 8, d = 16;
  const Array q = random(2, tokens, d, 1), k = random(2, tokens, d, 2), v = random(2, tokens, d, 3);
  // Head 0 looks to both sides, head 1 behind.
  const Array out = attention(q, k, v, iha::sliding(window) + iha::causal_sliding(window));
  for (const auto& pattern : {iha::sliding(window), iha::causal_sliding(window)}) {
    std::printf("%s: %lld of %lld pairs\n", iha::to_text(pattern).c_str(),
                static_cast<long long>(iha::visible_pairs(pattern, tokens, tokens, 0)),
                static_cast<long long>(tokens * tokens));
  }
  return verdict(out, softmax_attention(q, k, v, [](int64_t h, int64_t i, int64_t j) {
                   return h == 0 ? std::abs(i - j) <= window : i - j >= 0 && i - j <= window;
                 }));
}
