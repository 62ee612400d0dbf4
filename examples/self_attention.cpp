// Self-attention: every token of a sequence asks all tokens of the same sequence.
//   q = x Wq, k = x Wk, v = x Wv,  out_i = sum_j softmax_j(q_i . k_j / sqrt(d)) v_j
#include <cstdio>

#include "examples/example.h"

using namespace iha::examples;

namespace {

// x [1, N, D] times w [1, D, d].
Array project(const Array& x, const Array& w) {
  Array out(1, x.tokens, w.channels);
  for (int64_t n = 0; n < x.tokens; ++n) {
    for (int64_t c = 0; c < x.channels; ++c) {
      for (int64_t o = 0; o < w.channels; ++o) out(0, n, o) += x(0, n, c) * w(0, c, o);
    }
  }
  return out;
}

}  // namespace

int main() {
  const int64_t tokens = 48, d_model = 32, d = 16;
  const Array x = random(1, tokens, d_model, 1);
  const Array q = project(x, random(1, d_model, d, 2)), k = project(x, random(1, d_model, d, 3)),
              v = project(x, random(1, d_model, d, 4, 0.3));
  const Array out = attention(q, k, v, iha::global());
  std::printf("self-attention: %lld tokens, each asks all %lld\n", static_cast<long long>(tokens),
              static_cast<long long>(iha::visible_keys(iha::global(), 0, tokens)));
  return verdict(out, softmax_attention(q, k, v, [](int64_t, int64_t, int64_t) { return true; }));
}
