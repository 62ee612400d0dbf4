// What the tests of the layers share: tensors by name, comparisons, and attention from plain torch operations
// with an explicit N x N mask, the second opinion on the layers.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "iha/nn/interleaved_head_attention.h"
#include "iha/patterns/pattern.h"

namespace iha::nn {

inline double max_difference(const torch::Tensor& a, const torch::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  if (a.sizes() != b.sizes() || a.numel() == 0) return 0;
  return (a.detach().to(torch::kFloat64) - b.detach().to(torch::kFloat64)).abs().max().item<double>();
}

inline void expect_same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  EXPECT_TRUE(torch::equal(a, b));
}

inline InterleavedHeadAttention double_layer(const InterleavedHeadAttentionOptions& options) {
  InterleavedHeadAttention layer(options);
  layer->to(torch::kFloat64);
  return layer;
}

inline torch::Tensor random_input(at::IntArrayRef sizes, torch::Dtype dtype = torch::kFloat64) {
  return torch::randn(sizes, torch::TensorOptions().dtype(dtype));
}

inline std::string printed(const torch::nn::Module& module) {
  std::ostringstream stream;
  stream << module;
  return stream.str();
}

// bool [N, M]: query i sees key j.
inline torch::Tensor visibility(const Pattern& pattern, int64_t queries, int64_t keys, int64_t offset = 0) {
  auto mask = torch::zeros({queries, keys}, torch::kBool);
  auto cells = mask.accessor<bool, 2>();
  for (int64_t i = 0; i < queries; ++i) {
    for (int64_t j = 0; j < keys; ++j) cells[i][j] = visible(pattern, i + offset, j);
  }
  return mask;
}

// softmax(q k^T / sqrt(d)) v of one head [B, N, d], hidden keys at -inf.
inline torch::Tensor plain_head(const torch::Tensor& query, const torch::Tensor& key,
                                const torch::Tensor& value, const torch::Tensor& mask) {
  const auto scores = query.matmul(key.transpose(-2, -1)) / std::sqrt(static_cast<double>(query.size(-1)));
  return scores.masked_fill(~mask, -std::numeric_limits<double>::infinity()).softmax(-1).matmul(value);
}

}  // namespace iha::nn
