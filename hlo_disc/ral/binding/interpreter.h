// Python's lock: who takes it, who leaves it for a while, and what becomes of those who ask for it too late.
//
// Up to 3.13 Python ends a thread that asks for the lock when the interpreter is going, by unwinding it (pthread_exit):
// no C++ frame that calls Python expects that, and the process aborts. From 3.14 on such a thread sleeps for good.
// Here it does so with all versions.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace ral {

template <typename F>
auto or_sleep(F f) -> decltype(f()) {
  try {
    return f();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}

// f(), which may call Python, on any thread.
template <typename F>
auto with_interpreter(F f) -> decltype(f()) {
  return or_sleep([&] {
    struct Taken {
      PyGILState_STATE state = PyGILState_Ensure();
      ~Taken() {
        if (PyGILState_Check()) PyGILState_Release(state);  // not where the thread is being ended
      }
    } taken;
    return f();
  });
}

// Without the lock while it lives, on a thread that has it.
class WithoutInterpreter {
 public:
  WithoutInterpreter() : state_(PyEval_SaveThread()) {}
  WithoutInterpreter(const WithoutInterpreter&) = delete;
  ~WithoutInterpreter() {
    or_sleep([this] { PyEval_RestoreThread(state_); });
  }

 private:
  PyThreadState* state_;
};

// Gives up a reference on any thread, at any time. Others wait for threads of XLA: they must not sleep for good.
void drop(PyObject* object);
// From now on what threads without the lock drop stays where it is. Called without the lock, before the interpreter goes.
void end_drops();

}  // namespace ral
