// Writing and reading checkpoints: see checkpoint.h.
#include "iha/train/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <map>
#include <set>
#include <system_error>

#include "iha/io/atomic_file.h"
#include "iha/nn/tensor_file.h"
#include "iha/train/optimizer.h"
#include "iha/train/random_state.h"

namespace iha::train {

namespace {

namespace fs = std::filesystem;
using nn::NamedTensors, nn::save_tensors, nn::to_tensor;

constexpr const char* kModel = "model.safetensors";
constexpr const char* kTraining = "training.safetensors";
constexpr const char* kFormat = "iha-checkpoint-1";

// ---- The model ----

// Every name of every tensor, names of one tensor together, each group under its first name.
struct Aliases {
  NamedTensors first;
  std::map<std::string, std::string> first_name_of;  // of every name
};

Aliases model_tensors(const torch::nn::Module& module) {
  Aliases result;
  std::map<const void*, std::string> seen;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    const auto [place, fresh] = seen.emplace(tensor.unsafeGetTensorImpl(), name);
    if (fresh) result.first.emplace_back(name, tensor);
    result.first_name_of[name] = place->second;
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  return result;
}

// [target, new value] pairs, checked; nothing is copied yet.
std::vector<std::pair<torch::Tensor, torch::Tensor>> model_updates(const io::SafeTensors& file,
                                                                   const std::string& path,
                                                                   const torch::nn::Module& module) {
  const Aliases aliases = model_tensors(module);
  for (const auto& [name, view] : file.tensors()) {
    TORCH_CHECK_VALUE(aliases.first_name_of.count(name) == 1, path, ": tensor ", name,
                      " is unknown to the model");
  }
  std::vector<std::pair<torch::Tensor, torch::Tensor>> updates;
  for (const auto& [name, tensor] : aliases.first) {
    TORCH_CHECK_VALUE(file.contains(name), path, ": tensor ", name, " of the model is missing");
    const torch::Tensor value = to_tensor(file.at(name), name);
    TORCH_CHECK_VALUE(value.sizes() == tensor.sizes() && value.scalar_type() == tensor.scalar_type(), path,
                      ": tensor ", name, " is ", value.scalar_type(), value.sizes(), ", expected ",
                      tensor.scalar_type(), tensor.sizes());
    updates.emplace_back(tensor, value);
  }
  return updates;
}

void apply(std::vector<std::pair<torch::Tensor, torch::Tensor>>& updates) {
  const torch::NoGradGuard no_grad;
  for (auto& [target, value] : updates) target.copy_(value);
}

// ---- The optimizer ----

NamedTensors optimizer_tensors(const torch::nn::Module& module, torch::optim::AdamW& optimizer) {
  NamedTensors tensors;
  for (const auto& [name, parameter] : trainable_parameters(module)) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;  // it has had no gradient yet
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(*found->second);
    tensors.emplace_back("exp_avg." + name, state.exp_avg());
    tensors.emplace_back("exp_avg_sq." + name, state.exp_avg_sq());
    tensors.emplace_back("step." + name, torch::tensor(state.step(), at::kLong));
  }
  return tensors;
}

struct OptimizerUpdate {
  torch::Tensor parameter;
  std::unique_ptr<torch::optim::AdamWParamState> state;
};

torch::Tensor moment(const io::SafeTensors& file, const std::string& path, const std::string& name,
                     const torch::Tensor& parameter) {
  const torch::Tensor value = to_tensor(file.at(name), name);
  TORCH_CHECK_VALUE(value.sizes() == parameter.sizes() && value.scalar_type() == parameter.scalar_type(),
                    path, ": tensor ", name, " is ", value.scalar_type(), value.sizes(), ", expected ",
                    parameter.scalar_type(), parameter.sizes());
  return value;
}

std::vector<OptimizerUpdate> optimizer_updates(const io::SafeTensors& file, const std::string& path,
                                               const torch::nn::Module& module) {
  std::vector<OptimizerUpdate> updates;
  std::set<std::string> known{"generator"};
  for (const auto& [name, parameter] : trainable_parameters(module)) {
    for (const char* kind : {"exp_avg.", "exp_avg_sq.", "step."}) known.insert(kind + name);
    if (!file.contains("step." + name)) continue;
    auto state = std::make_unique<torch::optim::AdamWParamState>();
    const auto steps = io::to_int64s(file.at("step." + name));
    TORCH_CHECK_VALUE(steps.size() == 1 && steps[0] >= 0, path, ": step.", name, " is no count of steps");
    state->step(steps[0]);
    state->exp_avg(moment(file, path, "exp_avg." + name, parameter));
    state->exp_avg_sq(moment(file, path, "exp_avg_sq." + name, parameter));
    updates.push_back({parameter, std::move(state)});
  }
  for (const auto& [name, view] : file.tensors()) {
    TORCH_CHECK_VALUE(known.count(name) == 1, path, ": tensor ", name, " is unknown to the optimizer");
  }
  return updates;
}

// ---- The state as metadata ----

std::string exact(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

io::Metadata to_metadata(const TrainingState& state) {
  return {{"format", kFormat},
          {"step", std::to_string(state.step)},
          {"batch", std::to_string(state.batch)},
          {"best", exact(state.best)},
          {"evaluations_since_best", std::to_string(state.evaluations_since_best)},
          {"settings", state.settings}};
}

class MetadataReader {
 public:
  MetadataReader(const io::Metadata& metadata, const std::string& path) : metadata_(metadata), path_(path) {}

  const std::string& text(const std::string& key) const {
    const auto found = metadata_.find(key);
    TORCH_CHECK_VALUE(found != metadata_.end(), path_, ": metadata lacks `", key, "`");
    return found->second;
  }
  int64_t count(const std::string& key) const {
    const auto value = number<int64_t>(key);
    TORCH_CHECK_VALUE(value >= 0, path_, ": metadata `", key, "` is ", value, ", expected 0 or more");
    return value;
  }
  template <class Number>
  Number number(const std::string& key) const {
    const std::string& content = text(key);
    Number value{};
    const auto [end, error] = std::from_chars(content.data(), content.data() + content.size(), value);
    TORCH_CHECK_VALUE(error == std::errc() && end == content.data() + content.size(), path_, ": metadata `",
                      key, "` is `", content, "`, expected a number");
    return value;
  }

 private:
  const io::Metadata& metadata_;
  const std::string& path_;
};

TrainingState from_metadata(const io::Metadata& metadata, const std::string& path) {
  const MetadataReader read(metadata, path);
  TORCH_CHECK_VALUE(read.text("format") == kFormat, path, ": format is `", read.text("format"),
                    "`, expected ", kFormat);
  TrainingState state;
  state.step = read.count("step");
  state.batch = read.count("batch");
  state.best = read.number<double>("best");
  state.evaluations_since_best = read.count("evaluations_since_best");
  state.settings = read.text("settings");
  return state;
}

// ---- Folders ----

std::string folder_name(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%010lld", static_cast<long long>(step));
  return name;
}

bool is_checkpoint_name(const std::string& name) {
  return name.size() > 5 && name.rfind("step-", 0) == 0 &&
         std::all_of(name.begin() + 5, name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Makes the entries of a folder last through a loss of power.
void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!synced) throw std::system_error(error, std::generic_category(), folder.string());
}

}  // namespace

void save_model(const fs::path& file, const torch::nn::Module& module) {
  save_tensors(file, model_tensors(module).first, {{"format", "pt"}});
}

void load_model(const fs::path& file, torch::nn::Module& module) {
  auto updates = model_updates(io::SafeTensors::open(file), file.string(), module);
  apply(updates);
}

void CheckpointFolder::save(const torch::nn::Module& module, torch::optim::AdamW& optimizer,
                            const TrainingState& state, bool best) {
  const std::string name = folder_name(state.step);
  const fs::path target = folder_ / name;
  if (latest() != target) {
    const fs::path temporary = folder_ / ("." + name + ".tmp");
    fs::remove_all(temporary);
    fs::create_directories(temporary);
    save_model(temporary / kModel, module);
    NamedTensors training = optimizer_tensors(module, optimizer);
    training.emplace_back("generator", random_state());
    save_tensors(temporary / kTraining, training, to_metadata(state));
    fs::remove_all(target);  // what a run that was killed before it moved `latest` may have left
    fs::rename(temporary, target);
    sync_folder(folder_);
  }
  // `best` first: the state that `latest` leads to already counts this value as the best, so a run that goes
  // on from there would never name it again.
  if (best) io::replace_file(folder_ / "best", name + "\n");
  if (latest() != target) io::replace_file(folder_ / "latest", name + "\n");
  prune();
}

TrainingState CheckpointFolder::load(torch::nn::Module& module, torch::optim::AdamW& optimizer) const {
  const auto checkpoint = latest();
  TORCH_CHECK_VALUE(checkpoint, "iha train: ", folder_.string(), " holds no checkpoint");
  const std::string model_path = (*checkpoint / kModel).string();
  const std::string training_path = (*checkpoint / kTraining).string();
  auto updates = model_updates(io::SafeTensors::open(model_path), model_path, module);
  const auto training = io::SafeTensors::open(training_path);
  const TrainingState state = from_metadata(training.metadata(), training_path);
  auto optimizer_states = optimizer_updates(training, training_path, module);
  set_random_state(to_tensor(training.at("generator"), "generator"));
  apply(updates);
  optimizer.state().clear();
  for (auto& [parameter, moments] : optimizer_states) {
    optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(moments);
  }
  return state;
}

std::optional<fs::path> CheckpointFolder::pointed_to(const std::string& pointer) const {
  const fs::path file = folder_ / pointer;
  if (!fs::exists(file)) return std::nullopt;
  std::string name = io::read_text(file);
  if (!name.empty() && name.back() == '\n') name.pop_back();
  TORCH_CHECK_VALUE(is_checkpoint_name(name), file.string(), ": `", name.substr(0, 80),
                    "` is no checkpoint's name, expected one like ", folder_name(1000));
  return folder_ / name;
}

void CheckpointFolder::prune() const {
  const auto keep_latest = latest(), keep_best = best();
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    const bool kept = entry.path() == keep_latest || entry.path() == keep_best;
    const bool unfinished = name.rfind(".step-", 0) == 0;  // a kill in the middle of save
    if ((is_checkpoint_name(name) && !kept) || unfinished) stale.push_back(entry.path());
  }
  for (const fs::path& path : stale) fs::remove_all(path);
}

}  // namespace iha::train
