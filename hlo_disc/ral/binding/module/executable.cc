// The Python class Executable, and those that it takes and returns.
#include "executable.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "contexts/ffi.h"
#include "link/recording.h"
#include "module/module.h"
#include "module/program.h"

namespace nb = nanobind;

namespace ral {
namespace {

using Type = std::pair<std::string, std::vector<int64_t>>;  // dtype and shape

// The types of a call's results, and the bytes of temporary memory that it takes in an XLA program.
struct Inferred {
  std::vector<Type> types;
  int64_t temporary;
};

// Raises what a call with arguments of these types would.
Inferred infer(const Executable& self, const std::vector<Type>& arguments) {
  const Program& program = self.program();
  self.check_count(static_cast<Py_ssize_t>(arguments.size()));
  std::vector<int64_t> dims;
  for (size_t i = 0; i < arguments.size(); i++) {
    const auto& [dtype, shape] = arguments[i];
    program.check_dtype(static_cast<int>(i), dtype);
    program.check_shape(static_cast<int>(i), shape.data(), static_cast<int>(shape.size()));
    dims.insert(dims.end(), shape.begin(), shape.end());
  }
  std::vector<int64_t> env = self.plan(dims);
  std::vector<Type> results;
  auto sizes = env.begin() + program.env.outputs;
  for (const TensorType& output : program.outputs) {
    if (!is_known(&*sizes, output.rank())) {
      throw Error(Error::kArgument,
                  "the sizes of the result " + output.str() + " depend on data: jax.jit cannot call this executable");
    }
    results.emplace_back(output.dtype->name, std::vector<int64_t>(sizes, sizes + output.rank()));
    sizes += output.rank();
  }
  return {std::move(results), ffi_temporary_bytes(self, env.data())};
}

// The times of a recorded call, and of its launches.
struct Recorded {
  int64_t start, end;
  std::vector<Launch> launches;
};

Recorded record(Executable& self, nb::tuple arguments) {
  Recording recording;
  PyObject* results = self.call(&PyTuple_GET_ITEM(arguments.ptr(), 0), PyTuple_GET_SIZE(arguments.ptr()));
  recording.stop();
  if (!results) throw nb::python_error();
  Py_DECREF(results);
  return {recording.start, recording.end, std::move(recording.launches)};
}

PyObject* call_slot(PyObject* self, PyObject* args, PyObject* kwargs) {
  if (kwargs && PyDict_GET_SIZE(kwargs)) {
    PyErr_SetString(PyExc_TypeError, "an executable takes positional arguments only");
    return nullptr;
  }
  return nb::inst_ptr<Executable>(self)->call(&PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args));
}

// A callback may refer to the function that the executable was compiled for: the garbage collector sees the circle.
int traverse_slot(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (PyObject* object : nb::inst_ptr<Executable>(self)->kept()) Py_VISIT(object);
  return 0;
}

int clear_slot(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Executable>(self)->forget_kept();
  return 0;
}

PyType_Slot executable_slots[] = {{Py_tp_call, reinterpret_cast<void*>(call_slot)},
                                  {Py_tp_traverse, reinterpret_cast<void*>(traverse_slot)},
                                  {Py_tp_clear, reinterpret_cast<void*>(clear_slot)},
                                  {0, nullptr}};

void add_records(nb::module_& m) {
  nb::class_<Launch>(m, "Launch")
      .def_ro("function", &Launch::function)
      .def_ro("number", &Launch::number)
      .def_ro("start", &Launch::start)
      .def_ro("end", &Launch::end);
  nb::class_<Recorded>(m, "Recorded")
      .def_ro("start", &Recorded::start)
      .def_ro("end", &Recorded::end)
      .def_ro("launches", &Recorded::launches);
  nb::class_<Inferred>(m, "Inferred").def_ro("types", &Inferred::types).def_ro("temporary", &Inferred::temporary);
  nb::class_<CallCount>(m, "CallCount").def_prop_ro("value", [](const CallCount& self) {
    return self.value.load();
  }).def_prop_ro("in_jit", [](const CallCount& self) { return self.in_jit.load(); });
}

void add_late_parts(nb::module_& m) {
  nb::class_<Gate>(m, "Gate", "A gate that is closed until it is opened.").def(nb::init<>()).def("open", &Gate::let);
  nb::class_<AddedModules>(m, "LateModules", "Modules of kernels that are made when their program is linked already.")
      .def(nb::init<>())
      .def("add", &AddedModules::add, nb::arg("modules"));
}

}  // namespace

void add_executable(nb::module_& m) {
  add_records(m);
  add_late_parts(m);
  nb::class_<Executable>(m, "Executable", nb::type_slots(executable_slots), nb::is_weak_referenceable())
      .def("__init__", construct, nb::arg("program"), nb::arg("address"), nb::kw_only(), nb::arg("calls"),
           nb::arg("threads"), nb::arg("packed_bytes"), nb::arg("keep_alive").none(), nb::arg("driver") = nb::none(),
           nb::arg("recordable") = false, nb::arg("multiplies") = false, nb::arg("wide_modules") = nb::none(),
           nb::arg("make_kernel") = nb::none(), nb::arg("packs_inputs") = nb::none(),
           nb::arg("late_modules") = nb::none())
      .def("record", record, nb::arg("arguments"),
           "Times of a call and its launches. Code that is linked with `recorded_symbols` has launches.")
      .def("plan", &Executable::plan, nb::arg("dims"),
           "env for these sizes of all inputs, concatenated. Raises ShapeError for a broken guard.")
      .def(
          "unmet", &Executable::unmet, nb::arg("dims"),
          "The asked conditions that these sizes of all inputs break, a bit each, but for those that may be broken so. "
          "Raises ShapeError for sizes that the program cannot have.")
      .def("accept", &Executable::accept, nb::arg("unmet"),
           "Lets calls break exactly these asked conditions from now on. False when there is no room to note it.")
      .def("infer", infer, nb::arg("arguments"),
           "The types of what a call with arguments [(dtype, shape)...] would return.")
      .def("publish",
           [](nb::handle self, int64_t content) {
    return publish(self.ptr(), nb::cast<const Executable*>(self), content);
  }, nb::arg("content"),
           "Keeps the executable for the life of the process; returns its number for the attribute of the FFI handler. "
           "content: a hash of it, at least 0.")
      .def("offer",
           [](nb::handle self, int64_t content) {
    return offer(self.ptr(), nb::cast<const Executable*>(self), content);
  }, nb::arg("content"),
           "Lets XLA programs that are compiled until `withdraw` keep the executable. Returns its number for the "
           "attribute of their handler. content: a hash of it, at least 0.")
      .def_static("withdraw", &withdraw, nb::arg("number"), "Ends what `offer` began.")
      .def("set_weak", &Executable::set_weak, nb::arg("inputs"), nb::arg("outputs"),
           "Says which inputs and outputs have a framework's weak type; from then on an array whose type is not so is "
           "refused.")
      .def("packed_bytes", &Executable::packed_bytes, "Bytes of packed constants and inputs that are kept now.")
      .def_prop_ro("recordable", [](const Executable& self) { return self.program().recordable; })
      .def_prop_ro("count", &Executable::count, "The calls that came back with results.")
      .def_prop_ro("workers", [](const Executable& self) { return self.program().workers; });
}

}  // namespace ral
