// Killing a process that writes checkpoints, at any moment: what is left is a whole checkpoint.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "iha/train/checkpoint.h"
#include "tests/io/scratch.h"
#include "tests/train/support.h"

extern char** environ;

namespace iha::train {
namespace {

constexpr const char* kFolder = "IHA_KILL_TEST_FOLDER";

// Not a test of its own: the process that is killed. It goes on from the folder's checkpoint and saves every
// step.
TEST(Victim, SavesUntilItIsKilled) {
  const char* folder = std::getenv(kFolder);
  if (folder == nullptr) GTEST_SKIP() << "runs only as the child of Kill.LeavesAWholeCheckpoint";
  torch::manual_seed(1);
  SmallNet net;
  SmallObjective objective(net);
  TrainerSettings settings;
  settings.schedule.steps = 1'000'000;
  settings.checkpoint_every = 1;
  Trainer trainer(*net, objective, settings, folder);
  trainer.resume();
  trainer.run();
}

pid_t start_victim(const std::filesystem::path& folder) {
  ::setenv(kFolder, folder.c_str(), /*overwrite=*/1);
  std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string filter = "--gtest_filter=Victim.*";
  char* arguments[] = {program.data(), filter.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  EXPECT_EQ(posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  ::unsetenv(kFolder);
  return child;
}

void wait_for_checkpoint(const std::filesystem::path& folder,
                         const std::optional<std::filesystem::path>& other_than) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (CheckpointFolder(folder).latest() == other_than) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "the child saves nothing";
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST(Kill, LeavesAWholeCheckpoint) {
  const io::Scratch scratch;
  std::mt19937 random(3);
  int64_t step = 0;
  for (int round = 0; round < 6; ++round) {
    const auto before = CheckpointFolder(scratch.path()).latest();
    const pid_t child = start_victim(scratch.path());
    wait_for_checkpoint(scratch.path(), before);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";

    SmallNet net;
    auto optimizer = make_adamw(*net, {});
    const TrainingState state = CheckpointFolder(scratch.path()).load(*net, *optimizer);
    EXPECT_GT(state.step, step);  // it went on from where the last one was killed
    EXPECT_EQ(state.batch, state.step);
    step = state.step;
  }
}

}  // namespace
}  // namespace iha::train
