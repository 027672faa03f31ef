// Functions of the runtime beside calls: memory, threads, linked code, and what Python is slow at.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unordered_map.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "cpu.h"
#include "digest.h"
#include "gpu/gpu.h"
#include "interpreter.h"
#include "link/code.h"
#include "link/recording.h"
#include "link/symbols.h"
#include "memory/memory.h"
#include "module/module.h"
#include "program/packed.h"
#include "tensors/tensor.h"
#include "threads/floats.h"
#include "threads/pool.h"
#include "threads/tasks.h"

namespace nb = nanobind;

namespace ral {
namespace {

nb::object packed_constant(uintptr_t function, const nb::object& constant, int64_t bytes) {
  const void* data = nullptr;
  nb::object array = nb::steal(constant_array(constant.ptr(), &data));
  Block packed = [&] {
    WithoutInterpreter released;
    return pack_constant(reinterpret_cast<ral_main_fn>(function), data, bytes);
  }();
  return nb::steal(bytes_array(std::move(packed)));
}

uint64_t digest_of(const nb::object& bytes) {
  Py_buffer view;
  if (PyObject_GetBuffer(bytes.ptr(), &view, PyBUF_SIMPLE) < 0) throw nb::python_error();
  uint64_t found;
  {
    WithoutInterpreter released;
    found = digest(view.buf, view.len);
  }
  PyBuffer_Release(&view);
  return found;
}

// Whether any argument is a dict, a list or a tuple. In Python this would take longer than a short call.
bool nested(nb::handle arguments) {
  constexpr auto kNests = Py_TPFLAGS_DICT_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_TUPLE_SUBCLASS;
  for (Py_ssize_t i = 0; i < PyTuple_Size(arguments.ptr()); i++) {
    if (PyType_GetFlags(Py_TYPE(PyTuple_GET_ITEM(arguments.ptr(), i))) & kNests) return true;
  }
  return false;
}

struct EnteredFloats {
  std::optional<OwnFloats> floats;
};

void add_memory(nb::module_& m) {
  m.def("live_bytes", &live_bytes, "Bytes that the runtime has handed out and not got back.");
  m.def("device_blocks", &device_blocks, "The number of blocks of GPUs' memory that the runtime has now.");
  m.def("kept_bytes", &kept_bytes, "Bytes of released blocks that are kept for reuse.");
  m.def("trim", [] {
    trim();
    trim_gpus();
  }, "Gives the memory that is kept for reuse back to the system, and to GPUs' drivers.");
  m.def("fail_next_allocation", &fail_next_allocation, nb::arg("n") = 1,
        "Makes the n-th allocation from now fail, for tests; 0 cancels.");
}

void add_threads(nb::module_& m) {
  m.def("cpu_features", &cpu_features, "Features that generated code may need and this machine has, by LLVM's names.");
  m.def("usable_cores", &usable_cores, "Cores that this process may use.");
  m.def("pool_threads", &pool_threads, "Threads that the standalone pool runs now.");
  m.def("stop_pool",
        [] {
    stop_tasks();
    stop_pool();
  }, nb::call_guard<nb::gil_scoped_release>(),
        "Ends the pool's threads; later calls compute on their caller's thread.");
  m.def("end_drops", &end_drops, nb::call_guard<nb::gil_scoped_release>(),
        "Ends the dropping of references that other threads give up: the interpreter is going.");
  nb::class_<EnteredFloats>(m, "OwnFloats")
      .def(nb::init<>())
      .def("__enter__", [](EnteredFloats& self) {
    self.floats.emplace();
  }).def("__exit__", [](EnteredFloats& self, nb::args) { self.floats.reset(); });
}

void add_code(nb::module_& m) {
  m.def("fill", [](uintptr_t slot, uintptr_t address) {
    __atomic_store_n(reinterpret_cast<uintptr_t*>(slot), address, __ATOMIC_RELEASE);
  }, nb::arg("slot"), nb::arg("address"), "Stores the address of a deferred kernel, which launches find from then on.");
  m.def("symbols", &runtime_symbols, "Addresses of the functions of ral.h that generated code calls.");
  m.def("recorded_symbols", &recorded_symbols, "Addresses of those that note launches, where there are such.");
  nb::class_<Code>(m, "Code")
      .def("__init__",
           [](Code* self, nb::bytes object, const std::unordered_map<std::string, uintptr_t>& symbols) {
    new (self) Code(object.c_str(), object.size(), symbols);
  }, nb::arg("object"), nb::arg("symbols"),
           "Links an ELF object, with functions at the addresses in `symbols`. Raises ValueError for what is none, and "
           "for a function that is neither there nor in this process.")
      .def("address", &Code::address, nb::arg("name"), "The address of a function of the object; 0 for none.")
      .def("functions", &Code::functions, "The addresses of all functions by name, internal ones too.")
      .def("close", &Code::close, "Frees its memory: nothing of it may run any more.");
}

}  // namespace

void add_runtime(nb::module_& m) {
  add_memory(m);
  add_threads(m);
  add_code(m);
  m.def("pack", packed_constant, nb::arg("function"), nb::arg("constant"), nb::arg("bytes"),
        "The packed form of a constant, so many bytes, which the function at this address makes.");
  m.def("digest", digest_of, nb::arg("bytes"), "A checksum of 64 bits of what has contiguous memory, as bytes have.");
  m.def("nested", nested, nb::arg("arguments"), "Whether there is a dict, a list or a tuple in a tuple of arguments.");
}

}  // namespace ral
