// BitLinear against its formulas in plain double loops, and its baked form against itself.
#include "iha/nn/bit_linear.h"

#include <ATen/Parallel.h>
#include <torch/autograd.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <cmath>
#include <vector>

#include "tests/nn/support.h"

namespace iha::nn {
namespace {

using Matrix = std::vector<std::vector<double>>;  // rows of equal length

Matrix zeros(size_t rows, size_t columns) {
  return Matrix(rows, std::vector<double>(columns));
}

Matrix matrix_of(const torch::Tensor& tensor) {
  const auto flat = tensor.detach().to(torch::kFloat64).contiguous();
  auto result = zeros(flat.size(0), flat.size(1));
  for (int64_t i = 0; i < flat.size(0); ++i) {
    for (int64_t j = 0; j < flat.size(1); ++j) result[i][j] = flat[i][j].item<double>();
  }
  return result;
}

torch::Tensor tensor_of(const Matrix& matrix) {
  auto result = torch::empty({static_cast<int64_t>(matrix.size()), static_cast<int64_t>(matrix[0].size())},
                             torch::kFloat64);
  for (size_t i = 0; i < matrix.size(); ++i) {
    for (size_t j = 0; j < matrix[i].size(); ++j) result[i][j] = matrix[i][j];
  }
  return result;
}

// The twin: out = yq Wq^T and its gradients, straight from the definition in bit_linear.h.
struct Twin {
  Matrix x, w, yq, wq, out, grad_x, grad_w;
  std::vector<double> deviation;  // sqrt(variance + 1e-5) a token
  Matrix y;

  Twin(Matrix x_in, Matrix w_in) : x(std::move(x_in)), w(std::move(w_in)) {
    round_activations();
    round_weights();
    out = zeros(x.size(), w.size());
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t o = 0; o < w.size(); ++o) {
        for (size_t i = 0; i < x[t].size(); ++i) out[t][o] += yq[t][i] * wq[o][i];
      }
    }
  }

  void round_activations() {
    y = x;
    yq = x;
    for (size_t t = 0; t < x.size(); ++t) {
      const double width = static_cast<double>(x[t].size());
      double mean = 0, variance = 0, largest = 0;
      for (const double value : x[t]) mean += value / width;
      for (const double value : x[t]) variance += (value - mean) * (value - mean) / width;
      deviation.push_back(std::sqrt(variance + 1e-5));
      for (size_t i = 0; i < x[t].size(); ++i) {
        y[t][i] = (x[t][i] - mean) / deviation[t];
        largest = std::max(largest, std::abs(y[t][i]));
      }
      const double scale = 127 / std::max(largest, 1e-5);
      for (size_t i = 0; i < x[t].size(); ++i) {
        yq[t][i] = std::min(std::max(std::nearbyint(y[t][i] * scale), -128.0), 127.0) / scale;
      }
    }
  }

  void round_weights() {
    double sum = 0;
    for (const auto& row : w) {
      for (const double value : row) sum += std::abs(value);
    }
    const double scale = std::max(sum / static_cast<double>(w.size() * w[0].size()), 1e-5);
    wq = w;
    for (auto& row : wq) {
      for (double& value : row) value = std::min(std::max(std::nearbyint(value / scale), -1.0), 1.0) * scale;
    }
  }

  // With dy = grad_out Wq passed straight through, dx is the gradient of the normalisation:
  // (dy - mean(dy) - y mean(dy y)) / deviation.
  void backward(const Matrix& grad_out) {
    grad_x = zeros(x.size(), x[0].size());
    grad_w = zeros(w.size(), w[0].size());
    for (size_t t = 0; t < x.size(); ++t) {
      const double width = static_cast<double>(x[t].size());
      std::vector<double> dy(x[t].size());
      double mean = 0, along = 0;
      for (size_t i = 0; i < x[t].size(); ++i) {
        for (size_t o = 0; o < w.size(); ++o) {
          dy[i] += grad_out[t][o] * wq[o][i];
          grad_w[o][i] += grad_out[t][o] * yq[t][i];
        }
        mean += dy[i] / width;
        along += dy[i] * y[t][i] / width;
      }
      for (size_t i = 0; i < x[t].size(); ++i) grad_x[t][i] = (dy[i] - mean - y[t][i] * along) / deviation[t];
    }
  }
};

TEST(BitLinear, EqualsItsTwinForwardAndBackward) {
  torch::manual_seed(1);
  for (const int64_t in : {1, 2, 7, 64}) {
    SCOPED_TRACE(in);
    BitLinear layer(in, 5);
    layer->to(torch::kFloat64);
    auto x = (random_input({3, in}) * 2 + 1).requires_grad_();
    const auto grad_out = random_input({3, 5});
    Twin twin(matrix_of(x), matrix_of(layer->weight));
    twin.backward(matrix_of(grad_out));
    const auto out = layer(x);
    out.backward(grad_out);
    EXPECT_LT(max_difference(out, tensor_of(twin.out)), 1e-12);
    // A token of one feature normalises to exactly 0, so only rounding noise times 1/sqrt(1e-5) may be left.
    EXPECT_LT(max_difference(x.grad(), tensor_of(twin.grad_x)), 1e-11);
    EXPECT_LT(max_difference(layer->weight.grad(), tensor_of(twin.grad_w)), 1e-12);
  }
}

TEST(BitLinear, RoundsHalvesToEven) {
  // mean |W| = 1, so that W / g is W itself.
  const auto weight = torch::tensor({{0.5, 1.5}, {-0.5, -1.5}}, torch::kFloat64);
  const auto [values, scale] = ternary(weight);
  EXPECT_EQ(scale.item<double>(), 1.0);
  expect_same_bits(values, torch::tensor({{0, 1}, {0, -1}}, torch::kInt8));
}

TEST(BitLinear, ActivationsAreAGridOf8BitsATokenWide) {
  torch::manual_seed(2);
  const auto y = quantize_activations(random_input({4, 9, 33}));
  const auto steps = y * (127.0 / y.abs().amax(-1, true));
  EXPECT_LT(max_difference(steps, steps.round()), 1e-10);
  EXPECT_NEAR(steps.abs().max().item<double>(), 127, 1e-10);
}

TEST(BitLinear, GradientsPassThroughClampedWeightsToo) {
  torch::manual_seed(3);
  BitLinear layer(4, 2);
  {
    torch::NoGradGuard no_grad;
    layer->weight.mul_(0.01);
    layer->weight[0][0] = 100;  // far beyond the clamp, and all others round to 0
  }
  const auto x = random_input({3, 4}, torch::kFloat32);
  layer(x).sum().backward();
  EXPECT_LT(max_difference(layer->weight.grad()[0], quantize_activations(x).sum(0)), 1e-5);
  expect_same_bits(layer->weight.grad()[0], layer->weight.grad()[1]);
}

TEST(BitLinear, ConstantTokensAndZeroWeightsGiveZeroAndFiniteGradients) {
  BitLinear layer(BitLinearOptions(6, 3).bias(true));
  auto x = torch::full({2, 6}, 3.0).requires_grad_();
  const auto out = layer(x);
  expect_same_bits(out, layer->bias.expand_as(out));
  {
    torch::NoGradGuard no_grad;
    layer->weight.zero_();
  }
  const auto flat = layer(x);
  expect_same_bits(flat, layer->bias.expand_as(flat));
  flat.sum().backward();
  EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
  EXPECT_TRUE(layer->weight.grad().isfinite().all().item<bool>());
  EXPECT_EQ(layer(torch::empty({0, 6})).sizes(), at::IntArrayRef({0, 3}));
}

TEST(BitLinear, BakedEqualsUnbakedBitForBit) {
  torch::manual_seed(4);
  for (const auto dtype : {torch::kFloat64, torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
    for (const bool bias : {false, true}) {
      SCOPED_TRACE(c10::str(dtype, " bias ", bias));
      BitLinear layer(BitLinearOptions(48, 17).bias(bias));
      layer->to(dtype);
      auto baked = layer->bake();
      EXPECT_TRUE(baked->parameters().empty());
      EXPECT_EQ(baked->ternary.scalar_type(), torch::kInt8);
      EXPECT_LE(baked->ternary.abs().max().item<int>(), 1);
      auto x = random_input({2, 5, 48}, dtype).requires_grad_();
      const auto grad_out = random_input({2, 5, 17}, dtype);
      const auto out = layer(x);
      const auto baked_out = baked(x);
      expect_same_bits(out, baked_out);
      expect_same_bits(torch::autograd::grad({out}, {x}, {grad_out})[0],
                       torch::autograd::grad({baked_out}, {x}, {grad_out})[0]);
    }
  }
}

TEST(BitLinear, BakedFormStaysInt8AndSavesLoadsAndClones) {
  torch::manual_seed(5);
  BitLinear layer(BitLinearOptions(16, 8).bias(true));
  auto baked = layer->bake();
  baked->to(torch::kFloat64);
  EXPECT_EQ(baked->ternary.scalar_type(), torch::kInt8);
  EXPECT_EQ(baked->scale.scalar_type(), torch::kFloat64);
  baked->to(torch::kFloat32);
  const auto x = random_input({4, 16}, torch::kFloat32);
  std::stringstream file;
  torch::save(baked, file);
  TernaryLinear loaded(BitLinearOptions(16, 8).bias(true));
  torch::load(loaded, file);
  expect_same_bits(loaded(x), layer(x));
  auto copy = TernaryLinear(std::dynamic_pointer_cast<TernaryLinearImpl>(baked->clone()));
  baked->ternary.zero_();
  expect_same_bits(copy(x), layer(x));
}

TEST(BitLinear, ScaleHasTheSameBitsForAnyNumberOfThreads) {
  torch::manual_seed(6);
  const auto weight = random_input({300, 513}, torch::kFloat32);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto expected = ternary(weight).scale;
  for (const int count : {2, 3, 7}) {
    at::set_num_threads(count);
    expect_same_bits(ternary(weight).scale, expected);
  }
  at::set_num_threads(threads);
}

TEST(BitLinear, BeginsAsLinearDoes) {
  torch::manual_seed(7);
  BitLinear layer(BitLinearOptions(100, 200).bias(true));
  torch::manual_seed(7);
  torch::nn::Linear linear(100, 200);
  expect_same_bits(layer->weight, linear->weight);
  expect_same_bits(layer->bias, linear->bias);
}

TEST(BitLinear, RefusesWhatDoesNotFit) {
  EXPECT_THROW(BitLinear(0, 3), c10::ValueError);
  EXPECT_THROW(BitLinear(3, 0), c10::ValueError);
  EXPECT_THROW(TernaryLinear(BitLinearOptions(-1, 3)), c10::ValueError);
  EXPECT_THROW(quantize_activations(torch::ones({2, 0})), c10::ValueError);
  EXPECT_THROW(ternary(torch::ones({2})), c10::ValueError);
}

}  // namespace
}  // namespace iha::nn
