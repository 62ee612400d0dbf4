// A small model with every kind of parameter, data for it by batch number, and comparison bit for bit.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <functional>
#include <vector>

#include "iha/core/philox.h"
#include "iha/train/trainer.h"

namespace iha::train {

// logits = x weight^T with a weight that somebody else owns too.
struct TiedReadoutImpl : torch::nn::Module {
  explicit TiedReadoutImpl(const torch::Tensor& shared) { weight = register_parameter("weight", shared); }
  torch::Tensor forward(const torch::Tensor& x) { return x.matmul(weight.t()); }
  torch::Tensor weight;
};
TORCH_MODULE(TiedReadout);

// Embedding (tied to the read-out), a linear map with bias, a norm, mixing weights of three axes and of two,
// dropout.
struct SmallNetImpl : torch::nn::Cloneable<SmallNetImpl> {
  SmallNetImpl() { reset(); }
  void reset() override {
    embedding = register_module("embedding", torch::nn::Embedding(7, 6));
    linear = register_module("linear", torch::nn::Linear(6, 6));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
    dropout = register_module("dropout", torch::nn::Dropout(0.3));
    readout = register_module("readout", TiedReadout(embedding->weight));
    alpha = register_parameter("alpha_q", torch::randn({2, 3, 1}));
    mix = register_parameter("q_mix", torch::randn({6, 6}));
    unused = register_parameter("unused", torch::randn({3}));
    count = register_buffer("count", torch::zeros({2}, at::kLong));
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    auto x = embedding->forward(tokens) * alpha.flatten();
    x = norm->forward(dropout->forward(torch::tanh(linear->forward(x).matmul(mix))));
    return readout->forward(x);
  }

  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear linear{nullptr};
  TiedReadout readout{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::Tensor alpha, mix, unused, count;
};
TORCH_MODULE(SmallNet);

// Next-number prediction on numbers that the batch's number alone decides.
class SmallObjective : public Objective {
 public:
  explicit SmallObjective(SmallNet net) : net_(std::move(net)) {}

  Loss loss(int64_t batch) override {
    batches.push_back(batch);
    PhiloxStream stream(11, static_cast<uint32_t>(batch));
    std::vector<int64_t> numbers(12);
    for (int64_t& number : numbers) number = stream.next_below(7);
    const auto tokens = torch::tensor(numbers, at::kLong);
    const auto logits = net_->forward(tokens.slice(0, 0, 11));
    return {torch::nll_loss(torch::log_softmax(logits, -1), tokens.slice(0, 1)), 11};
  }

  std::vector<Metric> evaluate() override {
    if (on_evaluate) return on_evaluate();
    return {{"sum", net_->linear->weight.sum().item<double>(), false}};
  }

  std::vector<int64_t> batches;
  std::function<std::vector<Metric>()> on_evaluate;

 private:
  SmallNet net_;
};

inline bool same_bits(const torch::Tensor& left, const torch::Tensor& right) {
  return left.sizes() == right.sizes() && left.scalar_type() == right.scalar_type() &&
         torch::equal(left, right);
}

}  // namespace iha::train
