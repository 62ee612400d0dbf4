#include "iha/tasks/needle.h"

#include <numeric>
#include <utility>
#include <vector>

#include "iha/core/error.h"
#include "iha/models/loss.h"

namespace iha::tasks {
namespace {

void check_options(const NeedleOptions& options, int64_t batch) {
  constexpr auto kName = "iha::tasks::needle_batch: ";
  check(options.keys >= 1 && options.values >= 1 && options.filler >= 1 && batch >= 1, kName, options.keys,
        " keys, ", options.values, " values, ", options.filler, " fillers and ", batch,
        " sequences, expected at least 1 of each");
  check(options.distance >= 1 && options.tokens - options.distance - options.keys + 1 >= options.keys, kName,
        options.tokens, " tokens for ", options.keys, " needles at least ", options.distance,
        " tokens before as many questions, expected more");
}

// `count` different numbers below `bound`, in random order.
std::vector<int64_t> places(PhiloxStream& stream, int64_t count, int64_t bound) {
  std::vector<int64_t> all(bound);
  std::iota(all.begin(), all.end(), 0);
  for (int64_t n = 0; n < count; ++n) std::swap(all[n], all[n + stream.next_below(bound - n)]);
  all.resize(count);
  return all;
}

}  // namespace

NeedleBatch needle_batch(const NeedleOptions& options, Split split, int64_t number, int64_t batch) {
  check_options(options, batch);
  const int64_t tokens = options.tokens, keys = options.keys, values = options.values;
  const int64_t questions = tokens - keys;  // where they begin
  PhiloxStream stream = stream_of(options.seed, split, number);
  NeedleBatch result{torch::empty({batch, tokens}, torch::kInt64),
                     torch::full({batch, tokens}, models::kIgnore, torch::kInt64)};
  auto symbols = result.symbols.accessor<int64_t, 2>(), answers = result.values.accessor<int64_t, 2>();
  for (int64_t s = 0; s < batch; ++s) {
    for (int64_t n = 0; n < questions; ++n) symbols[s][n] = stream.next_below(options.filler);
    const std::vector<int64_t> needles = places(stream, keys, questions - options.distance + 1);
    const std::vector<int64_t> order = places(stream, keys, keys);
    for (int64_t k = 0; k < keys; ++k) {
      const int64_t value = stream.next_below(values);
      symbols[s][needles[k]] = options.filler + k * values + value;
      symbols[s][questions + order[k]] = options.filler + keys * values + k;
      answers[s][questions + order[k]] = value;
    }
  }
  return result;
}

}  // namespace iha::tasks
