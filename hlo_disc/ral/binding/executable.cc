#include "executable.h"

#include "gpu/device_call.h"
#include "interpreter.h"
#include "library/library.h"
#include "tensors/tensor.h"

namespace ral {
namespace {

std::string plural(Py_ssize_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

void raise(const Error& error) {
  if (error.cause) {
    auto* exception = static_cast<PyObject*>(error.cause.get());
    return PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
  }
  PyObject* module = PyImport_ImportModule("hlo_disc.errors");
  PyObject* type = module ? PyObject_GetAttrString(module, name_of(error.which)) : nullptr;
  if (type) PyErr_SetString(type, error.what());
  Py_XDECREF(type);
  Py_XDECREF(module);
}

Executable::Executable(Program program, std::vector<PyObject*> kept, int64_t pack_limit)
    : program_(std::move(program)),
      kept_(std::move(kept)),
      pack_limit_(pack_limit),
      cache_(std::make_shared<PackCache>()),
      checked_(std::make_unique<Checked>(program_.inputs.size())) {
  try {
    program_.finish();
    for (auto& call : program_.calls) call->instantiate();
  } catch (...) {
    for (PyObject* object : kept_) Py_DECREF(object);
    throw;
  }
}

Executable::~Executable() {
  on_device_.reset();
  forget_kept();
}

OnDevice& Executable::on_device() const {
  std::lock_guard<std::mutex> lock(device_mutex_);
  if (!on_device_) on_device_ = std::make_unique<OnDevice>(Gpu::find(*program_.driver, 0), program_);
  return *on_device_;
}

void Executable::forget_kept() {
  for (PyObject* object : std::exchange(kept_, {})) Py_DECREF(object);
}

void Executable::check_count(Py_ssize_t count) const {
  Py_ssize_t expected = static_cast<Py_ssize_t>(program_.inputs.size());
  if (count == expected) return;
  std::string message = plural(count, "argument") + " given, but " + plural(expected, "argument") +
                        (expected == 1 ? " is" : " are") + " expected";
  if (count < expected)
    message += "; the first missing one is '" + program_.inputs[count].name + "': " + program_.inputs[count].str();
  throw Error(Error::kArgument, message);
}

void Executable::request_packs(Call& call, const Arguments& arguments) const {
  if (pack_limit_ <= 0 || !packs_inputs()) return;
  call.packs.reserve(program_.packs.size());
  for (size_t k = 0; k < program_.packs.size(); k++) {
    if (program_.packs[k].of_constant) continue;
    PyObject* array = arguments.immutable(program_.packs[k].index);
    if (array) call.packs.push_back({static_cast<int>(k), cache_->find(array, static_cast<int>(k))});
  }
}

PyObject* Executable::call(PyObject* const* objects, Py_ssize_t count) {
  try {
    check_count(count);
    Call call(program_);
    Arguments arguments(call, *checked_);
    int64_t* sizes = call.dims.data();
    for (int i = 0; i < count; i++) {
      arguments.add(i, objects[i], sizes);
      sizes += program_.inputs[i].rank();
    }
    if (!program_.packs.empty()) request_packs(call, arguments);
    if (call.workers > 1 && !program_.workers_chosen && !program_.driver)
      call.workers = arguments.workers(call.workers);
    {
      WithoutInterpreter released;
      if (!program_.driver) {
        call.run(pack_limit_);
      } else {
        run_on_device(call, on_device());
      }
    }
    for (PackRequest& request : call.packs) {
      if (request.changed)
        cache_->keep(arguments.immutable(program_.packs[request.pack].index), request.pack,
                     std::move(request.form.packed));
    }
    PyObject* tuple = results(call, arguments);
    count_->value.fetch_add(1, std::memory_order_relaxed);
    return tuple;
  } catch (const Error& error) {
    raise(error);
  } catch (const Raised&) {
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

void Executable::set_weak(const std::vector<bool>& inputs, const std::vector<bool>& outputs) {
  auto set = [](std::vector<TensorType>& types, const std::vector<bool>& weak) {
    if (weak.size() != types.size())
      throw std::invalid_argument(std::to_string(weak.size()) + " weak types for " + std::to_string(types.size()));
    for (size_t i = 0; i < weak.size(); i++) types[i].weak = weak[i] ? TensorType::kWeak : TensorType::kStrong;
  };
  set(program_.inputs, inputs);
  set(program_.outputs, outputs);
}

void Executable::check_dims(const std::vector<int64_t>& dims) const {
  if (static_cast<int>(dims.size()) != program_.dims_size) {
    throw Error(Error::kArgument, plural(static_cast<Py_ssize_t>(dims.size()), "size") +
                                      " given, but the inputs have " + plural(program_.dims_size, "dimension"));
  }
  const int64_t* sizes = dims.data();
  for (size_t i = 0; i < program_.inputs.size(); i++) {
    program_.check_shape(static_cast<int>(i), sizes, program_.inputs[i].rank());
    sizes += program_.inputs[i].rank();
  }
}

uint64_t Executable::unmet(const std::vector<int64_t>& dims) const {
  check_dims(dims);
  uint64_t unmet = program_.unmet(dims.data());
  return program_.accepted->has(unmet) ? 0 : unmet;
}

std::vector<int64_t> Executable::plan(const std::vector<int64_t>& dims) const {
  check_dims(dims);
  std::vector<int64_t> env(program_.env.words);
  program_.plan(dims.data(), env.data());
  return env;
}

int64_t Executable::packed_bytes() const {
  int64_t bytes = cache_->bytes();
  for (const Pack& pack : program_.packs) bytes += pack.of_constant ? pack.bytes : 0;
  return bytes;
}

}  // namespace ral
