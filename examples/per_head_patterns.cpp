// Heads that differ: each head of one call has a pattern of its own and costs what its pattern costs.
#include <cstdio>
#include <cstdlib>

#include "examples/example.h"

using namespace iha::examples;

int main() {
  const int64_t tokens = 128, d = 16;
  const auto patterns = iha::causal() * 2 + iha::sliding(8) * 2 + iha::global();
  const Array q = random(5, tokens, d, 1), k = random(5, tokens, d, 2), v = random(5, tokens, d, 3);
  for (const auto& pattern : patterns.entries()) {
    std::printf("%-10s %6lld pairs\n", iha::to_text(pattern).c_str(),
                static_cast<long long>(iha::visible_pairs(pattern, tokens, tokens, 0)));
  }
  return verdict(attention(q, k, v, patterns),
                 softmax_attention(q, k, v, [](int64_t h, int64_t i, int64_t j) {
                   return h < 2 ? j <= i : h < 4 ? std::abs(i - j) <= 8 : true;
                 }));
}
