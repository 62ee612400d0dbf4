// Checkpoints: everything a run needs to go on as if it had not stopped. A folder holds
//   step-0000001000/model.safetensors     the model's tensors under their own names, a tied one once
//   step-0000001000/training.safetensors  Adam's moments and steps, torch's generator, and TrainingState as
//   metadata latest, best                          one line each: the name of such a folder
// A checkpoint is written under another name, synced and renamed, and only then named by `latest`, itself
// replaced atomically: a kill at any moment leaves the old checkpoint or the new one, whole.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/adamw.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>

#include "iha/io/safetensors.h"

namespace iha::train {

struct TrainingState {
  int64_t step = 0;                                        // steps done, skipped ones included
  int64_t batch = 0;                                       // the next batch's number
  double best = std::numeric_limits<double>::quiet_NaN();  // the deciding metric's best value; NaN: none yet
  int64_t evaluations_since_best = 0;
  std::string settings;  // what may not change between the runs, in words
};

// Parameters and buffers of `module`, a tensor that has several names under the first. The file says `format:
// pt`, as the Python packages ask.
void save_model(const std::filesystem::path& file, const torch::nn::Module& module);
// Copies the file's tensors into the module. Throws c10::ValueError, before anything is changed, that names a
// missing or unknown tensor or a different shape or dtype, and what io::SafeTensors::open throws.
void load_model(const std::filesystem::path& file, torch::nn::Module& module);

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Writes a checkpoint of `state.step`, points `latest` (and, where `best`, `best`) to it, and removes
  // checkpoints that neither points to.
  void save(const torch::nn::Module& module, torch::optim::AdamW& optimizer, const TrainingState& state,
            bool best);
  // Restores module, optimizer and torch's generator from the latest checkpoint. Throws, before anything is
  // changed, for files that are not whole or do not fit.
  TrainingState load(torch::nn::Module& module, torch::optim::AdamW& optimizer) const;

  // The checkpoint that `latest` or `best` names; absent where there is none yet.
  std::optional<std::filesystem::path> latest() const { return pointed_to("latest"); }
  std::optional<std::filesystem::path> best() const { return pointed_to("best"); }

 private:
  std::optional<std::filesystem::path> pointed_to(const std::string& pointer) const;
  void prune() const;

  std::filesystem::path folder_;
};

}  // namespace iha::train
