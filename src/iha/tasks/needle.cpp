#include "iha/tasks/needle.h"

#include <vector>

#include "iha/core/error.h"
#include "iha/models/loss.h"

namespace iha::tasks {
namespace {

// Where needles may begin, counted in needles: the last token of needle n is (n + 1) length - 1, and from
// there to the first question, tokens - questions, it is at least `distance`.
int64_t places(const NeedleOptions& options) {
  return (options.tokens - options.questions - options.distance + 1) / options.length;
}

void check_options(const NeedleOptions& options, int64_t batch) {
  constexpr auto kName = "iha::tasks::needle_batch: ";
  check(options.keys >= 1 && options.values >= 1 && options.filler >= 1 && options.length >= 1 &&
            options.questions >= 1 && options.distance >= 1 && batch >= 1,
        kName, options.keys, " keys, ", options.values, " values, ", options.filler, " fillers, needles of ",
        options.length, " tokens, ", options.questions, " questions, a distance of ", options.distance,
        " and ", batch, " sequences, expected at least 1 of each");
  check(places(options) >= options.keys, kName, options.tokens, " tokens for ", options.keys, " needles of ",
        options.length, " at least ", options.distance, " tokens before ", options.questions,
        " questions, expected more");
}

}  // namespace

NeedleBatch needle_batch(const NeedleOptions& options, Split split, int64_t number, int64_t batch) {
  check_options(options, batch);
  const int64_t tokens = options.tokens, keys = options.keys, values = options.values;
  const int64_t first_question = tokens - options.questions;
  PhiloxStream stream = stream_of(options.seed, split, number);
  NeedleBatch result{torch::empty({batch, tokens}, torch::kInt64),
                     torch::full({batch, tokens}, models::kIgnore, torch::kInt64)};
  auto symbols = result.symbols.accessor<int64_t, 2>(), answers = result.values.accessor<int64_t, 2>();
  std::vector<int64_t> value_of(keys);
  for (int64_t s = 0; s < batch; ++s) {
    for (int64_t n = 0; n < first_question; ++n) symbols[s][n] = stream.next_below(options.filler);
    const std::vector<int64_t> needles = different_numbers(stream, keys, places(options));
    for (int64_t k = 0; k < keys; ++k) {
      value_of[k] = stream.next_below(values);
      for (int64_t n = 0; n < options.length; ++n) {
        symbols[s][needles[k] * options.length + n] = options.filler + k * values + value_of[k];
      }
    }
    for (int64_t n = first_question; n < tokens; ++n) {
      const int64_t key = stream.next_below(keys);
      symbols[s][n] = options.filler + keys * values + key;
      answers[s][n] = value_of[key];
    }
  }
  return result;
}

}  // namespace iha::tasks
