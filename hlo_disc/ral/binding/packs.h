// Packed forms of immutable arrays that arrive as inputs (weights as arguments), kept while the array lives.
//
// The key is the array's identity, guarded by a weak reference whose callback drops the entry. The bound counts the
// bytes over all executables; when it is reached new arrays are refused and computed with unpacked. Evicting instead
// would repack every weight on every call as soon as a model does not fit, which costs more than not packing.
// An array is packed when it comes for the second time: one that comes once (a training step's) is not worth it.
#pragma once

#include <Python.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "program/packed.h"

namespace ral {

// The packed inputs of one executable. Lookups and changes hold a mutex for a few instructions and never call Python
// under it, because a collected array's callback comes back here.
class PackCache : public std::enable_shared_from_this<PackCache> {
 public:
  ~PackCache();  // with the interpreter lock

  PackedForm find(PyObject* array, int pack) const;

  // Remembers an array, and its packed form unless that is null, while `array` lives. With the interpreter lock. An
  // array without weak references is not remembered.
  void keep(PyObject* array, int pack, std::shared_ptr<Packed> packed);

  int64_t bytes() const;

 private:
  struct Entry {
    PyObject* reference = nullptr;  // owned
    std::vector<std::pair<int, std::shared_ptr<Packed>>> forms;
  };

  static PyObject* array_died(PyObject* self, PyObject* reference);
  PyObject* callback();
  void drop(PyObject* reference);

  mutable std::mutex mutex_;
  std::unordered_map<PyObject*, Entry> entries_;       // by array; the weak reference vouches for its identity
  std::unordered_map<PyObject*, PyObject*> by_reference_;
  PyObject* callback_ = nullptr;
};

}  // namespace ral
