#include "interpreter.h"

#include <condition_variable>
#include <mutex>

namespace ral {
namespace {

// Never destroyed: threads drop references when statics are gone.
struct Drops {
  std::mutex mutex;
  std::condition_variable none;
  int count = 0;  // that wait for the lock, or have it
  bool ended = false;
};

Drops& drops() {
  static auto* the = new Drops;
  return *the;
}

}  // namespace

void drop(PyObject* object) {
  if (Py_IsInitialized() && PyGILState_Check()) return Py_DECREF(object);
  Drops& all = drops();
  {
    std::lock_guard<std::mutex> lock(all.mutex);
    if (all.ended) return;
    all.count++;
  }
  with_interpreter([&] { Py_DECREF(object); });
  std::lock_guard<std::mutex> lock(all.mutex);
  if (--all.count == 0) all.none.notify_all();
}

void end_drops() {
  Drops& all = drops();
  std::unique_lock<std::mutex> lock(all.mutex);
  all.ended = true;
  all.none.wait(lock, [&] { return all.count == 0; });
}

}  // namespace ral
