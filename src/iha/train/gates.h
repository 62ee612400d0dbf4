// Training models with learned heads: an objective that sets the gates' temperature from step to step and
// adds their cost to the loss, and the gates as numbers for logs. Not here: the gates themselves
// (nn/mode_gates.h).
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "iha/train/objective.h"

namespace iha::train {

struct GateSettings {
  double temperature = 1.0;        // at the first batch
  double final_temperature = 0.1;  // at the last one; both above 0
  double cost = 0.0;               // weight of the expected share of visible pairs
  int64_t tokens = 1;              // of the sequences that the cost counts pairs of
};

// With T the temperature at batch n of N: T = first (last / first)^(n / (N - 1)), a function of the batch's
// number alone, and
//   loss = inner loss + cost * models::expected_pair_share(model, tokens)
// Where no head is learned it is the inner objective.
class GatedObjective : public Objective {
 public:
  // `model` and `inner` outlive it. Throws std::invalid_argument for temperatures not above 0, a negative
  // cost, tokens below 1.
  GatedObjective(torch::nn::Module& model, Objective& inner, const GateSettings& settings, int64_t batches);

  Loss loss(int64_t batch) override;
  std::vector<Metric> evaluate() override { return inner_.evaluate(); }

 private:
  torch::nn::Module& model_;
  Objective& inner_;
  GateSettings settings_;
  int64_t batches_;
};

// Sets the temperature of every learned head of the module; 0 hardens them as long as it lasts.
void set_gate_temperature(torch::nn::Module& module, double temperature);

struct HeadGates {
  std::string name;                // "blocks.0.attention, head 2"
  std::vector<std::string> modes;  // its candidates, as text
  std::vector<double> gates;       // without noise
};
// Every learned head of the module, in order.
std::vector<HeadGates> gates_of(const torch::nn::Module& module);

}  // namespace iha::train
