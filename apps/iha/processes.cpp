// See processes.h.
#include "processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "iha/io/atomic_file.h"

namespace iha::app {

namespace {

namespace fs = std::filesystem;

constexpr auto kPause = std::chrono::milliseconds(100);

// Everything the child needs is made before the fork: between fork and exec only async-signal-safe calls are
// allowed.
pid_t start(const Job& job) {
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  std::vector<char*> arguments{const_cast<char*>(program.c_str())};
  for (const std::string& each : job.arguments) arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);
  fs::create_directories(job.log.parent_path());
  const int log = ::open(job.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (log < 0) throw std::system_error(errno, std::generic_category(), job.log.string());
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);  // it died before the line above
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    ::execv(program.c_str(), arguments.data());
    ::_exit(127);
  }
  const int error = errno;
  ::close(log);
  if (child < 0) throw std::system_error(error, std::generic_category(), "fork");
  return child;
}

std::string end_of(const fs::path& log) {
  constexpr std::size_t kMost = 400;
  std::string content = io::read_text(log);
  while (!content.empty() && content.back() == '\n') content.pop_back();
  const std::size_t line = content.rfind('\n') + 1;  // npos + 1 = 0
  return content.substr(std::max(line, content.size() > kMost ? content.size() - kMost : 0));
}

// The running jobs; those that are left at the end of the scope are stopped.
class Running {
 public:
  explicit Running(std::size_t jobs) : processes_(jobs, 0) {}
  ~Running() {
    for (const pid_t process : processes_) {
      if (process > 0) ::kill(process, SIGTERM);
    }
    for (const pid_t process : processes_) {
      if (process > 0) ::waitpid(process, nullptr, 0);
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void add(std::size_t job, pid_t process) { processes_[job] = process; }
  // Whether the job has ended; throws where it failed.
  bool ended(std::size_t index, const Job& job) {
    int status = 0;
    if (::waitpid(processes_[index], &status, WNOHANG) == 0) return false;
    processes_[index] = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    const std::string how =
        WIFSIGNALED(status) ? "was ended by signal " + std::to_string(WTERMSIG(status)) : "failed";
    throw std::runtime_error(job.name + " " + how + ": " + end_of(job.log) + " (" + job.log.string() + ")");
  }

 private:
  std::vector<pid_t> processes_;
};

}  // namespace

void run_jobs(const std::vector<Job>& jobs, int at_once,
              const std::function<void(const std::vector<JobState>&)>& watch) {
  std::vector<JobState> states(jobs.size(), JobState::kWaiting);
  Running running(jobs.size());
  std::size_t next = 0, done = 0;
  int active = 0;
  while (done < jobs.size()) {
    for (; next < jobs.size() && active < at_once; ++next, ++active) {
      running.add(next, start(jobs[next]));
      states[next] = JobState::kRunning;
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (states[i] != JobState::kRunning || !running.ended(i, jobs[i])) continue;
      states[i] = JobState::kDone;
      ++done;
      --active;
    }
    watch(states);
    if (done < jobs.size()) std::this_thread::sleep_for(kPause);
  }
}

}  // namespace iha::app
