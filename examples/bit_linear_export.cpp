// Export of a BitLinear model: every projection as -1, 0, 1 and one scale, the rest as it is, in one file
// that any safetensors reader opens; and a projection taken back from it, equal bit for bit.
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "iha/nn/tensor_file.h"
#include "iha/nn/ternary_export.h"
#include "iha/nn/transformer_block.h"

using namespace iha::nn;

int main() {
  torch::manual_seed(0);
  torch::NoGradGuard no_grad;
  TransformerBlock block(TransformerBlockOptions(
      InterleavedHeadAttentionOptions(/*d_model=*/64, /*heads=*/4).patterns(iha::causal()).bit_linear(true)));
  int64_t trained_bytes = 0;
  for (const auto& parameter : block->parameters()) trained_bytes += static_cast<int64_t>(parameter.nbytes());

  const auto path = std::filesystem::temp_directory_path() /
                    ("iha_bit_linear_" + std::to_string(getpid()) + ".safetensors");
  export_ternary(*block, path);
  const auto file = iha::io::SafeTensors::open(path);
  std::printf("%lld bytes of parameters became a file of %lld bytes\n", static_cast<long long>(trained_bytes),
              static_cast<long long>(std::filesystem::file_size(path)));

  bool equal = true;
  const auto x = torch::randn({3, 64});
  for (const auto& [name, baked] : bake_all(*block)) {
    if (baked->options.in_features() != 64) continue;
    TernaryLinear loaded(baked->options);
    loaded->ternary.set_data(to_tensor(file.at(name + ".ternary"), name));
    loaded->scale.set_data(to_tensor(file.at(name + ".scale"), name));
    auto& trained = *block->named_modules()[name]->as<BitLinearImpl>();
    equal = equal && torch::equal(loaded(x), trained.forward(x));
    std::printf("%s: %.0f %% of the weights are 0\n", name.c_str(),
                100 * (loaded->ternary == 0).to(torch::kFloat64).mean().item<double>());
  }
  std::filesystem::remove(path);
  std::puts(equal ? "loaded projections equal the trained ones bit for bit" : "OFF");
  return equal ? 0 : 1;
}
