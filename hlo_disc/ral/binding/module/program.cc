#include "module/program.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "cpu.h"
#include "deferred.h"
#include "interpreter.h"
#include "library/library.h"
#include "tensors/tensor.h"
#include "threads/pool.h"

namespace nb = nanobind;

namespace ral {
namespace {

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

TensorType tensor_type(nb::handle row, const std::string& name) {
  auto dims = rows_of(row, "shape", [](nb::handle dim) { return nb::cast<std::string>(nb::str(dim)); });
  return TensorType::of(name, field<std::string>(row, "dtype"), std::move(dims));
}

EnvLayout env_layout(nb::handle env) {
  EnvLayout layout;
  layout.arena = field<int>(env, "arena");
  layout.scratch = field<int>(env, "scratch");
  layout.symbols = field<int>(env, "symbols");
  layout.outputs = field<int>(env, "outputs");
  layout.wide = field<int>(env, "wide");
  layout.asked = field<int>(env, "asked");
  layout.words = field<int>(env, "words");
  return layout;
}

Attributes attributes_of(nb::handle record, const char* table) {
  Attributes attributes;
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

std::unique_ptr<LibraryCall> library_call(nb::handle linked) {
  nb::object call = linked.attr("call");
  auto buffer = [](nb::handle row) {
    return LibraryCall::Buffer{&dtype_named(field<std::string>(row, "dtype")), field<int>(row, "rank")};
  };
  auto alias = [](nb::handle row) { return std::pair(field<int>(row, "operand"), field<int>(row, "result")); };
  constexpr std::pair<XLA_FFI_ExecutionStage, const char*> stages[] = {
      {XLA_FFI_ExecutionStage_INSTANTIATE, "instantiate"},
      {XLA_FFI_ExecutionStage_PREPARE, "prepare"},
      {XLA_FFI_ExecutionStage_INITIALIZE, "initialize"},
      {XLA_FFI_ExecutionStage_EXECUTE, "execute"}};
  std::vector<XLA_FFI_Handler*> handlers(kStages);
  for (auto [stage, name] : stages)
    handlers[stage] = reinterpret_cast<XLA_FFI_Handler*>(field<uintptr_t>(linked.attr("handlers"), name));
  return std::make_unique<LibraryCall>(field<std::string>(call, "where"), handlers, attributes_of(call, "config"),
                                       rows_of(call, "operands", buffer), rows_of(call, "results", buffer),
                                       rows_of(call, "aliases", alias), field<bool>(linked, "skip_empty"),
                                       reinterpret_cast<Function*>(field<uintptr_t>(linked, "function")));
}

// The address that a Python function returns.
const ral_module* made_modules(PyObject* function) {
  return with_interpreter([function] {
    try {
      return reinterpret_cast<const ral_module*>(nb::cast<uintptr_t>(nb::handle(function)()));
    } catch (const nb::python_error& error) {
      std::string why = nb::str(error.value()).c_str();
      throw Error(Error::kDevice, "cannot compile kernels for arrays this large: " + why);
    }
  });
}

// The arrays go to `kept`.
void add_constants(Program& program, nb::handle rows, std::vector<nb::object>& kept) {
  for (nb::handle constant : rows.attr("constants")) {
    const void* data = nullptr;
    kept.push_back(nb::steal(constant_array(constant.ptr(), &data)));
    program.constants.push_back(data);
    program.constant_bytes.push_back(nb::cast<int64_t>(kept.back().attr("nbytes")));
  }
}

// The packed forms go to `kept`. function: the address of a function by its name.
template <typename F>
void add_packs(Program& program, nb::handle rows, F function, std::vector<nb::object>& kept) {
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
    kept.push_back(nb::steal(constant_array(form.ptr(), &program.packs.back().form)));
    int64_t given = nb::cast<int64_t>(kept.back().attr("nbytes"));
    if (given != bytes)
      throw std::invalid_argument("a packed constant of " + std::to_string(given) + " bytes, not " +
                                  std::to_string(bytes));
  }
}

}  // namespace

void construct(Executable* self, nb::handle rows, const nb::callable& address, const std::vector<nb::object>& calls,
               int threads, int64_t packed_bytes, nb::object keep_alive, nb::handle driver, bool recordable,
               bool multiplies, const nb::object& wide_modules, const nb::object& make_kernel, const Gate* packs_inputs,
               const AddedModules* late_modules) {
  auto function = [&address](const char* name) { return nb::cast<uintptr_t>(address(name)); };
  Program program{};
  program.plan_fn = reinterpret_cast<ral_plan_fn>(function("plan"));
  program.main_fn = reinterpret_cast<ral_main_fn>(function("main"));
  program.env = env_layout(rows.attr("env"));
  program.inputs = rows_of(rows, "inputs", [](nb::handle x) { return tensor_type(x, field<std::string>(x, "name")); });
  for (int index : field<std::vector<int>>(rows, "unread")) program.inputs.at(index).read = false;
  program.outputs = rows_of(rows, "outputs", [](nb::handle x) { return tensor_type(x, "output"); });
  program.guards = rows_of(rows, "guards", [](nb::handle x) {
    return Guard{field<std::string>(x, "message"), static_cast<int>(nb::len(nb::object(x.attr("args")))),
                 field<bool>(x, "overflow")};
  });
  program.asked = rows_of(rows, "asked", [](nb::handle x) { return field<std::string>(x, "message"); });
  for (const nb::object& call : calls) program.calls.push_back(library_call(call));
  if (!driver.is_none())
    program.driver =
        DriverName{field<std::string>(driver, "api"), field<std::vector<std::string>>(driver, "libraries")};
  program.recordable = recordable;
  program.multiplies = multiplies;
  program.wide_modules = [function = wide_modules.ptr()] { return made_modules(function); };
  if (!make_kernel.is_none())
    program.make_kernel = [function = make_kernel.ptr()](const char* name) { return made_kernel(function, name); };
  if (packs_inputs) program.packs_inputs = packs_inputs->open;
  if (late_modules) program.late_modules = late_modules->all;
  program.workers_chosen = threads > 0;
  program.workers = threads > 0 ? threads : usable_cores();
  std::vector<nb::object> kept{keep_alive, wide_modules, make_kernel};
  add_constants(program, rows, kept);
  add_packs(program, rows, function, kept);
  std::vector<PyObject*> references;
  for (nb::object& object : kept) references.push_back(object.release().ptr());
  new (self) Executable(std::move(program), std::move(references), packed_bytes);
}

}  // namespace ral
