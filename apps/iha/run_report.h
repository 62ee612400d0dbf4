// Parts of reports that several commands share, made from runs' folders and models.
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "iha/report/report.h"

namespace iha::app {

// One chart a curve kind (loss, each validation metric) with a line a run: [name, folder].
std::vector<report::Block> learning_curves(
    const std::vector<std::pair<std::string, std::filesystem::path>>& runs);

// The mean curve over several runs of one name, with their standard deviation as a band.
struct RunGroup {
  std::string name;
  std::vector<std::filesystem::path> folders;
};
std::vector<report::Block> mean_curves(const std::vector<RunGroup>& groups);

// The page of one run of heads that choose: `lead`, the curves under `name`, and the gates if heads are
// learned.
report::Page choosing_page(const std::string& title, const std::string& lead, const std::string& name,
                           const std::filesystem::path& folder);

// A heat map of each alpha_q, alpha_k, alpha_v and collapse of the module; none where it has none.
std::vector<report::HeatMap> mixing_maps(const torch::nn::Module& module);

// The sections about the language model that `iha train lm` left in `folder`.
std::vector<report::Section> language_sections(const std::filesystem::path& folder);

}  // namespace iha::app
