#include "jit/repeated.h"

#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace ral {
namespace {

constexpr size_t kMost = 8;  // so many sorts of calls are counted or compiled

PyObject *type_name, *committed_name;
PyTypeObject* repeated_type;

// Calls with arguments of the same types.
struct Sort {
  ~Sort() {
    for (PyObject* type : types) Py_DECREF(type);
    Py_XDECREF(run);
  }
  bool committed = false;  // of the first argument: the program's results are what it is
  std::vector<PyObject*> types;
  int calls = 0;
  PyObject* run = nullptr;
};

struct Repeated {
  PyObject_HEAD vectorcallfunc call;
  PyObject *program, *kind, *compile;
  const Executable* executable;
  int often;
  std::vector<std::shared_ptr<Sort>>* sorts;  // the last that came first
};

// Whether they are the same; no type of the first is left then that is equal and another object. Runs Python.
bool is_of(Sort& sort, const Sort& other) {
  if (sort.committed != other.committed || sort.types.size() != other.types.size()) return false;
  for (size_t i = 0; i < other.types.size(); i++) {
    if (sort.types[i] == other.types[i]) continue;
    PyObject* known = Py_NewRef(sort.types[i]);
    int equal = PyObject_RichCompareBool(known, other.types[i], Py_EQ);
    Py_DECREF(known);
    if (equal != 1) {
      PyErr_Clear();
      return false;
    }
    Py_SETREF(sort.types[i], Py_NewRef(other.types[i]));
  }
  return true;
}

// The sort of these arguments, null for what is not counted. Clears exceptions.
std::shared_ptr<Sort> sort_of(const Repeated& self, PyObject* const* args, Py_ssize_t count) {
  auto sort = std::make_shared<Sort>();
  sort->types.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; i++) {
    if (reinterpret_cast<PyObject*>(Py_TYPE(args[i])) != self.kind) return nullptr;
    PyObject* type = PyObject_GetAttr(args[i], type_name);
    if (!type) break;
    sort->types.push_back(type);
  }
  PyObject* committed = count && !PyErr_Occurred() ? PyObject_GetAttr(args[0], committed_name) : nullptr;
  PyErr_Clear();
  if (!committed) return nullptr;
  sort->committed = committed == Py_True;
  Py_DECREF(committed);
  return sort;
}

// The one of the sorts that is the same, which becomes the first of them; null where there is none.
std::shared_ptr<Sort> known(std::vector<std::shared_ptr<Sort>>& sorts, const Sort& sort) {
  auto before = sorts;  // to compare types is Python's, and other threads may run meanwhile
  auto same = std::find_if(before.begin(), before.end(), [&sort](const auto& one) { return is_of(*one, sort); });
  if (same == before.end()) return nullptr;
  auto at = std::find(sorts.begin(), sorts.end(), *same);
  if (at != sorts.end()) std::rotate(sorts.begin(), at, at + 1);
  return *same;
}

// Puts a sort first, where there is room or one that was not compiled may go: the one that came longest ago.
void add(std::vector<std::shared_ptr<Sort>>& sorts, std::shared_ptr<Sort> sort) {
  std::shared_ptr<Sort> forgotten;  // goes when the sorts are in order again
  if (sorts.size() == kMost) {
    auto last = std::find_if(sorts.rbegin(), sorts.rend(), [](const auto& known) { return !known->run; });
    if (last == sorts.rend()) return;
    forgotten = std::move(*last);
    sorts.erase(std::next(last).base());
  }
  sorts.insert(sorts.begin(), std::move(sort));
}

// The function that `compile` makes for these arguments; null for none, or with an exception set.
PyObject* compiled(const Repeated& self, PyObject* const* args, Py_ssize_t count) {
  PyObject* arrays = PyTuple_New(count);
  for (Py_ssize_t i = 0; arrays && i < count; i++) PyTuple_SET_ITEM(arrays, i, Py_NewRef(args[i]));
  PyObject* made = arrays ? PyObject_CallOneArg(self.compile, arrays) : nullptr;
  Py_XDECREF(arrays);
  if (made == Py_None) Py_CLEAR(made);
  return made;
}

PyObject* call(PyObject* callable, PyObject* const* args, size_t flags, PyObject* keywords) {
  auto& self = *reinterpret_cast<Repeated*>(callable);
  Py_ssize_t count = PyVectorcall_NARGS(flags);
  std::shared_ptr<Sort> sort = keywords ? nullptr : sort_of(self, args, count);
  std::shared_ptr<Sort> same = sort ? known(*self.sorts, *sort) : nullptr;
  PyObject* run = same ? Py_XNewRef(same->run) : nullptr;
  if (run) {
    PyObject* results = PyObject_Vectorcall(run, args, static_cast<size_t>(count), nullptr);
    Py_DECREF(run);
    if (results) {
      self.executable->count()->value.fetch_add(1, std::memory_order_relaxed);
      return results;
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
    PyErr_Clear();
  }
  PyObject* results = PyObject_Vectorcall(self.program, args, flags, keywords);
  if (!results || !sort) return results;
  if (run) {  // it refuses what the program takes
    Py_CLEAR(same->run);
    return results;
  }
  if (!same) same = known(*self.sorts, *sort);  // other threads may have come with the first ones
  if (!same) {
    sort->calls = 1;
    add(*self.sorts, std::move(sort));
  } else if (self.executable->packs_inputs() && same->calls < self.often && ++same->calls == self.often) {
    same->run = compiled(self, args, count);
    if (PyErr_Occurred()) Py_CLEAR(results);
  }
  return results;
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  auto* repeated = reinterpret_cast<Repeated*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(repeated->program);
  Py_VISIT(repeated->kind);
  Py_VISIT(repeated->compile);
  if (repeated->sorts) {
    for (const auto& sort : *repeated->sorts) {
      for (PyObject* type : sort->types) Py_VISIT(type);
      Py_VISIT(sort->run);
    }
  }
  return 0;
}

int clear(PyObject* self) {
  auto* repeated = reinterpret_cast<Repeated*>(self);
  if (repeated->sorts) {
    auto sorts = std::exchange(*repeated->sorts, {});
  }
  Py_CLEAR(repeated->compile);
  Py_CLEAR(repeated->program);
  Py_CLEAR(repeated->kind);
  return 0;
}

void destroy(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  delete reinterpret_cast<Repeated*>(self)->sorts;
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Repeated, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_members, members},
    {0, nullptr},
};
PyType_Spec spec = {
    "hlo_disc.ral.Repeated", sizeof(Repeated), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

bool initialize_repeated() {
  type_name = PyUnicode_InternFromString("aval");
  committed_name = PyUnicode_InternFromString("_committed");
  repeated_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type_name && committed_name && repeated_type;
}

PyObject* make_repeated(PyObject* program, const Executable* executable, PyObject* kind, int often, PyObject* compile) {
  PyObject* made = repeated_type->tp_alloc(repeated_type, 0);
  if (!made) return nullptr;
  auto* repeated = reinterpret_cast<Repeated*>(made);
  repeated->call = call;
  repeated->program = Py_NewRef(program);
  repeated->executable = executable;
  repeated->often = often;
  repeated->kind = Py_NewRef(kind);
  repeated->compile = Py_NewRef(compile);
  repeated->sorts = new std::vector<std::shared_ptr<Sort>>;
  return made;
}

}  // namespace ral
