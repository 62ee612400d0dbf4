// How the forward pass cuts its work: by shape, options and memory order alone, so that results are the same
// bits for any number of workers. Not the work itself (forward.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "iha/kernels/cpu/plan.h"

namespace iha::cpu {

// Few queries: a part of the keys of a slice's only tile of queries.
struct Split {
  int64_t batch, slice, stream;
  View keys;
  int64_t state;  // the number of what it leaves
};
struct StateRange {
  int64_t begin, end;
};
// Splits [begin, end) of one task. Several: of the same keys, whose heads lie side by side in memory; they
// take turns, `panels` at a time, so that tokens are read whole.
struct Turns {
  int64_t begin, end, panels;
};

struct Cut {
  explicit Cut(const Plan& plan);

  bool joins_heads;  // a global collapse: a task takes all slices
  int64_t chunk_rows;
  int64_t tile_rows = 0;  // the most that a tile has
  bool unpacked = false;  // keys and values are read where they lie
  // In the order in which they are best run; empty: a chunk takes all keys.
  std::vector<Split> splits;
  std::vector<Turns> turns;  // the tasks

  // What the splits of a tile leave, by keys.
  StateRange states_of(int64_t batch, int64_t slice, int64_t stream) const {
    return ranges_[(batch * most_slices_ + slice) * streams_ + stream];
  }

 private:
  void split_keys(const Plan& plan, int64_t states);
  void take_turns(const Plan& plan, int64_t heads, int64_t panels);

  int64_t most_slices_ = 0, streams_;
  std::vector<StateRange> ranges_;
};

}  // namespace iha::cpu
