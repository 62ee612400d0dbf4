// See gates.h.
#include "iha/train/gates.h"

#include <algorithm>
#include <cmath>

#include "iha/core/error.h"
#include "iha/models/cost.h"
#include "iha/nn/mode_gates.h"
#include "iha/patterns/parse.h"

namespace iha::train {

GatedObjective::GatedObjective(torch::nn::Module& model, Objective& inner, const GateSettings& settings,
                               int64_t batches)
    : model_(model), inner_(inner), settings_(settings), batches_(batches) {
  iha::check(settings.temperature > 0 && settings.final_temperature > 0 && settings.cost >= 0 &&
                 settings.tokens >= 1,
             "iha train: gates of temperature ", settings.temperature, " to ", settings.final_temperature,
             " and cost ", settings.cost, " over ", settings.tokens,
             " tokens, expected temperatures above 0, a cost of at least 0 and a token");
}

Loss GatedObjective::loss(int64_t batch) {
  const double part =
      batches_ > 1 ? std::min(1.0, static_cast<double>(batch) / static_cast<double>(batches_ - 1)) : 0.0;
  set_gate_temperature(
      model_, settings_.temperature * std::pow(settings_.final_temperature / settings_.temperature, part));
  Loss loss = inner_.loss(batch);
  if (settings_.cost == 0 || loss.tokens == 0) return loss;
  const torch::Tensor share = models::expected_pair_share(model_, settings_.tokens);
  if (share.defined()) loss.mean = loss.mean + settings_.cost * share.to(loss.mean.scalar_type());
  return loss;
}

void set_gate_temperature(torch::nn::Module& module, double temperature) {
  for (const auto& each : module.modules()) {
    if (auto* gates = each->as<nn::ModeGatesImpl>()) gates->set_temperature(temperature);
  }
}

std::vector<HeadGates> gates_of(const torch::nn::Module& module) {
  std::vector<HeadGates> heads;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    const auto* gates = item.value()->as<nn::ModeGatesImpl>();
    if (gates == nullptr) continue;
    const std::string layer = item.key().substr(0, item.key().rfind('.'));
    const torch::Tensor values = gates->gates().detach().to(torch::kCPU, torch::kFloat64).contiguous();
    for (size_t l = 0; l < gates->learned.size(); ++l) {
      HeadGates& head = heads.emplace_back();
      head.name = layer + ", head " + std::to_string(gates->learned[l]);
      const double* row = values.const_data_ptr<double>() + static_cast<int64_t>(l) * values.size(1);
      for (const Pattern& mode : gates->heads[gates->learned[l]].candidates) {
        head.modes.push_back(to_text(mode));
        head.gates.push_back(row[head.gates.size()]);
      }
    }
  }
  return heads;
}

}  // namespace iha::train
