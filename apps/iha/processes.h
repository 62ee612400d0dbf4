// Runs programs side by side, a few at a time. torch's generator and thread count are process-wide, so runs
// that must not touch each other are processes.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace iha::app {

struct Job {
  std::string name;
  std::vector<std::string> arguments;  // of this program
  std::filesystem::path log;           // its standard output and error
};

enum class JobState { kWaiting, kRunning, kDone };

// Runs all jobs, at most `at_once` at a time; `watch` sees their states some times a second. Throws
// std::runtime_error with the end of the log of the first job that fails; the others are then stopped. Jobs
// end with this process.
void run_jobs(const std::vector<Job>& jobs, int at_once,
              const std::function<void(const std::vector<JobState>&)>& watch);

}  // namespace iha::app
