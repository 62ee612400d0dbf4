#include "iha/schedule/coverage.h"

#include <algorithm>

#include "iha/core/error.h"
#include "iha/patterns/count.h"
#include "iha/schedule/tiles.h"

namespace iha {
namespace {

int64_t visible_in(const Pattern& pattern, int64_t begin, int64_t end, int64_t left, int64_t right) {
  int64_t pairs = 0;
  for (int64_t i = begin; i < end; ++i)
    pairs += visible_keys(pattern, i, right) - visible_keys(pattern, i, left);
  return pairs;
}

}  // namespace

Coverage coverage(const Pattern& pattern, int64_t tokens, int64_t cells) {
  check(tokens >= 0, "iha::coverage: ", tokens, " tokens, expected at least 0");
  check(cells >= 1, "iha::coverage: ", cells, " cells a side, expected at least 1");
  Coverage result;
  result.block = std::max<int64_t>(1, tokens / cells + (tokens % cells == 0 ? 0 : 1));
  result.side = tokens / result.block + (tokens % result.block == 0 ? 0 : 1);
  result.share.resize(result.side * result.side);
  const HeadScope scope{.pattern = pattern, .queries = tokens, .keys = tokens};
  std::vector<TileRun> runs;
  for (int64_t row = 0; row < result.side; ++row) {
    const int64_t begin = row * result.block, end = std::min(tokens, begin + result.block);
    key_tiles(scope, begin, end, result.block, runs);
    for (const TileRun& run : runs) {
      for (int64_t column = run.first; column < run.first + run.count; ++column) {
        const int64_t left = column * result.block, right = std::min(tokens, left + result.block);
        const auto all = static_cast<double>((end - begin) * (right - left));
        double& share = result.share[row * result.side + column];
        share = run.kind == TileKind::kFull
                    ? 1.0
                    : static_cast<double>(visible_in(pattern, begin, end, left, right)) / all;
      }
    }
  }
  return result;
}

}  // namespace iha
