// Which examples a training step sees, as pure functions of a seed and a position: the whole state of a data
// stream is one integer, so a resumed run continues where it stopped.
#pragma once

#include <cstdint>
#include <vector>

#include "iha/core/philox.h"

namespace iha::tasks {

// The parts of data that is drawn sequence by sequence.
enum class Split : uint32_t { kTrain, kValidation, kTest };
// Batch `number` of a split has a stream of its own; so no batch is in two splits, but for chance.
inline PhiloxStream stream_of(uint64_t seed, Split split, int64_t number) {
  return PhiloxStream(seed, static_cast<uint32_t>(3 * number) + static_cast<uint32_t>(split));
}

// `count` different numbers of [0, bound), in random order; count at most bound.
std::vector<int64_t> different_numbers(PhiloxStream& stream, int64_t count, int64_t bound);

// Indices 0..count-1 in a new random order every epoch.
class ShuffledIndices {
 public:
  // Throws std::invalid_argument where count < 1.
  ShuffledIndices(int64_t count, uint64_t seed);
  std::vector<int64_t> next(int64_t n);  // the next n indices; an epoch's end may lie among them
  int64_t position() const { return position_; }
  void seek(int64_t position);  // continue as if `position` indices had been drawn

 private:
  int64_t next_one();
  int64_t count_;
  uint64_t seed_;
  int64_t position_ = 0;
  int64_t epoch_ = -1;  // of which order_ is the order
  std::vector<int64_t> order_;
};

// Numbers of [0, bound) drawn independently (starts of text windows).
class RandomStarts {
 public:
  // Throws std::invalid_argument where bound < 1.
  RandomStarts(int64_t bound, uint64_t seed);
  std::vector<int64_t> next(int64_t n);
  int64_t position() const { return position_; }
  void seek(int64_t position);

 private:
  int64_t bound_;
  uint64_t seed_;
  int64_t position_ = 0;
};

}  // namespace iha::tasks
