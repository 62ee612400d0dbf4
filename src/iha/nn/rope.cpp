#include "iha/nn/rope.h"

#include <ATen/ATen.h>

namespace iha::nn {

torch::Tensor rotate(const torch::Tensor& x, int64_t position, double theta, RopeStyle style) {
  const auto width = x.size(-1);
  TORCH_CHECK_VALUE(width % 2 == 0, "iha::nn::rotate: ", width, " channels, expected an even number");
  if (width == 0) return x;
  const auto wide = x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  const auto frequencies =
      torch::tensor(rope_frequencies({RopeKind::kToken, theta, {}, style}, width), torch::kFloat64);
  const auto positions = at::arange(position, position + x.size(-2), torch::kFloat64);
  const auto angles = positions.unsqueeze(1) * frequencies;  // [N, r/2]
  const auto cosine = angles.cos().to(x.device(), wide), sine = angles.sin().to(x.device(), wide);
  // [.., N, 2, r/2] or [.., N, r/2, 2]: the axis of two holds the pairs.
  const bool half = style == RopeStyle::kHalf;
  const auto pairs =
      x.to(wide).unflatten(-1, half ? at::IntArrayRef{2, width / 2} : at::IntArrayRef{width / 2, 2});
  const auto axis = half ? -2 : -1;
  const auto a = pairs.select(axis, 0), b = pairs.select(axis, 1);
  return at::stack({a * cosine - b * sine, a * sine + b * cosine}, axis).flatten(-2).to(x.scalar_type());
}

}  // namespace iha::nn
