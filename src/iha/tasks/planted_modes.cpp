#include "iha/tasks/planted_modes.h"

#include <algorithm>
#include <vector>

#include "iha/core/error.h"

namespace iha::tasks {
namespace {

constexpr int64_t kAbsent = 0, kZero = 1;  // marks; kZero + 1 is one

}  // namespace

PlantedBatch planted_batch(const PlantedModesOptions& options, Split split, int64_t number, int64_t batch) {
  const int64_t tokens = options.tokens, step = options.step;
  check(step >= 1 && tokens >= std::max(step, kGlobalMarks) && batch >= 1,
        "iha::tasks::planted_batch: ", tokens, " tokens, a step of ", step, " and ", batch,
        " sequences, expected at least a step and ", kGlobalMarks, " tokens, and 1 of the others");
  PhiloxStream stream = stream_of(options.seed, split, number);
  PlantedBatch result{torch::empty({batch, tokens}, torch::kInt64), torch::empty({batch, tokens, 3})};
  auto symbols = result.symbols.accessor<int64_t, 2>();
  auto tags = result.tags.accessor<float, 3>();
  std::vector<int64_t> bits(tokens), marks_b(tokens), marks_c(tokens), of_class(step);
  for (int64_t s = 0; s < batch; ++s) {
    for (int64_t& bit : bits) bit = stream.next_below(2);
    marks_b.assign(tokens, kAbsent);
    marks_c.assign(tokens, kAbsent);
    for (int64_t r = 0; r < step; ++r) {
      of_class[r] = stream.next_below(2);
      const int64_t members = (tokens - r + step - 1) / step;
      marks_b[r + step * stream.next_below(members)] = kZero + of_class[r];
    }
    int64_t ones = 0;
    for (const int64_t place : different_numbers(stream, kGlobalMarks, tokens)) {
      const int64_t mark = stream.next_below(2);
      marks_c[place] = kZero + mark;
      ones += mark;
    }
    for (int64_t n = 0; n < tokens; ++n) {
      symbols[s][n] = bits[n] + 2 * (marks_b[n] + 3 * marks_c[n]);
      tags[s][n][0] = static_cast<float>(bits[n > 0 ? n - 1 : 0]);
      tags[s][n][1] = static_cast<float>(of_class[n % step]);
      tags[s][n][2] = static_cast<float>(2 * ones > kGlobalMarks);
    }
  }
  return result;
}

}  // namespace iha::tasks
