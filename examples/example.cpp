#include "examples/example.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace iha::examples {

Array random(int64_t heads, int64_t tokens, int64_t channels, uint64_t seed, double size) {
  Array result(heads, tokens, channels);
  uint64_t state = seed;
  for (float& value : result.values) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
    value = static_cast<float>(size * (static_cast<double>(state >> 11) * 0x1p-52 - 1));
  }
  return result;
}

Array attention(const Array& query, const Array& key, const Array& value, const PatternList& patterns) {
  Problem problem;
  problem.batch = 1;
  problem.query_heads = query.heads;
  problem.key_heads = key.heads;
  problem.queries = query.tokens;
  problem.keys = key.tokens;
  problem.head_dim = query.channels;
  problem.value_dim = value.channels;
  problem.patterns = patterns.expand(query.heads);
  problem.scale = 1 / std::sqrt(static_cast<double>(query.channels));
  problem.query_offset = {key.tokens - query.tokens};

  const auto strides = [](const Array& x) {
    return std::array<int64_t, 5>{x.heads * x.tokens * x.channels, x.tokens * x.channels, x.channels, 1};
  };
  const auto input = [&](const Array& x) {
    return core::Array{x.values.data(), DType::kFloat32, strides(x)};
  };
  Array out(query.heads, query.tokens, value.channels);
  core::AttentionInputs inputs;
  inputs.query = input(query);
  inputs.key = input(key);
  inputs.value = input(value);
  core::AttentionOutputs outputs;
  outputs.out = {out.values.data(), DType::kFloat32, strides(out)};
  core::attention(problem, inputs, outputs, thread_pool(2));
  return out;
}

Array softmax_attention(const Array& query, const Array& key, const Array& value, const Sees& sees) {
  const int64_t group = query.heads / key.heads;
  Array out(query.heads, query.tokens, value.channels);
  std::vector<double> scores(key.tokens);
  for (int64_t h = 0; h < query.heads; ++h) {
    for (int64_t i = 0; i < query.tokens; ++i) {
      double largest = -std::numeric_limits<double>::infinity();
      for (int64_t j = 0; j < key.tokens; ++j) {
        double dot = 0;
        for (int64_t c = 0; c < query.channels; ++c) dot += query(h, i, c) * key(h / group, j, c);
        scores[j] = sees(h, i, j) ? dot / std::sqrt(static_cast<double>(query.channels))
                                  : -std::numeric_limits<double>::infinity();
        largest = std::max(largest, scores[j]);
      }
      if (std::isinf(largest)) continue;
      double sum = 0;
      for (double& score : scores) sum += score = std::exp(score - largest);
      for (int64_t c = 0; c < value.channels; ++c) {
        double total = 0;
        for (int64_t j = 0; j < key.tokens; ++j) total += scores[j] * value(h / group, j, c);
        out(h, i, c) = static_cast<float>(total / sum);
      }
    }
  }
  return out;
}

double largest_difference(const Array& a, const Array& b) {
  if (a.values.size() != b.values.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t at = 0; at < a.values.size(); ++at) {
    const double difference = std::abs(static_cast<double>(a.values[at]) - b.values[at]);
    if (!(difference <= largest)) largest = difference;  // NaN too
  }
  return largest;
}

int verdict(const Array& found, const Array& expected, double bound) {
  const double difference = largest_difference(found, expected);
  const bool good = difference <= bound;
  std::printf("against the formula: largest difference %.2g, allowed %.2g: %s\n", difference, bound,
              good ? "equal" : "OFF");
  return good ? 0 : 1;
}

}  // namespace iha::examples
