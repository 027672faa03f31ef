// Tasks that library handlers hand to threads of their own accord. They may be long and may wait for each other's
// results, so they do not run on the pool of the kernels, whose launches end when all their blocks have.
#pragma once

#include <cstdint>

namespace ral {

using Task = void (*)(void* data);

class Tasks {
 public:
  virtual ~Tasks() = default;
  // Runs the task on some thread, perhaps on the caller's before this returns.
  virtual void schedule(Task task, void* data) = 0;
  // Threads that work on tasks.
  virtual int64_t threads() const = 0;
};

// As a task runs that another thread than its scheduler's has.
void run_in_own_floats(Task task, void* data);

// Tasks of the standalone context for `workers` workers: threads made when first needed, shared by all calls.
class StandaloneTasks : public Tasks {
 public:
  explicit StandaloneTasks(int workers) : workers_(workers) {}
  void schedule(Task task, void* data) override;
  int64_t threads() const override { return workers_; }

 private:
  int workers_;
};

// Finishes all tasks and joins the threads; tasks after that run on their caller. For the interpreter's exit.
void stop_tasks();

}  // namespace ral
