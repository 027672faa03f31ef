#include "jit/fast_path.h"

#include <structmember.h>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace ral {
namespace {

// An owned reference, or null.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  static Ref of(PyObject* borrowed) { return Ref(Py_XNewRef(borrowed)); }
  explicit operator bool() const { return object_ != nullptr; }
  PyObject* get() const { return object_; }
  PyObject* detach() { return std::exchange(object_, nullptr); }

 private:
  PyObject* object_ = nullptr;
};

struct FastPath {
  PyObject_HEAD vectorcallfunc call;
  PyObject *slow, *name, *renew;
  PyObject* dict;
};

PyObject *no_keywords, *no_static, *argument_error, *shape_error;
PyTypeObject* fast_path_type;

// Whether the exception says that a program does not serve the call; it is cleared then.
bool refused() {
  if (!PyErr_ExceptionMatches(argument_error) && !PyErr_ExceptionMatches(shape_error)) return false;
  PyErr_Clear();
  return true;
}

Ref types_of(PyObject* const* objects, Py_ssize_t count) {
  PyObject* types = PyTuple_New(count);
  for (Py_ssize_t i = 0; types && i < count; i++) {
    PyTuple_SET_ITEM(types, i, Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(objects[i]))));
  }
  return Ref(types);
}

// Positions in the records of `hlo_disc/ral/entries.py`, and in what JAX's flatten returns.
struct Plain {
  enum { kRun, kUnflatten, kSize };
};
struct ByJax {
  enum { kRun, kTally, kSeen, kSize };
};
struct ConversionAt {
  enum { kPlace, kConvert, kSize };
};
struct Flat {
  enum { kLeaves, kTree, kSize };
};

// Raises TypeError for what is no tuple of that size.
template <typename Record>
bool is_record(PyObject* object) {
  if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) == Record::kSize) return true;
  PyErr_Format(PyExc_TypeError, "the fast path expects a tuple of %d, not %R", Record::kSize, object);
  return false;
}

Ref found(const nanobind::dict& table, const Ref& key) {
  return Ref::of(PyDict_GetItemWithError(table.ptr(), key.get()));
}

template <typename Record>
Ref found_record(const nanobind::dict& table, const Ref& key) {
  Ref record = found(table, key);
  return record && is_record<Record>(record.get()) ? std::move(record) : Ref();
}

// Null with an exception for what are none.
const FastTables* tables_of(const Ref& held) {
  static const nanobind::handle type = nanobind::type<FastTables>();
  if (!held) return nullptr;
  if (PyObject_TypeCheck(held.get(), reinterpret_cast<PyTypeObject*>(type.ptr())))
    return nanobind::inst_ptr<FastTables>(held.get());
  PyErr_SetString(PyExc_TypeError, "the fast path has no tables");
  return nullptr;
}

PyObject* nested(PyObject* results, PyObject* unflatten) {
  if (unflatten != Py_None) return PyObject_CallOneArg(unflatten, results);
  return PySequence_GetItem(results, 0);
}

// Whether one of these types is seen at once: the first leaf of an argument has it.
int is_seen(PyObject* types, PyObject* const* args, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* x = args[i];
    for (PyObject* first = x; first; x = first ? first : x) {
      Py_ssize_t at = 0;
      first = nullptr;
      if (PyDict_CheckExact(x)) {
        PyDict_Next(x, &at, nullptr, &first);
      } else if ((PyList_CheckExact(x) || PyTuple_CheckExact(x)) && PySequence_Fast_GET_SIZE(x)) {
        first = PySequence_Fast_GET_ITEM(x, 0);
      }
    }
    int seen = PySet_Contains(types, reinterpret_cast<PyObject*>(Py_TYPE(x)));
    if (seen) return seen;
  }
  return 0;
}

// The results of a call without keywords. Null without an exception where there is no fast path, or none serves it.
PyObject* quickly(const FastPath& fast, PyObject* self, PyObject* const* args, Py_ssize_t count) {
  Ref types = types_of(args, count);
  Ref held(types ? PyObject_GetAttr(self, fast.name) : nullptr);
  const FastTables* tables = tables_of(held);
  if (!tables) return nullptr;
  if (Ref entry = found_record<ByJax>(tables->by_jax, types)) {
    PyObject* of_arrays = PyTuple_GET_ITEM(entry.get(), ByJax::kSeen);
    int seen = of_arrays == Py_None ? 1 : is_seen(of_arrays, args, count);
    if (seen < 0) return nullptr;
    if (seen) {
      Ref counted(PyObject_CallNoArgs(PyTuple_GET_ITEM(entry.get(), ByJax::kTally)));
      PyObject* run = PyTuple_GET_ITEM(entry.get(), ByJax::kRun);
      return counted ? PyObject_Vectorcall(run, args, count, nullptr) : nullptr;
    }
  }
  if (PyErr_Occurred()) return nullptr;

  Ref answer(PyObject_CallNoArgs(tables->unchanged.ptr()));
  if (!answer) return nullptr;
  if (answer.get() != Py_True) {
    held = Ref(PyObject_CallOneArg(fast.renew, self));
    if (held.get() == Py_None) return nullptr;
    tables = tables_of(held);
    if (!tables) return nullptr;
  }
  if (Ref entry = found_record<Plain>(tables->plain, types)) {
    Ref results(PyObject_Vectorcall(PyTuple_GET_ITEM(entry.get(), Plain::kRun), args, count, nullptr));
    if (results) return nested(results.get(), PyTuple_GET_ITEM(entry.get(), Plain::kUnflatten));
    if (!refused()) return nullptr;
  }
  if (PyErr_Occurred()) return nullptr;

  if (tables->flatten.is_none()) return nullptr;
  Ref positional(PyTuple_New(count));
  if (!positional) return nullptr;
  for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(positional.get(), i, Py_NewRef(args[i]));
  Ref all(PyTuple_Pack(2, positional.get(), no_keywords));
  Ref flat(all ? PyObject_CallOneArg(tables->flatten.ptr(), all.get()) : nullptr);
  if (!flat || !is_record<Flat>(flat.get())) return nullptr;
  PyObject* leaves = PyTuple_GET_ITEM(flat.get(), Flat::kLeaves);
  PyObject* tree = PyTuple_GET_ITEM(flat.get(), Flat::kTree);
  if (!PyList_Check(leaves)) {
    PyErr_SetString(PyExc_TypeError, "the leaves of a call are no list");
    return nullptr;
  }
  types = types_of(PySequence_Fast_ITEMS(leaves), PySequence_Fast_GET_SIZE(leaves));
  Ref key(types ? PyTuple_Pack(3, tree, no_static, types.get()) : nullptr);  // `Key` of `jitted/programs.py`
  Ref path = key ? found(tables->paths, key) : Ref();
  if (!path) return nullptr;
  PyObject* result = PyObject_CallOneArg(path.get(), leaves);
  if (!result) refused();
  return result;
}

PyObject* call(PyObject* callable, PyObject* const* args, size_t flags, PyObject* keywords) {
  const auto* fast = reinterpret_cast<FastPath*>(callable);
  Py_ssize_t count = PyVectorcall_NARGS(flags);
  if (count > 0 && !(keywords && PyTuple_GET_SIZE(keywords))) {
    PyObject* result = quickly(*fast, args[0], args + 1, count - 1);
    if (result || PyErr_Occurred()) return result;
  }
  return PyObject_Vectorcall(fast->slow, args, flags, keywords);
}

PyObject* bound(PyObject* self, PyObject* instance, PyObject*) {
  return instance && instance != Py_None ? PyMethod_New(self, instance) : Py_NewRef(self);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  auto* path = reinterpret_cast<FastPath*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(path->slow);
  Py_VISIT(path->renew);
  Py_VISIT(path->dict);
  return 0;
}

int clear(PyObject* self) {
  auto* path = reinterpret_cast<FastPath*>(self);
  Py_CLEAR(path->slow);
  Py_CLEAR(path->name);
  Py_CLEAR(path->renew);
  Py_CLEAR(path->dict);
  return 0;
}

void destroy(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FastPath, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(FastPath, dict), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bound)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_members, members},
    {Py_tp_getset, attributes},
    {0, nullptr},
};
PyType_Spec spec = {"hlo_disc.ral.FastPath", sizeof(FastPath), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                        Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                    slots};

enum { kRun, kUnflatten, kTaken, kGiven };  // in the tuple that a path is bound to

bool are_conversions(PyObject* all) {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(all); k++) {
    if (!is_record<ConversionAt>(PyTuple_GET_ITEM(all, k))) return false;
  }
  return true;
}

// Puts what conversions make of these values in their place, and keeps it alive in `made`.
bool convert(PyObject* conversions, PyObject** values, Py_ssize_t count, std::vector<Ref>& made) {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(conversions); k++) {
    PyObject* conversion = PyTuple_GET_ITEM(conversions, k);
    Py_ssize_t i = PyLong_AsSsize_t(PyTuple_GET_ITEM(conversion, ConversionAt::kPlace));
    if (i < 0 || i >= count) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_IndexError, "a conversion of a value that is not there");
      return false;
    }
    made.emplace_back(PyObject_CallOneArg(PyTuple_GET_ITEM(conversion, ConversionAt::kConvert), values[i]));
    if (!made.back()) return false;
    values[i] = made.back().get();
  }
  return true;
}

PyObject* run_path(PyObject* self, PyObject* leaves) {
  Ref list(PySequence_Fast(leaves, "the leaves of a call are a sequence"));
  if (!list) return nullptr;
  PyObject* taken = PyTuple_GET_ITEM(self, kTaken);
  PyObject* given = PyTuple_GET_ITEM(self, kGiven);
  PyObject* const* items = PySequence_Fast_ITEMS(list.get());
  Py_ssize_t count = PySequence_Fast_GET_SIZE(list.get());
  std::vector<Ref> made;
  std::vector<PyObject*> values;
  if (PyTuple_GET_SIZE(taken)) {
    values.assign(items, items + count);
    if (!convert(taken, values.data(), count, made)) return nullptr;
    items = values.data();
  }
  Ref results(PyObject_Vectorcall(PyTuple_GET_ITEM(self, kRun), items, count, nullptr));
  if (!results) return nullptr;
  if (PyTuple_GET_SIZE(given)) {
    made.clear();
    count = PyTuple_GET_SIZE(results.get());
    values.assign(&PyTuple_GET_ITEM(results.get(), 0), &PyTuple_GET_ITEM(results.get(), 0) + count);
    if (!convert(given, values.data(), count, made)) return nullptr;
    Ref converted(PyTuple_New(count));
    if (!converted) return nullptr;
    for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(converted.get(), i, Py_NewRef(values[i]));
    results = std::move(converted);
  }
  return nested(results.get(), PyTuple_GET_ITEM(self, kUnflatten));
}

PyMethodDef path_method = {"path", run_path, METH_O, "Runs a program on the leaves of a call."};

}  // namespace

bool initialize_fast_path() {
  Ref errors(PyImport_ImportModule("hlo_disc.errors"));
  if (!errors) return false;
  argument_error = PyObject_GetAttrString(errors.get(), "ArgumentError");
  shape_error = PyObject_GetAttrString(errors.get(), "ShapeError");
  no_keywords = PyDict_New();
  no_static = PyTuple_New(0);
  fast_path_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return argument_error && shape_error && no_keywords && no_static && fast_path_type;
}

PyObject* make_fast_path(PyObject* slow, PyObject* name, PyObject* renew) {
  PyObject* made = fast_path_type->tp_alloc(fast_path_type, 0);
  if (!made) return nullptr;
  auto* path = reinterpret_cast<FastPath*>(made);
  path->call = call;
  path->slow = Py_NewRef(slow);
  path->name = Py_NewRef(name);
  PyUnicode_InternInPlace(&path->name);
  path->renew = Py_NewRef(renew);
  Ref tools(PyImport_ImportModule("functools"));
  Ref wrapped(tools ? PyObject_CallMethod(tools.get(), "update_wrapper", "OO", made, slow) : nullptr);
  if (!wrapped) Py_CLEAR(made);
  return made;
}

PyObject* make_path(PyObject* run, PyObject* unflatten, PyObject* taken, PyObject* given) {
  if (!are_conversions(taken) || !are_conversions(given)) return nullptr;
  Ref self(PyTuple_Pack(4, run, unflatten, taken, given));
  return self ? PyCFunction_New(&path_method, self.get()) : nullptr;
}

}  // namespace ral
