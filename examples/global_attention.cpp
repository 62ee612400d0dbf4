// Global attention: every token sees every other; and global tokens, which every token of a local head sees
// as well: `sliding:4+first:2`.
#include <cstdio>
#include <cstdlib>

#include "examples/example.h"

using namespace iha::examples;

int main() {
  const int64_t tokens = 100, d = 16;
  const Array q = random(2, tokens, d, 1), k = random(2, tokens, d, 2), v = random(2, tokens, d, 3);
  const auto local = iha::sliding(4).with_first(2);
  const Array out = attention(q, k, v, iha::global() + iha::PatternList({local}));
  std::printf("global: %lld pairs; %s: %lld pairs\n",
              static_cast<long long>(iha::visible_pairs(iha::global(), tokens, tokens, 0)),
              iha::to_text(local).c_str(),
              static_cast<long long>(iha::visible_pairs(local, tokens, tokens, 0)));
  return verdict(out, softmax_attention(q, k, v, [](int64_t h, int64_t i, int64_t j) {
                   return h == 0 || std::abs(i - j) <= 4 || j < 2;
                 }));
}
