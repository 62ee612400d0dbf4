// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11) and the dropout mask
// made of it. Counter based: every path draws the same mask, in any order, on any number of threads.
#pragma once

#include <array>
#include <cstdint>

namespace iha {

using PhiloxCounter = std::array<uint32_t, 4>;

// The four words of block `counter` under the 64-bit key `seed` (low word first).
PhiloxCounter philox4x32_10(PhiloxCounter counter, uint64_t seed);

// round(p * 2^32): a weight is kept when its word is >= the threshold. p = 1 gives 2^32, above every word.
uint64_t dropout_threshold(double p);

// True where the attention weight between pseudo-query row I and pseudo-key column J of (batch, head) pair
// `batch_head` = b * query_heads + h is kept: word J mod 4 of counter (J / 4, I, batch_head, 0).
bool dropout_keeps(uint64_t threshold, uint64_t seed, int64_t batch_head, int64_t row, int64_t column);

// Uniform numbers for data and initialisation: a stream of its own for each (seed, stream) pair.
class PhiloxStream {
 public:
  explicit PhiloxStream(uint64_t seed, uint32_t stream = 0);
  uint32_t next_word();
  double next_double();               // [0, 1), 53 bits: two words
  int64_t next_below(int64_t bound);  // [0, bound), unbiased; bound >= 1, else throws std::invalid_argument
  double next_normal();               // standard normal (Box-Muller, both halves used)

 private:
  uint64_t seed_;
  uint32_t stream_;
  uint64_t block_ = 0;
  int used_ = 4;
  PhiloxCounter words_{};
  bool has_spare_ = false;
  double spare_ = 0;
};

}  // namespace iha
