// What `iha bench` measures: named pieces of work and the ways to compute each. Not here: timing (bench.cpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace iha::app {

// One call of attention: sizes, patterns, pseudo-heads (with mixing and a global collapse where P > 1).
struct Work {
  std::string name;
  int64_t batch = 1;
  int64_t heads = 12;
  int64_t key_heads = 12;
  int64_t queries = 4096;
  int64_t keys = 4096;
  int64_t head_dim = 64;
  int64_t pseudo_heads = 1;
  std::string patterns = "global";
  bool backward = false;
  // Learned heads: the candidate that has all the weight; -1: all have some. Dynamic heads choose by random
  // tokens, and the choice counts.
  int64_t only_candidate = -1;
  int64_t index_tile = 1;  // so many queries choose together
};

// The list of the command's --help, in order.
const std::vector<Work>& standard_work();

// Needed FLOPs: 4 * visible pairs * d forward, 3.5 times as many with the backward pass (seven products
// instead of two).
double flops_of(const Work& work);
// Bytes of the keys and values, read once: the limit of work with few queries.
double key_value_bytes(const Work& work, at::ScalarType dtype);

// One way to compute it. `run` computes everything once and returns the output.
struct Contender {
  std::string name;
  std::function<at::Tensor()> run;
  int64_t held_bytes = 0;  // what it keeps beside the inputs: a mask
  bool same = true;        // false: another function, to measure time by
};

// iha (the engine), composed, and torch: scaled_dot_product_attention, with is_causal or no mask where that
// says it, with a boolean mask where heads differ or see windows, after einsum and interleaving where P > 1.
// Heads that choose meet this engine's dense heads instead of torch, learned ones also themselves hardened (a
// share of the heads each candidate), dynamic ones also themselves with blocks chosen beforehand: "iha"
// chooses. All on the same inputs, drawn from torch's generator; the last one is what results are compared
// with.
std::vector<Contender> contenders_for(const Work& work, at::ScalarType dtype);

}  // namespace iha::app
