#include "iha/nn/mode_gates.h"

#include <torch/types.h>

#include <cmath>
#include <limits>
#include <utility>

#include "iha/patterns/count.h"

namespace iha::nn {
namespace {

constexpr auto kName = "iha::nn::ModeGates: ";

std::vector<int64_t> learned_heads(const std::vector<Pattern>& heads) {
  std::vector<int64_t> learned;
  for (size_t head = 0; head < heads.size(); ++head) {
    if (heads[head].learned()) learned.push_back(static_cast<int64_t>(head));
  }
  return learned;
}

void check_at_least_0(double value, const char* what) {
  TORCH_CHECK_VALUE(value >= 0 && std::isfinite(value), kName, what, " = ", value,
                    ", expected a number of at least 0");
}

// The largest of the first `count`, the first of equals.
int64_t first_largest(const double* values, int64_t count) {
  return std::max_element(values, values + count) - values;
}

}  // namespace

ModeGatesImpl::ModeGatesImpl(std::vector<Pattern> heads, double temperature, double noise)
    : heads(std::move(heads)),
      learned(learned_heads(this->heads)),
      initial_temperature_(temperature),
      noise_(noise) {
  TORCH_CHECK_VALUE(!learned.empty(), kName, "no learned head, expected at least one");
  check_at_least_0(temperature, "temperature");
  check_at_least_0(noise, "noise");
  reset();  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall): as torch's own modules
}

void ModeGatesImpl::reset() {
  const auto count = static_cast<int64_t>(learned.size());
  logits = register_parameter("logits", torch::zeros({count, most_candidates(heads)}));
  temperature_ = register_buffer("temperature", torch::full({}, initial_temperature_, torch::kFloat64));
}

void ModeGatesImpl::reset_parameters() {
  torch::NoGradGuard no_grad;
  logits.zero_();
  set_temperature(initial_temperature_);
}

void ModeGatesImpl::pretty_print(std::ostream& stream) const {
  stream << "iha::nn::ModeGates(heads=" << learned.size() << ", temperature=" << temperature()
         << ", noise=" << noise_ << ")";
}

double ModeGatesImpl::temperature() const {
  return temperature_.item<double>();
}

void ModeGatesImpl::set_temperature(double value) {
  check_at_least_0(value, "temperature");
  torch::NoGradGuard no_grad;
  temperature_.fill_(value);
}

torch::Tensor ModeGatesImpl::softmax(const torch::Tensor& scores) const {
  auto absent = torch::zeros(scores.sizes(), torch::kBool);
  for (size_t l = 0; l < learned.size(); ++l) {
    const auto own = static_cast<int64_t>(heads[learned[l]].candidates.size());
    absent[static_cast<int64_t>(l)].slice(0, own).fill_(true);
  }
  const auto present =
      scores.masked_fill(absent.to(scores.device()), -std::numeric_limits<double>::infinity());
  const double t = temperature();
  if (t > 0) return (present / t).softmax(1);
  const auto host = present.detach().to(torch::kCPU, torch::kFloat64).contiguous();
  auto gates = torch::zeros(scores.sizes(), torch::kFloat64);
  for (int64_t l = 0; l < host.size(0); ++l) {
    gates[l][first_largest(host[l].const_data_ptr<double>(), host.size(1))] = 1;
  }
  return gates.to(scores.options());
}

torch::Tensor ModeGatesImpl::gates() const {
  return softmax(logits.scalar_type() == torch::kFloat64 ? logits : logits.to(torch::kFloat32));
}

torch::Tensor ModeGatesImpl::forward() {
  if (!is_training() || noise_ == 0) return gates();
  const auto scores = logits.scalar_type() == torch::kFloat64 ? logits : logits.to(torch::kFloat32);
  const auto gumbel = -torch::empty_like(scores).exponential_().log();
  return softmax(scores + noise_ * gumbel);
}

torch::Tensor ModeGatesImpl::mode_weights(const torch::Tensor& gates) const {
  const auto rows = torch::tensor(learned, torch::kInt64).to(gates.device());
  return torch::zeros({static_cast<int64_t>(heads.size()), gates.size(1)}, gates.options())
      .index_copy(0, rows, gates);
}

std::vector<Pattern> ModeGatesImpl::chosen(const torch::Tensor& gates) const {
  const auto host = gates.detach().to(torch::kCPU, torch::kFloat64).contiguous();
  std::vector<Pattern> fixed = heads;
  for (size_t l = 0; l < learned.size(); ++l) {
    const auto& candidates = heads[learned[l]].candidates;
    const double* row = host.const_data_ptr<double>() + static_cast<int64_t>(l) * host.size(1);
    fixed[learned[l]] = candidates[first_largest(row, static_cast<int64_t>(candidates.size()))];
  }
  return fixed;
}

torch::Tensor ModeGatesImpl::expected_pairs(int64_t queries, int64_t keys, int64_t query_offset) const {
  auto pairs = torch::zeros(logits.sizes(), torch::kFloat64);
  for (size_t l = 0; l < learned.size(); ++l) {
    const auto& candidates = heads[learned[l]].candidates;
    for (size_t m = 0; m < candidates.size(); ++m) {
      pairs[static_cast<int64_t>(l)][static_cast<int64_t>(m)] =
          static_cast<double>(visible_pairs(candidates[m], queries, keys, query_offset));
    }
  }
  return (gates().to(torch::kFloat64) * pairs.to(logits.device())).sum();
}

std::shared_ptr<ModeGatesImpl> ModeGatesImpl::narrowed(const std::vector<Pattern>& remaining) const {
  auto result = std::make_shared<ModeGatesImpl>(remaining, initial_temperature_, noise_);
  torch::NoGradGuard no_grad;
  for (size_t l = 0; l < learned.size(); ++l) {
    for (size_t to = 0; to < result->learned.size(); ++to) {
      if (result->learned[to] != learned[l]) continue;
      const auto row = logits[static_cast<int64_t>(l)].slice(0, 0, result->logits.size(1));
      result->logits[static_cast<int64_t>(to)].copy_(row);
    }
  }
  result->to(logits.device(), logits.scalar_type());
  result->set_temperature(temperature());
  result->train(is_training());
  return result;
}

}  // namespace iha::nn
