#include "deferred.h"

#include <string>

#include "callback.h"
#include "interpreter.h"

namespace ral {

void* made_kernel(PyObject* function, const char* name) {
  return with_interpreter([=] {
    PyObject* made = PyObject_CallFunction(function, "s", name);
    void* address = made ? PyLong_AsVoidPtr(made) : nullptr;
    Py_XDECREF(made);
    if (address) return address;
    if (!PyErr_Occurred()) throw Error(Error::kCall, std::string(name) + " is at no address");
    throw taken_exception();
  });
}

}  // namespace ral
