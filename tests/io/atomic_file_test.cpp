#include "iha/io/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/io/scratch.h"

namespace iha::io {
namespace {

using testing::ElementsAre;

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

TEST(AtomicFile, CommitReplaces) {
  const Scratch scratch;
  replace_file(scratch / "a", "old");
  AtomicFile file(scratch / "a");
  file.write("new ");
  file.write("content");
  EXPECT_EQ(read_text(scratch / "a"), "old");
  file.commit();
  EXPECT_EQ(read_text(scratch / "a"), "new content");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
}

TEST(AtomicFile, WithoutCommitNothingHappens) {
  const Scratch scratch;
  replace_file(scratch / "a", "old");
  { AtomicFile(scratch / "a").write("new"); }
  EXPECT_EQ(read_text(scratch / "a"), "old");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
}

TEST(AtomicFile, ANameWithoutFolderIsInTheCurrentOne) {
  const Scratch scratch;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(scratch.path());
  replace_file("a", "x");
  std::filesystem::current_path(before);
  EXPECT_EQ(read_text(scratch / "a"), "x");
}

TEST(AtomicFile, TwoWritersOfOneFileAreRefused) {
  const Scratch scratch;
  AtomicFile first(scratch / "a");
  first.write("first");
  EXPECT_THROW(AtomicFile second(scratch / "a"), std::system_error);
  first.commit();
  AtomicFile third(scratch / "a");  // the lock went with the commit
  EXPECT_EQ(read_text(scratch / "a"), "first");
}

TEST(AtomicFile, WhatAKillLeftDoesNotShowThrough) {
  const Scratch scratch;
  std::ofstream(scratch / ".a.tmp") << "half of something long";
  replace_file(scratch / "a", "short");
  EXPECT_EQ(read_text(scratch / "a"), "short");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
}

// Writers that meet are refused or take turns, whatever the moment at which they meet; a reader sees whole
// files only.
TEST(AtomicFile, WritersSideBySideNeverMix) {
  const Scratch scratch;
  constexpr std::size_t kSize = 300;
  replace_file(scratch / "a", std::string(kSize, '-'));
  std::atomic<int> at_work{4}, committed{0}, other_errors{0};
  std::vector<std::thread> writers;
  for (char letter = 'a'; letter < 'e'; ++letter) {
    writers.emplace_back([&, letter] {
      for (int round = 0; round < 500; ++round) {
        try {
          replace_file(scratch / "a", std::string(kSize, letter));
          ++committed;
        } catch (const std::system_error& error) {
          other_errors += error.code().value() != EWOULDBLOCK;
        }
      }
      --at_work;
    });
  }
  int torn = 0;
  while (at_work > 0) {
    const std::string content = read_text(scratch / "a");
    torn += content.size() != kSize || content.find_first_not_of(content[0]) != std::string::npos;
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(other_errors, 0);
  EXPECT_GT(committed, 0);
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
}

TEST(AtomicFile, ErrorsNameTheFile) {
  const Scratch scratch;
  try {
    replace_file(scratch / "absent/a", "x");
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("absent/.a.tmp: No such file"));
  }
  EXPECT_THROW(read_file(scratch / "absent"), std::system_error);
  EXPECT_THROW(read_file(scratch.path()), std::system_error);
}

// The disk is full, as far as a limit on the size of files can act it.
TEST(AtomicFile, AWriteThatFailsKeepsTheOldFile) {
  const Scratch scratch;
  replace_file(scratch / "a", "old");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(replace_file(scratch / "a", std::string(5000, 'x')), std::system_error);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(read_text(scratch / "a"), "old");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
}

TEST(AtomicFile, ReadsWhatHasNoSize) {
  EXPECT_FALSE(read_text("/proc/self/status").empty());
}

// Writes `size` bytes of one letter after the other, over and over, in small pieces.
[[noreturn]] void write_for_ever(const std::filesystem::path& path, std::size_t size) {
  for (char letter = 'a';; letter = letter == 'z' ? 'a' : static_cast<char>(letter + 1)) {
    AtomicFile file(path);
    for (std::size_t written = 0; written < size; written += 4096) file.write(std::string(4096, letter));
    file.commit();
  }
}

TEST(AtomicFile, AKillAtAnyMomentLeavesAWholeFile) {
  const Scratch scratch;
  constexpr std::size_t kSize = 64 * 4096;
  std::set<char> letters;
  int litter = 0;
  for (int round = 0; round < 40; ++round) {
    replace_file(scratch / "a", std::string(kSize, 'A'));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_for_ever(scratch / "a", kSize);
    std::this_thread::sleep_for(std::chrono::microseconds(200 + 397 * round));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const std::string content = read_text(scratch / "a");
    ASSERT_EQ(content.size(), kSize);
    ASSERT_EQ(content.find_first_not_of(content[0]), std::string::npos);
    letters.insert(content[0]);
    litter += names_in(scratch.path()).size() > 1;
  }
  EXPECT_GT(letters.size(), 1u) << "the child never finished a file: the test shows nothing";
  EXPECT_GT(litter, 0) << "no kill fell into a write: the test shows nothing";
  replace_file(scratch / "a", "after");
  EXPECT_EQ(read_text(scratch / "a"), "after");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
}

}  // namespace
}  // namespace iha::io
