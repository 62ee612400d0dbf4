#include "iha/tasks/sampling.h"

#include <numeric>
#include <utility>

#include "iha/core/error.h"
#include "iha/core/philox.h"

namespace iha::tasks {
namespace {

// Epoch e is shuffled by stream kFirstEpoch + e: relations drawn under the same seed use the streams below.
constexpr uint32_t kFirstEpoch = 1u << 16;

// Window starts use the fourth counter word 2, where PhiloxStream has 1 and dropout 0.
constexpr uint32_t kStartsTag = 2;

}  // namespace

std::vector<int64_t> different_numbers(PhiloxStream& stream, int64_t count, int64_t bound) {
  check(count >= 0 && count <= bound, "iha::tasks::different_numbers: ", count, " of ", bound,
        ", expected at most as many");
  std::vector<int64_t> all(bound);
  std::iota(all.begin(), all.end(), 0);
  for (int64_t n = 0; n < count; ++n) std::swap(all[n], all[n + stream.next_below(bound - n)]);
  all.resize(count);
  return all;
}

ShuffledIndices::ShuffledIndices(int64_t count, uint64_t seed) : count_(count), seed_(seed), order_() {
  check(count >= 1, "iha::tasks::ShuffledIndices: ", count, " examples, expected at least 1");
}

std::vector<int64_t> ShuffledIndices::next(int64_t n) {
  std::vector<int64_t> indices(n);
  for (int64_t& index : indices) index = next_one();
  return indices;
}

void ShuffledIndices::seek(int64_t position) {
  check(position >= 0, "iha::tasks::ShuffledIndices: position ", position, ", expected at least 0");
  position_ = position;
}

int64_t ShuffledIndices::next_one() {
  const int64_t epoch = position_ / count_;
  if (epoch != epoch_) {
    order_.resize(count_);
    std::iota(order_.begin(), order_.end(), int64_t{0});
    PhiloxStream stream(seed_, kFirstEpoch + static_cast<uint32_t>(epoch));
    for (int64_t left = count_; left > 1; --left)
      std::swap(order_[left - 1], order_[stream.next_below(left)]);
    epoch_ = epoch;
  }
  return order_[position_++ % count_];
}

RandomStarts::RandomStarts(int64_t bound, uint64_t seed) : bound_(bound), seed_(seed) {
  check(bound >= 1, "iha::tasks::RandomStarts: ", bound, " places to start, expected at least 1");
}

std::vector<int64_t> RandomStarts::next(int64_t n) {
  std::vector<int64_t> starts(n);
  for (int64_t& start : starts) {
    const auto position = static_cast<uint64_t>(position_++);
    const PhiloxCounter words = philox4x32_10(
        {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, kStartsTag}, seed_);
    const uint64_t number = (uint64_t{words[0]} << 32) | words[1];
    // floor(number * bound / 2^64): some starts are more likely than others by at most bound / 2^64.
    start =
        static_cast<int64_t>((static_cast<unsigned __int128>(number) * static_cast<uint64_t>(bound_)) >> 64);
  }
  return starts;
}

void RandomStarts::seek(int64_t position) {
  check(position >= 0, "iha::tasks::RandomStarts: position ", position, ", expected at least 0");
  position_ = position;
}

}  // namespace iha::tasks
