// What a layer's learned heads own: a logit a candidate pattern, and a temperature. With t the temperature
// and z the noise,
//   gates[l, m] = softmax over m of (logits[l, m] + z) / t,     at t = 0 one for the largest, the first of
//   equals
// z is 0, or `noise` times draws of the Gumbel distribution (from torch's generator) at every call in
// training: at noise 1 and t = 0 a gate is a draw from softmax(logits). Gates are the operator's mode
// weights. Not here: the attention (interleaved_head_attention.h), annealing over a run (train/gates.h).
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "iha/patterns/pattern.h"

namespace iha::nn {

class ModeGatesImpl : public torch::nn::Cloneable<ModeGatesImpl> {
 public:
  // One pattern a head of the layer; L of them, at least one, are learned. Throws c10::ValueError for a
  // temperature or noise that is negative or not finite.
  ModeGatesImpl(std::vector<Pattern> heads, double temperature, double noise);
  void reset() override;
  void reset_parameters();  // equal gates
  void pretty_print(std::ostream& stream) const override;

  torch::Tensor forward();      // the gates of one call, [L, M]: with noise in training; float32 or float64
  torch::Tensor gates() const;  // without noise
  double temperature() const;
  void set_temperature(double value);  // at least 0, else throws c10::ValueError

  // Of gates [L, M]: the operator's mode_weights [H, M], rows of other heads 0; and the heads with every
  // learned one replaced by its candidate of the largest gate.
  torch::Tensor mode_weights(const torch::Tensor& gates) const;
  std::vector<Pattern> chosen(const torch::Tensor& gates) const;
  // Scalar, float64, differentiable: the pairs of query and key token that the learned heads are expected to
  // see together, each drawing its candidate by its gates: sum over l, m of gates[l, m] pairs[l, m], in
  // closed form (patterns/count.h).
  torch::Tensor expected_pairs(int64_t queries, int64_t keys, int64_t query_offset) const;

  // What remains once the learned heads of `heads` are those that are still learned there: their logits, the
  // temperature and the noise.
  std::shared_ptr<ModeGatesImpl> narrowed(const std::vector<Pattern>& heads) const;

  std::vector<Pattern> heads;    // [H]
  std::vector<int64_t> learned;  // [L]: which of them are learned
  torch::Tensor logits;          // [L, M]; entries past a head's candidates are not read

 private:
  torch::Tensor softmax(const torch::Tensor& scores) const;

  double initial_temperature_, noise_;
  torch::Tensor temperature_;  // a buffer, so that a saved layer opens as it was
};
TORCH_MODULE(ModeGates);

}  // namespace iha::nn
