#include "iha/ops/engine.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "iha/kernels/attention.h"

namespace iha::ops {
namespace {

DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return DType::kFloat64;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kHalf:
      return DType::kFloat16;
    default:
      return DType::kFloat32;
  }
}

template <class Array>
Array as(const at::Tensor& tensor) {
  Array array;
  if (!tensor.defined()) return array;
  array.data = tensor.data_ptr();
  array.dtype = dtype_of(tensor);
  std::copy(tensor.strides().begin(), tensor.strides().end(), array.strides.begin());
  return array;
}
core::Array read(const at::Tensor& tensor) {
  return as<core::Array>(tensor);
}
core::MutableArray written(const at::Tensor& tensor) {
  return as<core::MutableArray>(tensor);
}

core::AttentionInputs read(const Inputs& inputs) {
  return {read(inputs[kQuery]),       read(inputs[kKey]),    read(inputs[kValue]),
          read(inputs[kAlphaQ]),      read(inputs[kAlphaK]), read(inputs[kAlphaV]),
          read(inputs[kCollapse]),    read(inputs[kSinks]),  read(inputs[kModeWeights]),
          read(inputs[kBlockWeights])};
}

// [B, heads, tokens, width] over memory in the order [B, tokens, heads, width].
at::Tensor empty_token_major(at::IntArrayRef shape, const at::TensorOptions& options) {
  return at::empty({shape[0], shape[2], shape[1], shape[3]}, options).transpose(1, 2);
}

// Upstream gradients come in any dtype that autograd accumulated them in.
at::Tensor in_dtype(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.defined() ? tensor.to(dtype) : tensor;
}

std::atomic<CpuPath>& chosen_path() {
  static std::atomic<CpuPath> path = [] {
    const char* chosen = std::getenv("IHA_CPU");
    const bool composed = chosen != nullptr && std::string_view(chosen) == "composed";
    return composed ? CpuPath::kComposed : CpuPath::kEngine;
  }();
  return path;
}

}  // namespace

// torch's pool splits a range statically; here each of its parts takes tasks from one counter until none is
// left.
ParallelFor torch_threads() {
  return {at::get_num_threads(), [](int64_t tasks, const ParallelFor::Body& body) {
            std::atomic<int64_t> next{0};
            const int64_t workers = std::min<int64_t>(at::get_num_threads(), tasks);
            at::parallel_for(0, workers, 1, [&](int64_t begin, int64_t end) {
              for (int64_t worker = begin; worker < end; ++worker) {
                for (int64_t task = next++; task < tasks; task = next++) body(task, static_cast<int>(worker));
              }
            });
          }};
}

CpuPath cpu_path() {
  return chosen_path().load(std::memory_order_relaxed);
}

void set_cpu_path(CpuPath path) {
  chosen_path().store(path, std::memory_order_relaxed);
}

bool engine_serves(at::ScalarType dtype) {
  return cpu_path() == CpuPath::kEngine && dtype != at::kDouble;
}

Results engine_forward(const Arguments& arguments, const Problem& problem, Want want) {
  const Problem& p = problem;
  const at::TensorOptions options = arguments.query().options();
  Results results;
  results.out = want.out ? empty_token_major({p.batch, p.query_heads, p.queries, p.value_dim}, options)
                         : at::empty({0}, options);
  results.parts = at::empty(
      want.parts ? std::vector<int64_t>{p.batch, p.query_heads, p.queries, p.pseudo_heads, p.value_dim}
                 : std::vector<int64_t>{0},
      options.dtype(parts_type(arguments, want)));
  results.lse = at::empty({p.batch, p.query_heads, p.queries, p.pseudo_heads}, options.dtype(at::kFloat));
  with_value_errors([&] {
    core::attention(problem, read(arguments.inputs),
                    {want.out ? written(results.out) : core::MutableArray{},
                     want.parts ? written(results.parts) : core::MutableArray{}, written(results.lse)},
                    torch_threads());
  });
  return results;
}

Inputs engine_backward(const Arguments& arguments, const Problem& problem, const Upstream& upstream,
                       const Wanted& wanted) {
  const at::ScalarType dtype = arguments.query().scalar_type();
  const at::Tensor grad_out = in_dtype(upstream.grad_out, dtype),
                   grad_parts = in_dtype(upstream.grad_parts, dtype),
                   grad_lse = in_dtype(upstream.grad_lse, at::kFloat);
  Inputs gradients;
  for (int i = 0; i < kInputCount; ++i) {
    const at::Tensor& input = arguments.inputs[i];
    if (!wanted[i] || !input.defined()) continue;
    gradients[i] = i <= kValue ? empty_token_major(input.sizes(), input.options())
                               : at::empty(input.sizes(), input.options());
  }
  // A plain call keeps its output, whose rows are the parts.
  const at::Tensor parts = upstream.parts.dim() == 4 ? upstream.parts.unsqueeze(3) : upstream.parts;
  with_value_errors([&] {
    core::attention_backward(
        problem, read(arguments.inputs),
        {read(parts), read(upstream.lse), read(grad_out), read(grad_parts), read(grad_lse)},
        {written(gradients[kQuery]), written(gradients[kKey]), written(gradients[kValue]),
         written(gradients[kAlphaQ]), written(gradients[kAlphaK]), written(gradients[kAlphaV]),
         written(gradients[kCollapse]), written(gradients[kSinks]), written(gradients[kModeWeights]),
         written(gradients[kBlockWeights])},
        torch_threads());
  });
  return gradients;
}

}  // namespace iha::ops
