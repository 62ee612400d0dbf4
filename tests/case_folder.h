// Where the case files are: the folder that IHA_CASES names, else shared/cases beside the checkout.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace iha {

inline std::filesystem::path case_folder() {
  if (const char* folder = std::getenv("IHA_CASES")) return folder;
  return std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "shared" / "cases";
}

// Sorted; empty where there is no such folder.
inline std::vector<std::filesystem::path> case_files() {
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::is_directory(case_folder())) return files;
  for (const auto& entry : std::filesystem::directory_iterator(case_folder())) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace iha
