// The Python module _ral: the runtime's counters and the class Executable.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unordered_map.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>

#include "callback.h"
#include "contexts/ffi.h"
#include "contexts/tensorflow.h"
#include "cpu.h"
#include "deferred.h"
#include "digest.h"
#include "executable.h"
#include "gpu/gpu.h"
#include "interpreter.h"
#include "jit/fast_path.h"
#include "jit/repeated.h"
#include "jit/watch.h"
#include "library/fft/fft.h"
#include "library/lapack/lapack.h"
#include "library/library.h"
#include "link/code.h"
#include "link/recording.h"
#include "link/symbols.h"
#include "memory/memory.h"
#include "tensors/capsule.h"
#include "tensors/tensor.h"
#include "threads/floats.h"
#include "threads/pool.h"
#include "threads/tasks.h"

namespace nb = nanobind;
using ral::Executable;

namespace {

using Type = std::pair<std::string, std::vector<int64_t>>;  // dtype and shape

// The types of a call's results, and the bytes of temporary memory that it takes in an XLA program.
struct Inferred {
  std::vector<Type> types;
  int64_t temporary;
};

// Raises what a call with arguments of these types would.
Inferred infer(const Executable& self, const std::vector<Type>& arguments) {
  const ral::Program& program = self.program();
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
  for (const ral::TensorType& output : program.outputs) {
    if (!ral::is_known(&*sizes, output.rank())) {
      throw ral::Error(ral::Error::kArgument, "the sizes of the result " + output.str() +
                                                  " depend on data: jax.jit cannot call this executable");
    }
    results.emplace_back(output.dtype->name, std::vector<int64_t>(sizes, sizes + output.rank()));
    sizes += output.rank();
  }
  return {std::move(results), ral::ffi_temporary_bytes(self, env.data())};
}

// A field of a record: rows of `program.py` and `abi.py`, which are read by the names of their fields.
template <typename T>
T field(nb::handle record, const char* name) {
  try {
    return nb::cast<T>(record.attr(name));
  } catch (const nb::cast_error&) {
    throw nb::type_error((std::string("the field ") + name + " has another type").c_str());
  }
}

// f of each row of a table.
template <typename T>
auto rows_of(nb::handle record, const char* table, T f) {
  std::vector<decltype(f(record))> rows;
  for (nb::handle row : record.attr(table)) rows.push_back(f(row));
  return rows;
}

ral::TensorType tensor_type(nb::handle row, const std::string& name) {
  auto dims = rows_of(row, "shape", [](nb::handle dim) { return nb::cast<std::string>(nb::str(dim)); });
  return ral::TensorType::of(name, field<std::string>(row, "dtype"), std::move(dims));
}

ral::EnvLayout env_layout(nb::handle env) {
  ral::EnvLayout layout;
  layout.arena = field<int>(env, "arena");
  layout.scratch = field<int>(env, "scratch");
  layout.symbols = field<int>(env, "symbols");
  layout.outputs = field<int>(env, "outputs");
  layout.wide = field<int>(env, "wide");
  layout.asked = field<int>(env, "asked");
  layout.words = field<int>(env, "words");
  return layout;
}

ral::Attributes attributes_of(nb::handle record, const char* table) {
  ral::Attributes attributes;
  for (nb::handle row : record.attr(table)) {
    auto name = field<std::string>(row, "name"), kind = field<std::string>(row, "kind");
    auto content = field<std::string>(row, "text");
    if (kind == "dictionary") {
      attributes.add_dictionary(name, attributes_of(row, "entries"));
      continue;
    }
    if (kind != "string") {
      auto bytes = nb::cast<nb::bytes>(nb::handle(reinterpret_cast<PyObject*>(&PyBytes_Type)).attr("fromhex")(content));
      content.assign(bytes.c_str(), bytes.size());
    }
    attributes.add(name, kind, field<std::string>(row, "dtype"), content);
  }
  return attributes;
}

std::unique_ptr<ral::LibraryCall> library_call(nb::handle linked) {
  nb::object call = linked.attr("call");
  auto buffer = [](nb::handle row) {
    return ral::LibraryCall::Buffer{&ral::dtype_named(field<std::string>(row, "dtype")), field<int>(row, "rank")};
  };
  auto alias = [](nb::handle row) { return std::pair(field<int>(row, "operand"), field<int>(row, "result")); };
  constexpr std::pair<XLA_FFI_ExecutionStage, const char*> stages[] = {
      {XLA_FFI_ExecutionStage_INSTANTIATE, "instantiate"},
      {XLA_FFI_ExecutionStage_PREPARE, "prepare"},
      {XLA_FFI_ExecutionStage_INITIALIZE, "initialize"},
      {XLA_FFI_ExecutionStage_EXECUTE, "execute"}};
  std::vector<XLA_FFI_Handler*> handlers(ral::kStages);
  for (auto [stage, name] : stages)
    handlers[stage] = reinterpret_cast<XLA_FFI_Handler*>(field<uintptr_t>(linked.attr("handlers"), name));
  return std::make_unique<ral::LibraryCall>(field<std::string>(call, "where"), handlers, attributes_of(call, "config"),
                                            rows_of(call, "operands", buffer), rows_of(call, "results", buffer),
                                            rows_of(call, "aliases", alias), field<bool>(linked, "skip_empty"),
                                            reinterpret_cast<ral::Function*>(field<uintptr_t>(linked, "function")));
}

// What a Python function returns, as an address.
const ral_module* made_modules(PyObject* function) {
  return ral::with_interpreter([function] {
    try {
      return reinterpret_cast<const ral_module*>(nb::cast<uintptr_t>(nb::handle(function)()));
    } catch (const nb::python_error& error) {
      std::string why = nb::str(error.value()).c_str();
      throw ral::Error(ral::Error::kDevice, "cannot compile kernels for arrays this large: " + why);
    }
  });
}

// Python opens it, and calls in other threads look.
struct Gate {
  std::shared_ptr<std::atomic<bool>> open = std::make_shared<std::atomic<bool>>(false);
  void let() { open->store(true); }
};

// Python adds to them, and calls in other threads look.
struct LateModules {
  std::shared_ptr<ral::LateModules> all = std::make_shared<ral::LateModules>();
  void add(uintptr_t modules) { all->add(reinterpret_cast<const ral_module*>(modules)); }
};

void construct(Executable* self, nb::handle rows, const nb::callable& address, const std::vector<nb::object>& calls,
               int threads, int64_t packed_bytes, nb::object keep_alive, nb::handle driver, bool recordable,
               bool multiplies, const nb::object& wide_modules, const nb::object& make_kernel, const Gate* packs_inputs,
               const LateModules* late_modules) {
  auto function = [&address](const char* name) { return nb::cast<uintptr_t>(address(name)); };
  ral::Program program{};
  program.plan_fn = reinterpret_cast<ral_plan_fn>(function("plan"));
  program.main_fn = reinterpret_cast<ral_main_fn>(function("main"));
  program.env = env_layout(rows.attr("env"));
  program.inputs = rows_of(rows, "inputs", [](nb::handle x) { return tensor_type(x, field<std::string>(x, "name")); });
  for (int index : field<std::vector<int>>(rows, "unread")) program.inputs.at(index).read = false;
  program.outputs = rows_of(rows, "outputs", [](nb::handle x) { return tensor_type(x, "output"); });
  program.guards = rows_of(rows, "guards", [](nb::handle x) {
    return ral::Guard{field<std::string>(x, "message"), static_cast<int>(nb::len(nb::object(x.attr("args")))),
                      field<bool>(x, "overflow")};
  });
  program.asked = rows_of(rows, "asked", [](nb::handle x) { return field<std::string>(x, "message"); });
  for (const nb::object& call : calls) program.calls.push_back(library_call(call));
  if (!driver.is_none())
    program.driver =
        ral::DriverName{field<std::string>(driver, "api"), field<std::vector<std::string>>(driver, "libraries")};
  program.recordable = recordable;
  program.multiplies = multiplies;
  program.wide_modules = [function = wide_modules.ptr()] { return made_modules(function); };
  if (!make_kernel.is_none())
    program.make_kernel = [function = make_kernel.ptr()](const char* name) { return ral::made_kernel(function, name); };
  if (packs_inputs) program.packs_inputs = packs_inputs->open;
  if (late_modules) program.late_modules = late_modules->all;
  program.workers_chosen = threads > 0;
  program.workers = threads > 0 ? threads : ral::usable_cores();
  std::vector<nb::object> kept{keep_alive, wide_modules, make_kernel};
  for (nb::handle constant : rows.attr("constants")) {
    const void* data = nullptr;
    kept.push_back(nb::steal(ral::constant_array(constant.ptr(), &data)));
    program.constants.push_back(data);
    program.constant_bytes.push_back(nb::cast<int64_t>(kept.back().attr("nbytes")));
  }
  auto forms = field<std::vector<nb::object>>(rows, "forms");
  for (nb::handle pack : rows.attr("packs")) {
    auto kind = field<std::string>(pack, "kind");
    auto bytes = field<int64_t>(pack, "size");
    if (kind != "input" && kind != "constant")
      throw std::invalid_argument("a pack is of an input or a constant, not of " + kind);
    auto code = reinterpret_cast<ral_main_fn>(function(field<std::string>(pack, "function").c_str()));
    program.packs.push_back({kind == "constant", field<int>(pack, "number"), bytes, code});
    if (kind == "input") continue;
    const nb::object& form = forms.at(program.packs.size() - 1);
    kept.push_back(nb::steal(ral::constant_array(form.ptr(), &program.packs.back().form)));
    int64_t given = nb::cast<int64_t>(kept.back().attr("nbytes"));
    if (given != bytes)
      throw std::invalid_argument("a packed constant of " + std::to_string(given) + " bytes, not " +
                                  std::to_string(bytes));
  }
  std::vector<PyObject*> references;
  for (nb::object& object : kept) references.push_back(object.release().ptr());
  new (self) Executable(std::move(program), std::move(references), packed_bytes);
}

nb::object pack(uintptr_t function, const nb::object& constant, int64_t bytes) {
  const void* data = nullptr;
  nb::object array = nb::steal(ral::constant_array(constant.ptr(), &data));
  ral::Block packed = [&] {
    ral::WithoutInterpreter released;
    return ral::pack_constant(reinterpret_cast<ral_main_fn>(function), data, bytes);
  }();
  return nb::steal(ral::bytes_array(std::move(packed)));
}

uint64_t digest(const nb::object& bytes) {
  Py_buffer view;
  if (PyObject_GetBuffer(bytes.ptr(), &view, PyBUF_SIMPLE) < 0) throw nb::python_error();
  uint64_t found;
  {
    ral::WithoutInterpreter released;
    found = ral::digest(view.buf, view.len);
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

nb::tuple sizes_of(const ral::DeviceTensor& tensor) {
  nb::list sizes;
  for (int64_t size : tensor.sizes) sizes.append(size);
  return nb::tuple(sizes);
}

nb::object dlpack_of(const ral::DeviceTensor& tensor, std::optional<int64_t> stream,
                     std::optional<std::pair<int, int>> wanted, std::optional<bool> copy) {
  if (wanted && *wanted != std::pair(tensor.device_type, 0))
    throw nb::buffer_error("the result is on GPU 0, and goes to no other device; take it there first");
  if (copy.value_or(false)) throw nb::buffer_error("the result is handed over without a copy; copy it then");
  PyObject* capsule = ral::device_capsule(tensor, stream);
  if (!capsule) throw nb::python_error();
  return nb::steal(capsule);
}

struct EnteredFloats {
  std::optional<ral::OwnFloats> floats;
};

// What a recorded call did.
struct Recorded {
  int64_t start, end;
  std::vector<ral::Launch> launches;
};

Recorded record(Executable& self, nb::tuple arguments) {
  ral::Recording recording;
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

// The functions in them may refer to the function whose tables they are.
int traverse_tables(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto* tables = nb::inst_ptr<ral::FastTables>(self);
  for (const nb::object* object : std::initializer_list<const nb::object*>{
           &tables->unchanged, &tables->by_jax, &tables->plain, &tables->paths, &tables->flatten})
    Py_VISIT(object->ptr());
  return 0;
}

int clear_tables(PyObject* self) {
  if (nb::inst_ready(self)) *nb::inst_ptr<ral::FastTables>(self) = {};
  return 0;
}

PyType_Slot tables_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_tables)},
                              {Py_tp_clear, reinterpret_cast<void*>(clear_tables)},
                              {0, nullptr}};
PyType_Slot executable_slots[] = {{Py_tp_call, reinterpret_cast<void*>(call_slot)},
                                  {Py_tp_traverse, reinterpret_cast<void*>(traverse_slot)},
                                  {Py_tp_clear, reinterpret_cast<void*>(clear_slot)},
                                  {0, nullptr}};

}  // namespace

PyObject* ral::device_tensor_object(ral::DeviceTensor tensor) { return nb::cast(std::move(tensor)).release().ptr(); }

NB_MODULE(_ral, m) {
  nb::set_leak_warnings(false);  // executables in module globals live until the process ends
  if (!ral::initialize_tensors() || !ral::initialize_fast_path() || !ral::initialize_repeated())
    throw nb::python_error();
  nb::register_exception_translator([](const std::exception_ptr& exception, void*) {
    try {
      std::rethrow_exception(exception);
    } catch (const ral::Error& error) {
      ral::raise(error);
    } catch (const ral::Raised&) {
    }
  });

  m.def("fill", [](uintptr_t slot, uintptr_t address) {
    __atomic_store_n(reinterpret_cast<uintptr_t*>(slot), address, __ATOMIC_RELEASE);
  }, nb::arg("slot"), nb::arg("address"), "Stores the address of a deferred kernel, which launches find from then on.");
  m.def("symbols", &ral::runtime_symbols, "Addresses of the functions of ral.h that generated code calls.");
  m.def("recorded_symbols", &ral::recorded_symbols, "The same for those that note launches, where there are such.");
  m.def("live_bytes", &ral::live_bytes, "Bytes that the runtime has handed out and not got back.");
  m.def("device_blocks", &ral::device_blocks, "How many blocks of GPUs' memory the runtime has now.");
  m.def("kept_bytes", &ral::kept_bytes, "Bytes of released blocks that are kept for reuse.");
  m.def("trim", [] {
    ral::trim();
    ral::trim_gpus();
  }, "Gives the memory that is kept for reuse back to the system, and to GPUs' drivers.");
  m.def("fail_next_allocation", &ral::fail_next_allocation, nb::arg("n") = 1,
        "Makes the n-th allocation from now fail, for tests; 0 cancels.");
  m.def("cpu_features", &ral::cpu_features,
        "Features that generated code may need and this machine has, by LLVM's names.");
  m.def("usable_cores", &ral::usable_cores, "Cores that this process may use.");
  m.def("pool_threads", &ral::pool_threads, "Threads that the standalone pool runs now.");
  m.def("stop_pool",
        [] {
    ral::stop_tasks();
    ral::stop_pool();
  }, nb::call_guard<nb::gil_scoped_release>(),
        "Ends the pool's threads; later calls compute on their caller's thread.");
  m.def("end_drops", &ral::end_drops, nb::call_guard<nb::gil_scoped_release>(),
        "From now on references that other threads give up are not dropped any more: the interpreter is going.");

  m.def("pack", pack, nb::arg("function"), nb::arg("constant"), nb::arg("bytes"),
        "The packed form of a constant, so many bytes, which the function at this address makes.");
  m.def("digest", digest, nb::arg("bytes"), "A checksum of 64 bits of what has contiguous memory, as bytes have.");
  m.def("nested", nested, nb::arg("arguments"), "Whether there is a dict, a list or a tuple in a tuple of arguments.");
  m.def("own_handlers", [] {
    nb::dict handlers;
    handlers["hlo_disc.callback"] = reinterpret_cast<uintptr_t>(&ral::callback_handler);
    handlers["hlo_disc.fft"] = reinterpret_cast<uintptr_t>(&ral::fft_handler);
    return handlers;
  }, "Addresses of the runtime's own XLA FFI handlers.");
  m.def("lapack_handlers", [] {
    nb::dict handlers;
    for (auto [name, handler] : ral::lapack_handlers()) handlers[name.c_str()] = reinterpret_cast<uintptr_t>(handler);
    return handlers;
  }, "Addresses of those over a function of LAPACK's.");
  m.def("register_state_type", [](int64_t type_id, uintptr_t deleter) {
    ral::register_state_type(type_id, reinterpret_cast<void (*)(void*)>(deleter));
  }, nb::arg("type_id"), nb::arg("deleter"), "Tells how states of an XLA FFI handler's type are destroyed.");
  m.def("watch",
        [](nb::object function, nb::tuple was, nb::object holder, nb::str name, nb::object value) {
    PyObject* watch = ral::make_watch(function.ptr(), was.ptr(), holder.ptr(), name.ptr(), value.ptr());
    if (!watch) throw nb::python_error();
    return nb::steal(watch);
  }, nb::arg("function"), nb::arg("was"), nb::arg("holder"), nb::arg("name"), nb::arg("value").none(),
        "A function: whether function() still returns the very objects in `was`, and holder.name still is `value`.");
  m.def("fast_path",
        [](nb::str name, nb::object renew) {
    return nb::cpp_function([name, renew](nb::object slow) {
      PyObject* made = ral::make_fast_path(slow.ptr(), name.ptr(), renew.ptr());
      if (!made) throw nb::python_error();
      return nb::steal(made);
    });
  }, nb::arg("name"), nb::arg("renew"),
        "Decorates a method, which is called where there is no fast path: tables are the attribute of this name, those "
        "for other settings renew(self), or None.");
  m.def("path",
        [](nb::object run, nb::object unflatten, nb::tuple taken, nb::tuple given) {
    PyObject* made = ral::make_path(run.ptr(), unflatten.ptr(), taken.ptr(), given.ptr());
    if (!made) throw nb::python_error();
    return nb::steal(made);
  }, nb::arg("run"), nb::arg("unflatten").none(), nb::arg("taken"), nb::arg("given"),
        "A function: runs a program on a list of arrays. taken, given: (index, function), what makes of arguments what "
        "`run` takes, and of its results what the call gives back.");
  m.def("wrapper",
        [](nb::object put, nb::object type_of, nb::object where, nb::object devices, nb::object otherwise) {
    PyObject* made = ral::make_wrapper(put.ptr(), type_of.ptr(), where.ptr(), devices.ptr(), otherwise.ptr());
    if (!made) throw nb::python_error();
    return nb::steal(made);
  }, nb::arg("put"), nb::arg("type_of"), nb::arg("where"), nb::arg("devices"), nb::arg("otherwise"),
        "An adapter's `wrap`: put(type, where, [array], devices, False), with what type_of(shape, dtype, weak) gives, "
        "and "
        "`otherwise` for what is like a committed array or where `put` raises RuntimeError.");
  m.def("repeated",
        [](nb::handle program, nb::type_object kind, int often, nb::callable compile) {
    PyObject* made =
        ral::make_repeated(program.ptr(), nb::cast<const Executable*>(program), kind.ptr(), often, compile.ptr());
    if (!made) throw nb::python_error();
    return nb::steal(made);
  }, nb::arg("program"), nb::arg("kind"), nb::arg("often"), nb::arg("compile"),
        "A function that calls an executable; with arguments of types that came so often, all arrays of `kind`, what "
        "compile(arguments) gave for the first of them, unless that is None.");
  m.def("register_tensorflow_op",
        [](const std::string& path, nb::callable load) { return ral::register_tensorflow_op(path, load.ptr()); },
        nb::arg("path"), nb::arg("load"),
        "Registers the op HloDiscCall with the TensorFlow in this library, which is loaded. Empty, or what is wrong.");
  m.def(
      "register_tensorflow_ffi", &ral::register_tensorflow_ffi, nb::arg("path"),
      "Registers the handler hlo_disc_alone with the XLA of the TensorFlow in this library. Empty, or what is wrong.");
  m.def("ffi_handler", [] { return nb::capsule(ral::ffi_handler()); }, "The XLA FFI handler.");
  m.def("device_ffi_handler", [] { return nb::capsule(ral::device_ffi_handler()); },
        "The XLA FFI handler for executables of GPUs.");
  m.def("recordable_ffi_handler", [] { return nb::capsule(ral::recordable_ffi_handler()); },
        "The same for those that are recordable, for the stages initialize and execute.");
  m.def("held_handler", [] { return nb::capsule(ral::held_handler()); },
        "The XLA FFI handler of programs that keep their executables.");
  m.def("held_type_id", [] { return nb::capsule(ral::held_type_id()); }, "The type id of that handler's state.");
  m.def("held_type_info", [] { return nb::capsule(ral::held_type_info()); }, "Its type info.");

  nb::class_<ral::FastTables>(m, "FastTables", nb::type_slots(tables_slots))
      .def(nb::init<nb::callable, nb::dict, nb::dict, nb::dict, nb::object>(), nb::kw_only(), nb::arg("unchanged"),
           nb::arg("by_jax"), nb::arg("plain"), nb::arg("paths"), nb::arg("flatten").none());
  nb::class_<EnteredFloats>(m, "OwnFloats")
      .def(nb::init<>())
      .def("__enter__", [](EnteredFloats& self) {
    self.floats.emplace();
  }).def("__exit__", [](EnteredFloats& self, nb::args) { self.floats.reset(); });
  nb::class_<ral::Code>(m, "Code")
      .def("__init__",
           [](ral::Code* self, nb::bytes object, const std::unordered_map<std::string, uintptr_t>& symbols) {
    new (self) ral::Code(object.c_str(), object.size(), symbols);
  }, nb::arg("object"), nb::arg("symbols"),
           "Links an ELF object, with functions at the addresses in `symbols`. Raises ValueError for what is none, and "
           "for a function that is neither there nor in this process.")
      .def("address", &ral::Code::address, nb::arg("name"), "Of a function of the object; 0 for none.")
      .def("functions", &ral::Code::functions, "The addresses of all functions by name, internal ones too.")
      .def("close", &ral::Code::close, "Frees its memory: nothing of it may run any more.");

  nb::class_<ral::DeviceTensor>(m, "DeviceTensor")
      .def("__dlpack_device__", [](const ral::DeviceTensor& self) { return std::make_tuple(self.device_type, 0); })
      .def("__dlpack__",
           [](const ral::DeviceTensor& self, std::optional<int64_t> stream, nb::handle,
              std::optional<std::pair<int, int>> device,
              std::optional<bool> copy) { return dlpack_of(self, stream, device, copy); },
           nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(),
           nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none())
      .def_prop_ro("shape", sizes_of)
      .def_prop_ro("dtype", [](const ral::DeviceTensor& self) { return self.dtype->name; });
  nb::class_<ral::Launch>(m, "Launch")
      .def_ro("function", &ral::Launch::function)
      .def_ro("number", &ral::Launch::number)
      .def_ro("start", &ral::Launch::start)
      .def_ro("end", &ral::Launch::end);
  nb::class_<Recorded>(m, "Recorded")
      .def_ro("start", &Recorded::start)
      .def_ro("end", &Recorded::end)
      .def_ro("launches", &Recorded::launches);
  nb::class_<Inferred>(m, "Inferred").def_ro("types", &Inferred::types).def_ro("temporary", &Inferred::temporary);
  nb::class_<ral::CallCount>(m, "CallCount")
      .def_prop_ro("value", [](const ral::CallCount& self) {
    return self.value.load();
  }).def_prop_ro("in_jit", [](const ral::CallCount& self) { return self.in_jit.load(); });

  nb::class_<Gate>(m, "Gate", "What is closed until it is opened.").def(nb::init<>()).def("open", &Gate::let);

  nb::class_<LateModules>(m, "LateModules", "Modules of kernels that are made when their program is linked already.")
      .def(nb::init<>())
      .def("add", &LateModules::add, nb::arg("modules"));

  nb::class_<Executable>(m, "Executable", nb::type_slots(executable_slots), nb::is_weak_referenceable())
      .def("__init__", construct, nb::arg("program"), nb::arg("address"), nb::kw_only(), nb::arg("calls"),
           nb::arg("threads"), nb::arg("packed_bytes"), nb::arg("keep_alive").none(), nb::arg("driver") = nb::none(),
           nb::arg("recordable") = false, nb::arg("multiplies") = false, nb::arg("wide_modules") = nb::none(),
           nb::arg("make_kernel") = nb::none(), nb::arg("packs_inputs") = nb::none(),
           nb::arg("late_modules") = nb::none())
      .def("record", record, nb::arg("arguments"),
           "What a call did, and when. Code that is linked with `recorded_symbols` has launches.")
      .def("plan", &Executable::plan, nb::arg("dims"),
           "env for these sizes of all inputs, concatenated. Raises ShapeError for a broken guard.")
      .def("unmet", &Executable::unmet, nb::arg("dims"),
           "Which asked conditions these sizes of all inputs break, a bit each, but for those that may be broken so. "
           "Raises ShapeError for sizes that the program cannot have.")
      .def("accept", &Executable::accept, nb::arg("unmet"),
           "Lets calls break exactly these asked conditions from now on. False when there is no room to note it.")
      .def("infer", infer, nb::arg("arguments"), "What a call with arguments [(dtype, shape)...] would return.")
      .def("publish",
           [](nb::handle self, int64_t content) {
    return ral::publish(self.ptr(), nb::cast<const Executable*>(self), content);
  }, nb::arg("content"),
           "Keeps the executable for the life of the process; returns its number for the attribute of the FFI handler. "
           "content: a hash of it, at least 0.")
      .def("offer",
           [](nb::handle self, int64_t content) {
    return ral::offer(self.ptr(), nb::cast<const Executable*>(self), content);
  }, nb::arg("content"),
           "Lets XLA programs that are compiled until `withdraw` keep the executable. Returns its number for the "
           "attribute of their handler. content: a hash of it, at least 0.")
      .def_static("withdraw", &ral::withdraw, nb::arg("number"), "Ends what `offer` began.")
      .def("set_weak", &Executable::set_weak, nb::arg("inputs"), nb::arg("outputs"),
           "Says which inputs and outputs have a framework's weak type; from then on an array whose type is not so is "
           "refused.")
      .def("packed_bytes", &Executable::packed_bytes, "Bytes of packed constants and inputs that are kept now.")
      .def_prop_ro("recordable", [](const Executable& self) { return self.program().recordable; })
      .def_prop_ro("count", &Executable::count, "The calls that came back with results.")
      .def_prop_ro("workers", [](const Executable& self) { return self.program().workers; });
}
