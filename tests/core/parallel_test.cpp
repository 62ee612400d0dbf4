#include "iha/core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace iha {
namespace {

class Workers : public ::testing::TestWithParam<int> {};

TEST_P(Workers, RunEveryTaskOnce) {
  const ParallelFor parallel = thread_pool(GetParam());
  EXPECT_EQ(parallel.workers, GetParam());
  for (const int64_t tasks : {0, 1, 2, 3, 7, 1000}) {
    std::vector<std::atomic<int>> runs(tasks);
    parallel.run(tasks, [&](int64_t task, int worker) {
      ASSERT_TRUE(0 <= worker && worker < GetParam());
      ++runs[task];
    });
    for (const auto& count : runs) ASSERT_EQ(count, 1);
  }
}

// Scratch memory indexed by the worker needs no lock: under the thread sanitizer a shared index would show.
TEST_P(Workers, NeverShareAnIndexAtATime) {
  const ParallelFor parallel = thread_pool(GetParam());
  std::vector<std::atomic<int>> inside(GetParam());
  std::vector<int64_t> sums(GetParam());
  parallel.run(2000, [&](int64_t task, int worker) {
    EXPECT_EQ(inside[worker]++, 0);
    sums[worker] += task;
    --inside[worker];
  });
  int64_t total = 0;
  for (const int64_t sum : sums) total += sum;
  EXPECT_EQ(total, 2000 * 1999 / 2);
}

TEST_P(Workers, PassOnAnExceptionAndWorkAgain) {
  const ParallelFor parallel = thread_pool(GetParam());
  for (int repeat = 0; repeat < 50; ++repeat) {
    EXPECT_THROW(parallel.run(100,
                              [](int64_t task, int) {
                                if (task == 13) throw std::runtime_error("task 13");
                              }),
                 std::runtime_error);
    std::atomic<int> runs = 0;
    parallel.run(100, [&](int64_t, int) { ++runs; });
    EXPECT_EQ(runs, 100);
  }
}

// A task that uses the pool it runs on must not wait for itself.
TEST_P(Workers, MayCallTheirOwnPool) {
  const ParallelFor parallel = thread_pool(GetParam());
  std::atomic<int> runs = 0;
  parallel.run(5, [&](int64_t, int) { parallel.run(7, [&](int64_t, int) { ++runs; }); });
  EXPECT_EQ(runs, 35);
  std::atomic<int> after = 0;
  parallel.run(5, [&](int64_t, int) { ++after; });
  EXPECT_EQ(after, 5);
}

TEST_P(Workers, ServeSeveralCallersOneAfterTheOther) {
  const ParallelFor parallel = thread_pool(GetParam());
  std::atomic<int> runs = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 20; ++repeat) parallel.run(10, [&](int64_t, int) { ++runs; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(runs, 3 * 20 * 10);
}

INSTANTIATE_TEST_SUITE_P(Counts, Workers, ::testing::Values(1, 2, 3, 7));

TEST(ThreadPool, UsesItsThreads) {
  const ParallelFor parallel = thread_pool(2);
  std::atomic<int> started = 0;
  // Both tasks wait for each other, so one thread alone would never end.
  parallel.run(2, [&](int64_t, int) {
    ++started;
    while (started < 2) std::this_thread::yield();
  });
  EXPECT_EQ(started, 2);
}

TEST(ThreadPool, LivesAsLongAsItsCopies) {
  ParallelFor copy;
  {
    const ParallelFor parallel = thread_pool(3);
    copy = parallel;
  }
  std::atomic<int> runs = 0;
  copy.run(10, [&](int64_t, int) { ++runs; });
  EXPECT_EQ(runs, 10);
}

TEST(ThreadPool, TakesTheMachineByDefault) {
  EXPECT_GE(thread_pool().workers, 1);
}

TEST(Serial, RunsInOrderOnTheCaller) {
  std::vector<int64_t> order;
  const auto caller = std::this_thread::get_id();
  serial().run(4, [&](int64_t task, int worker) {
    EXPECT_EQ(worker, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(task);
  });
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace iha
