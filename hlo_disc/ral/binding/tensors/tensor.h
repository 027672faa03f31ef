// Python tensors in and out: numpy and everything else with memory on this machine, without copying where it lies
// contiguous. All functions need the interpreter lock; those that fail throw Error or leave a Python exception (Raised).
#pragma once

#include <Python.h>

#include <memory>
#include <string>
#include <vector>

#include "program/call.h"
#include "tensors/exchange.h"

namespace ral {

// A Python exception is set.
struct Raised {};

// The first line of the message of the current Python exception, which is cleared.
std::string take_exception();

// Must succeed before any other function here. False with a Python exception set.
bool initialize_tensors();
void initialize_dlpack(PyObject* contexts);  // its part; contexts: the module hlo_disc.ral.contexts. Throws Raised.

// Functions for a framework's own array type; a module of hlo_disc.ral.contexts makes them.
struct Adapter {
  PyObject* give = nullptr;  // array -> DLPack capsule or numpy array; owned
  PyObject* wrap = nullptr;  // (numpy array, the argument that decided, is its type weak) -> array; owned
  PyObject* take = nullptr;  // the same of a tensor on a GPU; owned
  PyObject* type = nullptr;  // array -> what says its dtype, shape and weakness; owned
  PyObject* weak = nullptr;  // array -> whether its type is weak; owned
  PyObject* deleted = nullptr;  // array -> whether its memory was taken from it; owned
  bool immutable = false;  // its arrays never change: packed forms may be kept

  // DLPack's C functions for the type; null for types without, and then the next ones are too.
  const Exchange* exchange = nullptr;
  PyObject* threads = nullptr;  // () -> how many its own operations use; owned
  PyObject* recording = nullptr;  // () -> whether operations are recorded for derivatives; owned
  PyObject* recorded = nullptr;  // tensor -> whether those with it are; owned
  PyObject* lazy = nullptr;  // a tuple: tensor -> whether its memory is not yet what it holds; owned
  PyObject* resolve = nullptr;  // tensor -> one whose memory is; owned
};

// The last arrays of each input. An array of a type that was checked needs no second look, and of a small one
// that came twice in a row there is a copy: to ask its framework for its memory takes longer than to read it. Guarded by
// the interpreter lock.
class Checked {
 public:
  struct Input {
    PyObject* type = nullptr;  // what says it, owned
    std::vector<int64_t> sizes;
    PyObject* last = nullptr;  // a weak reference to the last small array that never changes, owned
    std::shared_ptr<std::vector<char>> copy;  // of its contents
  };

  explicit Checked(size_t inputs) : inputs_(inputs) {}
  Checked(const Checked&) = delete;
  ~Checked();
  Input& operator[](int index) { return inputs_[index]; }

 private:
  std::vector<Input> inputs_;
};

// The arguments of a call, kept alive and unchanged until this goes.
class Arguments {
 public:
  Arguments(Call& call, Checked& checked) : call_(call), checked_(checked) {}
  Arguments(const Arguments&) = delete;
  ~Arguments();

  // Takes input `index`. `size_at` is where its sizes go in call.dims.
  void add(int index, PyObject* object, int64_t* sizes);

  // The adapter of the first argument whose framework wants results in its own type; null when they go to numpy.
  const Adapter* adapter() const { return adapter_; }
  PyObject* adapted() const { return adapted_; }

  // The number of workers that may compute: no more than the framework's own operations have.
  int workers(int most) const;

  // The array that the packed forms of input `index` belong to; null when it may change.
  PyObject* immutable(int index) const { return immutable_.empty() ? nullptr : immutable_[index]; }

 private:
  bool add_buffer(int index, PyObject* object, int64_t* sizes);
  void add_numpy(int index, PyObject* array, int64_t* sizes);
  // Whether memory of this kind (DLPack's numbers) is that of the program's GPU. Throws Error for another GPU of its.
  bool is_resident(int index, int type, int id) const;
  // Takes a tensor in the memory of the program's GPU. False for any other.
  bool add_resident(int index, PyObject* object, int64_t* sizes);
  // A tensor on the GPU that is not dense: a copy that its own framework makes.
  void add_dense(int index, PyObject* object, int64_t* sizes);
  void add_dlpack(int index, PyObject* object, PyObject* capsule, int64_t* sizes);
  void add_tensor(int index, PyObject* object, const DLTensor& tensor, int64_t* sizes);
  void add_exchanged(int index, PyObject* object, int64_t* sizes, const Adapter& adapter);
  void add_scalar(int index, PyObject* object);
  void check_weak(int index, PyObject* object, const Adapter& adapter);
  void add_adapted(int index, PyObject* object, int64_t* sizes, const Adapter& adapter);
  void add_shared(int index, PyObject* object, int64_t* sizes, const Adapter& adapter);
  bool add_copy(int index, PyObject* object, int64_t* sizes, const Adapter& adapter);
  void remember(int index, PyObject* object, PyObject* type, const int64_t* sizes, const Adapter& adapter);
  void add_other(int index, PyObject* object, int64_t* sizes);
  void set(int index, void* data, const int64_t* sizes, int rank, int64_t* where);

  Call& call_;
  Checked& checked_;
  const Adapter* adapter_ = nullptr;
  PyObject* adapted_ = nullptr;
  PyObject* dense_ = nullptr;  // the last copy of `add_dense`
  PyObject* asked_ = nullptr;  // an adapter's `recording`,
  bool recording_ = false;  // and what it said
  std::vector<Py_buffer> views_;
  std::vector<PyObject*> owned_;
  std::vector<Block> copies_;
  std::vector<std::shared_ptr<std::vector<char>>> shared_copies_;
  std::vector<PyObject*> immutable_;  // by input; empty when there is none
};

// The Python object of a tensor on a GPU (new reference). Throws Raised.
PyObject* device_tensor_object(DeviceTensor tensor);

// The results of a call as a tuple (new reference): numpy arrays that own their memory, or what the adapter makes of them.
PyObject* results(Call& call, const Arguments& arguments);

// A numpy array of bytes that owns the block (new reference). Throws Raised.
PyObject* bytes_array(Block block);

// An adapter's `wrap` (new reference; null with a Python exception set): `put(type, where, [array], devices, False)`, with
// what `type_of(shape, dtype, weak)` gives, and `otherwise` for what is like a committed array or where `put` raises
// RuntimeError.
PyObject* make_wrapper(PyObject* put, PyObject* type_of, PyObject* where, PyObject* devices, PyObject* otherwise);

// A C-contiguous numpy array of this type with its address, for constants. New reference.
PyObject* constant_array(PyObject* object, const void** data);

}  // namespace ral
