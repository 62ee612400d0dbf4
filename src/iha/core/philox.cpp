#include "iha/core/philox.h"

#include <cmath>
#include <numbers>

#include "iha/core/error.h"

namespace iha {

PhiloxCounter philox4x32_10(PhiloxCounter counter, uint64_t seed) {
  // Multipliers and the Weyl increments of the key, from the paper.
  constexpr uint64_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

uint64_t dropout_threshold(double p) {
  return static_cast<uint64_t>(std::llround(std::ldexp(p, 32)));
}

bool dropout_keeps(uint64_t threshold, uint64_t seed, int64_t batch_head, int64_t row, int64_t column) {
  const PhiloxCounter words = philox4x32_10(
      {static_cast<uint32_t>(column / 4), static_cast<uint32_t>(row), static_cast<uint32_t>(batch_head), 0},
      seed);
  return words[column % 4] >= threshold;
}

PhiloxStream::PhiloxStream(uint64_t seed, uint32_t stream) : seed_(seed), stream_(stream) {}

uint32_t PhiloxStream::next_word() {
  if (used_ == 4) {
    // The last word sets streams of numbers apart from dropout masks, whose counter ends in 0.
    words_ = philox4x32_10({static_cast<uint32_t>(block_), static_cast<uint32_t>(block_ >> 32), stream_, 1},
                           seed_);
    ++block_;
    used_ = 0;
  }
  return words_[used_++];
}

double PhiloxStream::next_double() {
  const uint64_t high = next_word() >> 5, low = next_word() >> 6;
  return std::ldexp(static_cast<double>((high << 26) | low), -53);
}

int64_t PhiloxStream::next_below(int64_t bound) {
  check(bound >= 1, "iha::PhiloxStream: bound is ", bound, ", expected at least 1");
  const auto range = static_cast<uint64_t>(bound);
  const uint64_t reject_below =
      (0 - range) % range;  // 2^64 mod range: the surplus that would bias the result
  while (true) {
    const uint64_t high = next_word(), low = next_word();
    const uint64_t number = (high << 32) | low;
    if (number >= reject_below) return static_cast<int64_t>(number % range);
  }
}

double PhiloxStream::next_normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const double radius = std::sqrt(-2.0 * std::log(1.0 - next_double()));  // 1 - u is never 0
  const double angle = 2.0 * std::numbers::pi * next_double();
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

}  // namespace iha
