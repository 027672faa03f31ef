#include "threads/tasks.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "threads/floats.h"
#include "threads/signals.h"

namespace ral {
namespace {

class TaskThreads {
 public:
  void schedule(int most, Task task, void* data) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      if (!stopped_ && (idle_ > queue_.size() || grow(most) || !threads_.empty())) {
        queue_.emplace_back(task, data);
        ready_.notify_one();
        return;
      }
    }
    task(data);
  }

  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  bool grow(int most) {
    if (static_cast<int>(threads_.size()) >= most) return false;
    SignalsBlocked blocked;
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      return false;  // the system gives no more threads: those that there are do the work, or the caller
    }
    return true;
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      idle_++;
      ready_.wait(lock, [this] { return stopped_ || !queue_.empty(); });
      idle_--;
      if (queue_.empty()) return;
      auto [task, data] = queue_.front();
      queue_.pop_front();
      lock.unlock();
      run_in_own_floats(task, data);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::pair<Task, void*>> queue_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool stopped_ = false;
};

// As the pool of the kernels: never destroyed, and a forked child starts over with a new one.
std::atomic<TaskThreads*> the_threads{nullptr};

TaskThreads& task_threads() {
  TaskThreads* current = the_threads.load(std::memory_order_acquire);
  if (current) return *current;
  static const int registered = pthread_atfork(nullptr, nullptr, [] { the_threads.store(nullptr); });
  (void)registered;
  auto* fresh = new TaskThreads;
  if (the_threads.compare_exchange_strong(current, fresh)) return *fresh;
  delete fresh;
  return *current;
}

}  // namespace

void run_in_own_floats(Task task, void* data) {
  OwnFloats floats;
  task(data);
}

void StandaloneTasks::schedule(Task task, void* data) {
  if (workers_ < 2) return task(data);
  task_threads().schedule(workers_, task, data);
}

void stop_tasks() { task_threads().stop(); }

}  // namespace ral
