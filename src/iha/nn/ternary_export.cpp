#include "iha/nn/ternary_export.h"

#include <set>

#include "iha/nn/tensor_file.h"

namespace iha::nn {

std::vector<std::pair<std::string, TernaryLinear>> bake_all(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, TernaryLinear>> baked;
  const auto take = [&](const std::string& name, const torch::nn::Module& part) {
    if (const auto* layer = part.as<BitLinearImpl>()) baked.emplace_back(name, layer->bake());
  };
  take("", module);  // named_modules would ask for a shared pointer to it
  for (const auto& entry : module.named_modules("", /*include_self=*/false))
    take(entry.key(), *entry.value());
  return baked;
}

void export_ternary(const torch::nn::Module& module, const std::filesystem::path& path) {
  NamedTensors tensors;
  std::set<std::string> replaced;
  for (const auto& [name, layer] : bake_all(module)) {
    const auto prefix = name.empty() ? "" : name + ".";
    for (const auto* own : {"weight", "bias"}) replaced.insert(prefix + own);
    for (const auto& buffer : layer->named_buffers())
      tensors.emplace_back(prefix + buffer.key(), buffer.value());
  }
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    if (!replaced.contains(name)) tensors.emplace_back(name, tensor);
  };
  for (const auto& entry : module.named_parameters()) add(entry.key(), entry.value());
  for (const auto& entry : module.named_buffers()) add(entry.key(), entry.value());
  save_tensors(path, tensors, {{"format", "iha-ternary-1"}});
}

}  // namespace iha::nn
