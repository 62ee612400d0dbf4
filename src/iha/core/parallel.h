// How torch-free code runs work on several threads: the caller brings the threads. Under torch that is
// torch's own pool; alone it is `thread_pool` or `serial`. Results never depend on the number of workers.
#pragma once

#include <cstdint>
#include <functional>

namespace iha {

struct ParallelFor {
  // body(task, worker): task in [0, tasks), each exactly once; worker in [0, workers), never two tasks at
  // once with the same worker, so that it can index scratch memory.
  using Body = std::function<void(int64_t task, int worker)>;

  int workers = 1;  // at most so many tasks run at a time
  // Returns when all tasks have run. An exception of a task is rethrown here (one of them, if several).
  std::function<void(int64_t tasks, const Body& body)> run;
};

// All tasks in order on the calling thread.
ParallelFor serial();

// `threads` std::threads that live as long as a copy of the returned value does; tasks are taken from an
// atomic counter. threads = 0: one per hardware thread. Called from inside a task it runs serially.
ParallelFor thread_pool(int threads = 0);

}  // namespace iha
