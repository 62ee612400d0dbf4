// Parameter groups and clipping: see optimizer.h.
#include "iha/train/optimizer.h"

#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace iha::train {

namespace {

std::set<const void*> embedding_weights(const torch::nn::Module& module) {
  std::set<const void*> owned;
  for (const auto& each : module.modules()) {
    if (const auto* embedding = each->as<torch::nn::Embedding>()) {
      owned.insert(embedding->weight.unsafeGetTensorImpl());
    }
  }
  return owned;
}

std::string leaf(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

}  // namespace

std::vector<std::pair<std::string, torch::Tensor>> trainable_parameters(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  std::set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    const bool first = seen.insert(item.value().unsafeGetTensorImpl()).second;
    if (first && item.value().requires_grad()) parameters.emplace_back(item.key(), item.value());
  }
  return parameters;
}

std::vector<std::string> decaying_parameters(const torch::nn::Module& module) {
  const auto embeddings = embedding_weights(module);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : trainable_parameters(module)) {
    const bool matrix = parameter.dim() == 2 && leaf(name) == "weight";
    if (matrix && embeddings.count(parameter.unsafeGetTensorImpl()) == 0) names.push_back(name);
  }
  return names;
}

std::unique_ptr<torch::optim::AdamW> make_adamw(const torch::nn::Module& module,
                                                const AdamWSettings& settings) {
  const auto decaying = decaying_parameters(module);
  std::vector<torch::Tensor> with_decay, without_decay;
  for (const auto& [name, parameter] : trainable_parameters(module)) {
    const bool decays = std::find(decaying.begin(), decaying.end(), name) != decaying.end();
    (decays ? with_decay : without_decay).push_back(parameter);
  }
  const auto group = [&](std::vector<torch::Tensor> parameters, double decay) {
    auto options = std::make_unique<torch::optim::AdamWOptions>();
    options->betas({settings.beta1, settings.beta2}).eps(settings.epsilon).weight_decay(decay);
    return torch::optim::OptimizerParamGroup(std::move(parameters), std::move(options));
  };
  std::vector<torch::optim::OptimizerParamGroup> groups{group(std::move(with_decay), settings.weight_decay),
                                                        group(std::move(without_decay), 0.0)};
  return std::make_unique<torch::optim::AdamW>(std::move(groups));
}

void set_rate(torch::optim::AdamW& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

double scale_and_clip(torch::optim::AdamW& optimizer, double factor, double most) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients;
  for (auto& group : optimizer.param_groups()) {
    for (auto& parameter : group.params()) {
      if (parameter.grad().defined()) gradients.push_back(parameter.mutable_grad());
    }
  }
  double squares = 0;
  for (const auto& gradient : gradients) {
    const double norm = gradient.norm().item<double>();
    squares += norm * norm;
  }
  const double norm = std::sqrt(squares) * factor;
  if (!std::isfinite(norm)) return norm;
  const double limit = most > 0 && norm > most ? most / norm : 1.0;
  if (const double scale = factor * limit; scale != 1.0) {
    for (auto& gradient : gradients) gradient.mul_(scale);
  }
  return norm;
}

}  // namespace iha::train
