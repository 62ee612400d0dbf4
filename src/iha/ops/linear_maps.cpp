#include "iha/ops/linear_maps.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

// MKL's own switch, for the calling thread; absent where torch was built on another library.
extern "C" int MKL_Set_Num_Threads_Local(int threads) __attribute__((weak));

namespace iha::ops {
namespace {

class OneMklThread {
 public:
  OneMklThread() : before_(MKL_Set_Num_Threads_Local != nullptr ? MKL_Set_Num_Threads_Local(1) : 0) {}
  ~OneMklThread() {
    if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(before_);
  }
  OneMklThread(const OneMklThread&) = delete;
  OneMklThread& operator=(const OneMklThread&) = delete;

 private:
  int before_;
};

// Multiply-adds of one task of a product: 30 us of one core, a hundred times what starting it costs.
constexpr int64_t kProductWork = int64_t{1} << 20;

bool all_finite(const at::Tensor& x) {
  if (x.numel() == 0) return true;
  const auto [least, most] = at::aminmax(x);  // NaN reaches both
  return std::isfinite(least.item<double>()) && std::isfinite(most.item<double>());
}

// a [I, J] (the same for every batch) times x [B, J, w].
at::Tensor apply(const at::Tensor& a, const at::Tensor& x) {
  return product(a.unsqueeze(0).expand({x.size(0), a.size(0), a.size(1)}), x);
}

// sum over the batch of g [B, I, w] times x [B, J, w]: [I, J]. Elements of g that are 0 keep x out.
at::Tensor outer_sum(const at::Tensor& g, const at::Tensor& x) {
  const at::Tensor transposed = x.transpose(1, 2);
  return ordered_sum(all_finite(x) ? product(g, transposed) : masked_product(g, transposed, g == 0), 0);
}

// alpha [M, M, P] as the matrix from heads to pseudo-heads, rows in the products' order.
at::Tensor mixing_matrix(const at::Tensor& alpha, const Problem& problem) {
  const auto order =
      problem.layout == Layout::kParallel ? std::array<int64_t, 3>{2, 1, 0} : std::array<int64_t, 3>{1, 2, 0};
  return alpha.permute(order).reshape({alpha.size(0) * alpha.size(2), alpha.size(0)});
}

// The products' layout as rows of the mixing matrix: [B, rows, N * w].
at::Tensor pseudo_rows(const at::Tensor& x) {
  return x.permute({0, 1, 3, 2, 4}).reshape({x.size(0), x.size(1) * x.size(3), x.size(2) * x.size(4)});
}

at::Tensor copies(const at::Tensor& x, const Problem& problem) {
  const int64_t pseudo = problem.pseudo_heads, batch = x.size(0), heads = x.size(1), tokens = x.size(2),
                width = x.size(3);
  if (pseudo == 1) return x.unsqueeze(3);
  if (problem.layout == Layout::kParallel) {
    return x.unsqueeze(1)
        .expand({batch, pseudo, heads, tokens, width})
        .reshape({batch, pseudo * heads, tokens, 1, width});
  }
  return x.unsqueeze(3).expand({batch, heads, tokens, pseudo, width}).contiguous();
}

}  // namespace

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  if (!a.device().is_cpu()) return at::bmm(a, b);
  const int64_t count = a.size(0), rows = a.size(1), depth = a.size(2), columns = b.size(2);
  const at::Tensor result = at::empty({count, rows, columns}, a.options());
  if (result.numel() == 0) return result;
  // Whole matrices together while they are small, else parts of the rows of one.
  const int64_t row_work = std::max<int64_t>(1, depth * columns), matrix_work = row_work * rows;
  const int64_t matrices = std::clamp<int64_t>(kProductWork / matrix_work, 1, count);
  const int64_t part =
      matrices > 1 ? rows : std::min<int64_t>(rows, (kProductWork / row_work + 64) / 64 * 64);
  const int64_t parts = (rows + part - 1) / part, tasks = (count + matrices - 1) / matrices * parts;
  at::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const OneMklThread one_thread;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task / parts * matrices, row = task % parts * part;
      const auto cut = [&](const at::Tensor& x) {
        return x.narrow(0, first, std::min(matrices, count - first))
            .narrow(1, row, std::min(part, rows - row));
      };
      at::Tensor target = cut(result);
      at::bmm_out(target, cut(a), b.narrow(0, first, std::min(matrices, count - first)));
    }
  });
  return result;
}

at::Tensor masked_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& hidden) {
  if (all_finite(b)) return product(a, b);
  const at::Tensor visible =
      hidden.defined() ? hidden.logical_not() : at::ones_like(a, a.options().dtype(at::kBool));
  const auto touches = [&](const at::Tensor& which, const at::Tensor& what) {
    return product(at::logical_and(which, visible).to(a.scalar_type()), what.to(a.scalar_type())) > 0;
  };
  const at::Tensor up = b == std::numeric_limits<double>::infinity(),
                   down = b == -std::numeric_limits<double>::infinity();
  const at::Tensor positive = a > 0, negative = a < 0, zero = a == 0;
  const at::Tensor to_nan =
      at::logical_or(touches(visible, b.isnan()), touches(zero, at::logical_or(up, down)));
  const at::Tensor to_up = at::logical_or(touches(positive, up), touches(negative, down));
  const at::Tensor to_down = at::logical_or(touches(positive, down), touches(negative, up));
  at::Tensor result = product(a, at::where(b.isfinite(), b, 0.0));
  const double infinity = std::numeric_limits<double>::infinity();
  result = at::where(to_up, result + infinity, result);
  result = at::where(to_down, result - infinity, result);
  return result.masked_fill_(to_nan, std::numeric_limits<double>::quiet_NaN());
}

at::Tensor ordered_sum(const at::Tensor& x, int64_t dim) {
  if (x.size(dim) > 0 && x.numel() == x.size(dim)) return x.cumsum(dim).select(dim, -1);
  return x.sum(dim);
}

at::Tensor mix(const at::Tensor& x, const at::Tensor& alpha, const Problem& problem) {
  if (!alpha.defined()) return copies(x, problem);
  const int64_t batch = x.size(0), heads = x.size(1), tokens = x.size(2), width = x.size(3);
  const int64_t pseudo = problem.pseudo_heads;
  const at::Tensor mixed = apply(mixing_matrix(alpha, problem), x.reshape({batch, heads, tokens * width}));
  if (problem.layout == Layout::kParallel) return mixed.view({batch, pseudo * heads, tokens, 1, width});
  return mixed.view({batch, heads, pseudo, tokens, width}).transpose(2, 3).contiguous();
}

MixGradients mix_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& alpha,
                          const Problem& problem, bool want_x, bool want_alpha) {
  const int64_t batch = x.size(0), heads = x.size(1), tokens = x.size(2), width = x.size(3);
  const int64_t pseudo = problem.pseudo_heads;
  MixGradients result;
  if (!alpha.defined()) {
    const at::Tensor parts = to_parts(grad, problem);
    if (want_x) result.x = pseudo == 1 ? parts.squeeze(3) : parts.sum(3);
    return result;
  }
  const at::Tensor rows = pseudo_rows(grad);
  if (want_x) result.x = apply(mixing_matrix(alpha, problem).t(), rows).view({batch, heads, tokens, width});
  if (want_alpha) {
    const at::Tensor sum = outer_sum(rows, x.reshape({batch, heads, tokens * width}));
    result.alpha = problem.layout == Layout::kParallel ? sum.view({pseudo, heads, heads}).permute({2, 1, 0})
                                                       : sum.view({heads, pseudo, heads}).permute({2, 0, 1});
  }
  return result;
}

at::Tensor turn(const at::Tensor& x, const std::vector<int64_t>& offsets, const Problem& problem,
                int direction) {
  if (problem.rope.kind == RopeKind::kNone) return x;
  const int64_t batch = x.size(0), tokens = x.size(2), pseudo = problem.pseudo_heads, width = x.size(4);
  const int64_t outer = problem.layout == Layout::kParallel ? pseudo : 1, inner = pseudo / outer;
  const std::vector<double> frequencies = rope_frequencies(problem.rope, width);
  const auto pairs = static_cast<int64_t>(frequencies.size());

  // Angles [1 or B, outer, 1, N, inner, pairs], formed in float64.
  const auto longs = at::TensorOptions().dtype(at::kLong);
  at::Tensor position = at::arange(tokens, longs).view({1, 1, 1, tokens, 1, 1});
  position = position + at::tensor(offsets, longs).view({-1, 1, 1, 1, 1, 1});
  if (problem.rope.kind == RopeKind::kVirtual) {
    const std::vector<int64_t> shape{1, outer, 1, 1, inner, 1};
    position = position * pseudo + at::arange(pseudo, longs).view(shape);
  }
  const at::Tensor angle = position.to(at::kDouble) * at::tensor(frequencies, at::kDouble);
  const at::Tensor cosine = angle.cos().to(x.device(), x.scalar_type());
  const at::Tensor sine = (angle * direction).sin().to(x.device(), x.scalar_type());

  const at::Tensor source = x.reshape({batch, outer, x.size(1) / outer, tokens, inner, width});
  const at::Tensor turned = at::empty_like(source, at::MemoryFormat::Contiguous);
  const auto channels = [&](const at::Tensor& all, int64_t which) {
    return problem.rope.style == RopeStyle::kHalf ? all.slice(-1, which * pairs, (which + 1) * pairs)
                                                  : all.slice(-1, which, 2 * pairs, 2);
  };
  const at::Tensor a = channels(source, 0), b = channels(source, 1);
  channels(turned, 0).copy_((a * cosine).sub_(b * sine));
  channels(turned, 1).copy_((a * sine).add_(b * cosine));
  turned.slice(-1, 2 * pairs).copy_(source.slice(-1, 2 * pairs));
  return turned.view(x.sizes());
}

at::Tensor to_parts(const at::Tensor& x, const Problem& problem) {
  if (problem.layout == Layout::kInterleaved) return x;
  const int64_t pseudo = problem.pseudo_heads;
  return x.reshape({x.size(0), pseudo, x.size(1) / pseudo, x.size(2), x.size(4)}).permute({0, 2, 3, 1, 4});
}

at::Tensor from_parts(const at::Tensor& parts, const Problem& problem) {
  if (problem.layout == Layout::kInterleaved) return parts;
  const at::Tensor moved = parts.permute({0, 3, 1, 2, 4});
  return moved.reshape({parts.size(0), parts.size(3) * parts.size(1), parts.size(2), 1, parts.size(4)});
}

at::Tensor collapse(const at::Tensor& parts, const at::Tensor& weights, const Problem& problem) {
  const int64_t batch = parts.size(0), heads = parts.size(1), tokens = parts.size(2), pseudo = parts.size(3),
                width = parts.size(4);
  switch (problem.collapse) {
    case CollapseKind::kMean:
      return pseudo == 1 ? parts.squeeze(3) : parts.sum(3).div_(pseudo);
    case CollapseKind::kPerHead:
      return (parts * weights.reshape({1, heads, 1, pseudo, 1})).sum(3);
    case CollapseKind::kGlobal:
      break;
  }
  return apply(weights.reshape({heads, heads * pseudo}), pseudo_rows(parts))
      .view({batch, heads, tokens, width});
}

std::pair<at::Tensor, at::Tensor> collapse_backward(const at::Tensor& grad, const at::Tensor& parts,
                                                    const at::Tensor& weights, const Problem& problem,
                                                    bool want_weights) {
  const int64_t batch = parts.size(0), heads = parts.size(1), tokens = parts.size(2), pseudo = parts.size(3),
                width = parts.size(4);
  if (problem.collapse == CollapseKind::kMean) {
    return {(grad / pseudo).unsqueeze(3).expand(parts.sizes()), at::Tensor()};
  }
  const at::Tensor rows = grad.reshape({batch, heads, tokens * width});
  if (problem.collapse == CollapseKind::kGlobal) {
    const at::Tensor matrix = weights.reshape({heads, heads * pseudo});
    const at::Tensor grad_parts =
        apply(matrix.t(), rows).view({batch, heads, pseudo, tokens, width}).transpose(2, 3);
    if (!want_weights) return {grad_parts, at::Tensor()};
    // Parts that are 0 (a query that sees nothing) keep the upstream gradient out.
    return {grad_parts, outer_sum(pseudo_rows(parts), rows).t().reshape(weights.sizes())};
  }
  const at::Tensor grad_parts = grad.unsqueeze(3) * weights.reshape({1, heads, 1, pseudo, 1});
  if (!want_weights) return {grad_parts, at::Tensor()};
  const at::Tensor by_head = parts.permute({1, 0, 3, 2, 4}).reshape({heads * batch, pseudo, tokens * width});
  const at::Tensor upstream = grad.permute({1, 0, 2, 3}).reshape({heads * batch, tokens * width, 1});
  const at::Tensor products =
      all_finite(upstream) ? product(by_head, upstream) : masked_product(by_head, upstream, by_head == 0);
  return {grad_parts, ordered_sum(products.view({heads, batch, pseudo}), 1)};
}

}  // namespace iha::ops
