// Rotary position embedding: which channels turn, by which angle. Angles are formed in float64 at any
// position
// (|position| < 2^53) and no table is sized in advance.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace iha {

enum class RopeKind : uint8_t { kNone, kToken, kVirtual };
enum class RopeStyle : uint8_t { kHalf, kAdjacent };

struct Rope {
  RopeKind kind = RopeKind::kNone;
  double theta = 10000.0;
  // Radians per position, one a pair of channels (r/2 of them; the first r channels turn). Empty: from theta,
  // all channels turn: theta^(-2c/d), c = 0 .. d/2-1.
  std::vector<double> frequencies;
  RopeStyle style = RopeStyle::kHalf;
};

// The frequencies in use for head dimension `head_dim`: rope.frequencies, or those of rope.theta.
std::vector<double> rope_frequencies(const Rope& rope, int64_t head_dim);

// The two channels of pair `pair` of `pairs` pairs, lower channel first.
inline std::pair<int64_t, int64_t> rope_channels(RopeStyle style, int64_t pair, int64_t pairs) {
  return style == RopeStyle::kHalf ? std::pair{pair, pair + pairs} : std::pair{2 * pair, 2 * pair + 1};
}

// The position whose angle pseudo-token `pseudo` of `token` gets: token, or token * pseudo_heads + pseudo.
inline int64_t rope_position(RopeKind kind, int64_t token, int64_t pseudo, int64_t pseudo_heads) {
  return kind == RopeKind::kVirtual ? token * pseudo_heads + pseudo : token;
}

// Turns `row` [head_dim] in place to `position`; direction -1 turns back (the gradient).
void rotate(double* row, const std::vector<double>& frequencies, RopeStyle style, int64_t position,
            int direction = 1);

}  // namespace iha
