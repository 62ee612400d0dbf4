// Autocast: query, key and value of the public operators are cast to the autocast dtype; everything else
// keeps its own.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace iha::ops {
namespace {

template <c10::DispatchKey key, at::DeviceType device>
void autocast(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(key);
  const size_t first = stack->size() - op.schema().arguments().size();
  for (size_t at = first; at < first + 3; ++at) {  // the third of attention_weights is integer, which stays
    const at::Tensor cast =
        at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), (*stack)[at].toTensor(), device);
    (*stack)[at] = cast;
  }
  op.callBoxed(stack);
}

template <c10::DispatchKey key, at::DeviceType device>
void register_all(torch::Library& m) {
  for (const char* name : {"attention", "attention_with_lse", "attention_weights"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&autocast<key, device>>());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(iha, AutocastCPU, m) {
  register_all<c10::DispatchKey::AutocastCPU, at::kCPU>(m);
}
TORCH_LIBRARY_IMPL(iha, AutocastCUDA, m) {
  register_all<c10::DispatchKey::AutocastCUDA, at::kCUDA>(m);
}

}  // namespace iha::ops
