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
#include "capsule.h"
#include "code.h"
#include "cpu.h"
#include "digest.h"
#include "executable.h"
#include "fast_path.h"
#include "ffi.h"
#include "fft.h"
#include "floats.h"
#include "gpu.h"
#include "interpreter.h"
#include "lapack.h"
#include "library.h"
#include "memory.h"
#include "pool.h"
#include "recording.h"
#include "repeated.h"
#include "symbols.h"
#include "tasks.h"
#include "tensor.h"
#include "tensorflow.h"
#include "watch.h"

namespace nb = nanobind;
using ral::Executable;

namespace {

ral::TensorType tensor_type(const std::string& name, const std::string& dtype, nb::handle shape) {
  std::vector<std::string> dims;
  for (nb::handle dim : nb::iter(shape)) dims.push_back(nb::cast<std::string>(nb::str(dim)));
  return ral::TensorType::of(name, dtype, std::move(dims));
}

// What a call would return for arguments of these types: their types and the bytes of temporary memory in an XLA program.
// Raises what the call would.
std::tuple<std::vector<std::tuple<std::string, std::vector<int64_t>>>, int64_t> infer(
    const Executable& self, const std::vector<std::tuple<std::string, std::vector<int64_t>>>& arguments) {
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
  std::vector<std::tuple<std::string, std::vector<int64_t>>> results;
  auto sizes = env.begin() + program.env.outputs;
  for (const ral::TensorType& output : program.outputs) {
    if (!ral::is_known(&*sizes, output.rank())) {
      throw ral::Error(ral::Error::kArgument, "the sizes of the result " + output.str() +
                                                  " depend on data: jax.jit cannot call this executable");
    }
    results.emplace_back(output.dtype->name, std::vector<int64_t>(sizes, sizes + output.rank()));
    sizes += output.rank();
  }
  return {results, ral::ffi_temporary_bytes(self, env.data())};
}

using Input = std::tuple<std::string, std::string, nb::object>;
using Output = std::tuple<std::string, nb::object>;
using PackSpec =
    std::tuple<std::string, int, int64_t, uintptr_t, nb::object>;  // the last: of a constant, its packed form
using GuardSpec = std::tuple<std::string, int, bool>;
using AttributeSpec = std::tuple<std::string, std::string, std::string, nb::object>;  // name, kind, dtype, content
using BufferSpec = std::tuple<std::string, int>;                                      // dtype, rank
using EnvSpec = std::tuple<int, int, int, int, int, int, int>;  // the fields of EnvLayout
using CallSpec = std::tuple<std::string, std::vector<uintptr_t>, std::vector<AttributeSpec>, std::vector<BufferSpec>,
                            std::vector<BufferSpec>, std::vector<std::pair<int, int>>, bool, uintptr_t>;

ral::Attributes attributes_of(const std::vector<AttributeSpec>& specs) {
  ral::Attributes attributes;
  for (const auto& [name, kind, dtype, content] : specs) {
    if (kind == "dictionary") {
      attributes.add_dictionary(name, attributes_of(nb::cast<std::vector<AttributeSpec>>(content)));
    } else {
      nb::bytes bytes = nb::cast<nb::bytes>(content);
      attributes.add(name, kind, dtype, std::string(bytes.c_str(), bytes.size()));
    }
  }
  return attributes;
}

std::unique_ptr<ral::LibraryCall> library_call(const CallSpec& spec) {
  const auto& [where, addresses, attributes, operands, results, aliases, skip_empty, function] = spec;
  std::vector<XLA_FFI_Handler*> handlers;
  for (uintptr_t address : addresses) handlers.push_back(reinterpret_cast<XLA_FFI_Handler*>(address));
  auto buffers = [](const std::vector<BufferSpec>& specs) {
    std::vector<ral::LibraryCall::Buffer> out;
    for (const auto& [dtype, rank] : specs) out.push_back({&ral::dtype_named(dtype), rank});
    return out;
  };
  return std::make_unique<ral::LibraryCall>(where, handlers, attributes_of(attributes), buffers(operands),
                                            buffers(results), aliases, skip_empty,
                                            reinterpret_cast<ral::Function*>(function));
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

void construct(Executable* self, uintptr_t plan, uintptr_t main, const EnvSpec& env, const std::vector<Input>& inputs,
               const std::vector<Output>& outputs, const std::vector<nb::object>& constants,
               const std::vector<PackSpec>& packs, const std::vector<GuardSpec>& guards,
               const std::vector<std::string>& asked, const std::vector<CallSpec>& calls, int threads,
               int64_t packed_bytes, nb::object keep_alive, const std::vector<int>& unread,
               const std::vector<std::string>& driver, bool recordable, bool multiplies,
               const nb::object& wide_modules) {
  ral::Program program{};
  program.plan_fn = reinterpret_cast<ral_plan_fn>(plan);
  program.main_fn = reinterpret_cast<ral_main_fn>(main);
  auto [arena, scratch, symbols, output_sizes, wide, unmet, words] = env;
  program.env = {arena, scratch, symbols, output_sizes, wide, unmet, words};
  for (const auto& [name, dtype, shape] : inputs) program.inputs.push_back(tensor_type(name, dtype, shape));
  for (int index : unread) program.inputs.at(index).read = false;
  for (const auto& [dtype, shape] : outputs) program.outputs.push_back(tensor_type("output", dtype, shape));
  for (const auto& [message, args, overflow] : guards) program.guards.push_back({message, args, overflow});
  program.asked = asked;
  for (const CallSpec& call : calls) program.calls.push_back(library_call(call));
  program.driver = driver;
  program.recordable = recordable;
  program.multiplies = multiplies;
  program.wide_modules = [function = wide_modules.ptr()] { return made_modules(function); };
  program.workers_chosen = threads > 0;
  program.workers = threads > 0 ? threads : ral::usable_cores();
  std::vector<nb::object> kept{keep_alive, wide_modules};
  for (const nb::object& constant : constants) {
    const void* data = nullptr;
    kept.push_back(nb::steal(ral::constant_array(constant.ptr(), &data)));
    program.constants.push_back(data);
    program.constant_bytes.push_back(nb::cast<int64_t>(kept.back().attr("nbytes")));
  }
  for (const auto& [kind, index, bytes, address, form] : packs) {
    if (kind != "input" && kind != "constant")
      throw std::invalid_argument("a pack is of an input or a constant, not of " + kind);
    program.packs.push_back({kind == "constant", index, bytes, reinterpret_cast<ral_main_fn>(address)});
    if (kind == "input") continue;
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

using LaunchTuple = std::tuple<uintptr_t, int64_t, int64_t, int64_t>;

std::tuple<int64_t, int64_t, std::vector<LaunchTuple>> record(Executable& self, nb::tuple arguments) {
  ral::Recording recording;
  PyObject* results = self.call(&PyTuple_GET_ITEM(arguments.ptr(), 0), PyTuple_GET_SIZE(arguments.ptr()));
  recording.stop();
  if (!results) throw nb::python_error();
  Py_DECREF(results);
  std::vector<LaunchTuple> launches;
  for (const ral::Launch& x : recording.launches) launches.emplace_back(x.function, x.number, x.start, x.end);
  return {recording.start, recording.end, launches};
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
  m.def("cpu_model", &ral::cpu_model, "What tells kinds of CPUs apart for which compilers schedule differently.");
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
  m.def("fast_path", [](nb::object slow) {
    PyObject* made = ral::make_fast_path(slow.ptr());
    if (!made) throw nb::python_error();
    return nb::steal(made);
  }, nb::arg("slow"), "The method `__call__` of a JitFunction, which calls `slow` where there is no fast path.");
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
  m.def("held_handler", [] {
    return std::make_tuple(nb::capsule(ral::held_handler()), nb::capsule(ral::held_type_id()),
                           nb::capsule(ral::held_type_info()));
  }, "The XLA FFI handler of programs that keep their executables, and its state's type id and type info.");

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
  nb::class_<ral::CallCount>(m, "CallCount")
      .def_prop_ro("value", [](const ral::CallCount& self) {
    return self.value.load();
  }).def_prop_ro("in_jit", [](const ral::CallCount& self) { return self.in_jit.load(); });

  nb::class_<Executable>(m, "Executable", nb::type_slots(executable_slots), nb::is_weak_referenceable())
      .def("__init__", construct, nb::arg("plan"), nb::arg("main"), nb::kw_only(), nb::arg("env"), nb::arg("inputs"),
           nb::arg("outputs"), nb::arg("constants"), nb::arg("packs"), nb::arg("guards"), nb::arg("asked"),
           nb::arg("calls"), nb::arg("threads"), nb::arg("packed_bytes"), nb::arg("keep_alive").none(),
           nb::arg("unread") = std::vector<int>(), nb::arg("driver") = std::vector<std::string>(),
           nb::arg("recordable") = false, nb::arg("multiplies") = false, nb::arg("wide_modules") = nb::none())
      .def("record", record, nb::arg("arguments"),
           "(start, end, launches) of a call: nanoseconds, and (address of a kernel or 0, blocks or the number of the "
           "library call, start, end) of each. Code that is linked with `recorded_symbols` has launches.")
      .def("plan", &Executable::plan, nb::arg("dims"),
           "env for these sizes of all inputs, concatenated. Raises ShapeError for a broken guard.")
      .def("unmet", &Executable::unmet, nb::arg("dims"),
           "Which asked conditions these sizes of all inputs break, a bit each, but for those that may be broken so. "
           "Raises ShapeError for sizes that the program cannot have.")
      .def("accept", &Executable::accept, nb::arg("unmet"),
           "Lets calls break exactly these asked conditions from now on. False when there is no room to note it.")
      .def("infer", infer, nb::arg("arguments"),
           "([(dtype, shape) of each result], bytes of temporary memory inside an XLA program) for arguments [(dtype, "
           "shape)...].")
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
