// AdamW over the parameters of a module in two groups, with and without weight decay, and clipping by the
// global norm.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/adamw.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace iha::train {

struct AdamWSettings {
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
};

// [name, parameter] of every parameter that takes a gradient, a tied one once, under its first name.
std::vector<std::pair<std::string, torch::Tensor>> trainable_parameters(const torch::nn::Module& module);

// Weight decay pulls towards 0, which is a sensible prior for the matrix of a linear map only. So the
// parameters that decay are matrices named `weight` that no embedding owns (an output layer tied to one
// included); mixing, collapse, norms, biases, gates and sinks keep their scale.
std::vector<std::string> decaying_parameters(const torch::nn::Module& module);

// The two groups of `trainable_parameters`: first those that decay, then the others.
std::unique_ptr<torch::optim::AdamW> make_adamw(const torch::nn::Module& module,
                                                const AdamWSettings& settings);

void set_rate(torch::optim::AdamW& optimizer, double rate);

// Multiplies all gradients by `factor` and then, where their global norm is above `most` (0: no limit), by
// most / norm. Returns the norm before the limit. Gradients stay as they are where the norm is not finite.
double scale_and_clip(torch::optim::AdamW& optimizer, double factor, double most);

}  // namespace iha::train
