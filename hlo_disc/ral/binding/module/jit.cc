// Native parts of `hlo_disc.jit` and of results in frameworks' types.
#include <initializer_list>

#include "executable.h"
#include "jit/fast_path.h"
#include "jit/repeated.h"
#include "jit/watch.h"
#include "module/module.h"
#include "tensors/tensor.h"

namespace nb = nanobind;

namespace ral {
namespace {

// The functions in them may refer to the function whose tables they are.
int traverse_tables(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto* tables = nb::inst_ptr<FastTables>(self);
  for (const nb::object* object : std::initializer_list<const nb::object*>{
           &tables->unchanged, &tables->by_jax, &tables->plain, &tables->paths, &tables->flatten})
    Py_VISIT(object->ptr());
  return 0;
}

int clear_tables(PyObject* self) {
  if (nb::inst_ready(self)) *nb::inst_ptr<FastTables>(self) = {};
  return 0;
}

PyType_Slot tables_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_tables)},
                              {Py_tp_clear, reinterpret_cast<void*>(clear_tables)},
                              {0, nullptr}};

}  // namespace

void add_jit(nb::module_& m) {
  m.def("watch",
        [](nb::object function, nb::tuple was, nb::object holder, nb::str name, nb::object value) {
    return owned(make_watch(function.ptr(), was.ptr(), holder.ptr(), name.ptr(), value.ptr()));
  }, nb::arg("function"), nb::arg("was"), nb::arg("holder"), nb::arg("name"), nb::arg("value").none(),
        "A function: whether function() still returns the very objects in `was`, and holder.name still is `value`.");
  m.def("fast_path",
        [](nb::str name, nb::object renew) {
    return nb::cpp_function(
        [name, renew](nb::object slow) { return owned(make_fast_path(slow.ptr(), name.ptr(), renew.ptr())); });
  }, nb::arg("name"), nb::arg("renew"),
        "Decorates a method, which is called where there is no fast path: tables are the attribute of this name, those "
        "for other settings renew(self), or None.");
  m.def("path",
        [](nb::object run, nb::object unflatten, nb::tuple taken, nb::tuple given) {
    return owned(make_path(run.ptr(), unflatten.ptr(), taken.ptr(), given.ptr()));
  }, nb::arg("run"), nb::arg("unflatten").none(), nb::arg("taken"), nb::arg("given"),
        "A function: runs a program on a list of arrays. taken, given: `ConversionAt`s, which convert arguments "
        "for `run` and its results.");
  m.def("wrapper",
        [](nb::object put, nb::object type_of, nb::object where, nb::object devices, nb::object otherwise) {
    return owned(make_wrapper(put.ptr(), type_of.ptr(), where.ptr(), devices.ptr(), otherwise.ptr()));
  }, nb::arg("put"), nb::arg("type_of"), nb::arg("where"), nb::arg("devices"), nb::arg("otherwise"),
        "An adapter's `wrap`: put(type, where, [array], devices, False), with what type_of(shape, dtype, weak) gives, "
        "and `otherwise` for what is like a committed array or where `put` raises RuntimeError.");
  m.def("repeated",
        [](nb::handle program, nb::type_object kind, int often, nb::callable compile) {
    return owned(make_repeated(program.ptr(), nb::cast<const Executable*>(program), kind.ptr(), often, compile.ptr()));
  }, nb::arg("program"), nb::arg("kind"), nb::arg("often"), nb::arg("compile"),
        "A function that calls an executable; with arguments of types that came so often, all arrays of `kind`, what "
        "compile(arguments) gave for the first of them, unless that is None.");
  nb::class_<FastTables>(m, "FastTables", nb::type_slots(tables_slots))
      .def(nb::init<nb::callable, nb::dict, nb::dict, nb::dict, nb::object>(), nb::kw_only(), nb::arg("unchanged"),
           nb::arg("by_jax"), nb::arg("plain"), nb::arg("paths"), nb::arg("flatten").none());
}

}  // namespace ral
