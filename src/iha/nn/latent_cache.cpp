#include "iha/nn/latent_cache.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string_view>

namespace iha::nn {
namespace {

constexpr std::string_view kName = "iha::nn::LatentCache";
constexpr int64_t kFirstTokens = 64;  // memory of a cache that nobody sized

}  // namespace

LatentCache::LatentCache(int64_t batch, int64_t width, const torch::TensorOptions& options,
                         int64_t capacity) {
  TORCH_CHECK_VALUE(batch >= 0 && width >= 0 && capacity >= 0, kName, ": batch = ", batch,
                    ", width = ", width, ", capacity = ", capacity, ", expected at least 0 of each");
  memory_ = torch::empty({batch, capacity, width}, options.requires_grad(false));
}

LatentCache::LatentCache(const LatentCache& other) : memory_(other.memory_.clone()), tokens_(other.tokens_) {}

LatentCache& LatentCache::operator=(const LatentCache& other) {
  return *this = LatentCache(other);
}

void LatentCache::append(const torch::Tensor& rows) {
  torch::NoGradGuard no_grad;
  TORCH_CHECK_VALUE(rows.dim() == 3 && rows.size(0) == memory_.size(0) && rows.size(2) == width() &&
                        rows.scalar_type() == memory_.scalar_type(),
                    kName, ": rows of ", rows.scalar_type(), " of shape ", rows.sizes(), ", expected ",
                    memory_.scalar_type(), " [", memory_.size(0), ", n, ", width(), "]");
  const auto needed = tokens_ + rows.size(1);
  if (needed > memory_.size(1)) {
    const auto capacity = std::max({needed, 2 * memory_.size(1), kFirstTokens});
    auto larger = torch::empty({memory_.size(0), capacity, width()}, memory_.options());
    larger.narrow(1, 0, tokens_).copy_(this->rows());
    memory_ = larger;
  }
  memory_.narrow(1, tokens_, rows.size(1)).copy_(rows);
  tokens_ = needed;
}

void LatentCache::truncate(int64_t tokens) {
  TORCH_CHECK_VALUE(tokens >= 0 && tokens <= tokens_, kName, ": truncated to ", tokens,
                    " tokens, expected 0 to ", tokens_, " = tokens held");
  tokens_ = tokens;
}

int64_t LatentCache::bytes() const {
  return memory_.size(0) * tokens_ * width() * static_cast<int64_t>(memory_.element_size());
}

}  // namespace iha::nn
