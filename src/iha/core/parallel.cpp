#include "iha/core/parallel.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace iha {
namespace {

// Set while the thread runs a task of any pool: a pool called from there would wait for itself.
thread_local bool inside_task = false;

void run_serially(int64_t tasks, const ParallelFor::Body& body) {
  for (int64_t task = 0; task < tasks; ++task) body(task, 0);
}

// Threads that sleep between calls. One call at a time; the calling thread is worker 0.
class ThreadPool {
 public:
  // Where a thread cannot be started, the destructor ends those that were (this constructor delegates for
  // it).
  explicit ThreadPool(int workers) : ThreadPool() {
    for (int worker = 1; worker < workers; ++worker) threads_.emplace_back([this, worker] { serve(worker); });
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  void run(int64_t tasks, const ParallelFor::Body& body) {
    if (inside_task) return run_serially(tasks, body);
    std::lock_guard one_call(call_);
    {
      std::lock_guard lock(mutex_);
      body_ = &body;
      tasks_ = tasks;
      next_ = 0;
      error_ = nullptr;
      busy_ = static_cast<int>(threads_.size());
      ++generation_;
    }
    wake_.notify_all();
    take_tasks(0);
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return busy_ == 0; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  ThreadPool() = default;

  void serve(int worker) {
    uint64_t seen = 0;
    while (true) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return closing_ || generation_ != seen; });
        if (closing_) return;
        seen = generation_;
      }
      take_tasks(worker);
      std::lock_guard lock(mutex_);
      if (--busy_ == 0) finished_.notify_one();
    }
  }

  void take_tasks(int worker) {
    inside_task = true;
    for (int64_t task = next_++; task < tasks_; task = next_++) {
      try {
        (*body_)(task, worker);
      } catch (...) {
        std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        next_ = tasks_;
      }
    }
    inside_task = false;
  }

  std::mutex call_, mutex_;
  std::condition_variable wake_, finished_;
  std::vector<std::thread> threads_;
  std::atomic<int64_t> next_{0};
  int64_t tasks_ = 0;
  const ParallelFor::Body* body_ = nullptr;
  std::exception_ptr error_;
  int busy_ = 0;
  uint64_t generation_ = 0;
  bool closing_ = false;
};

}  // namespace

ParallelFor serial() {
  return {1, run_serially};
}

ParallelFor thread_pool(int threads) {
  if (threads <= 0) threads = static_cast<int>(std::thread::hardware_concurrency());
  if (threads <= 1) return serial();
  auto pool = std::make_shared<ThreadPool>(threads);
  return {threads, [pool](int64_t tasks, const ParallelFor::Body& body) { pool->run(tasks, body); }};
}

}  // namespace iha
