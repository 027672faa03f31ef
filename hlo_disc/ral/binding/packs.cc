#include "packs.h"

namespace ral {
namespace {

constexpr const char* kCapsule = "hlo_disc.pack_cache";

}  // namespace

PackCache::~PackCache() {
  for (auto& [array, entry] : entries_) Py_XDECREF(entry.reference);
  Py_XDECREF(callback_);
}

PackedForm PackCache::find(PyObject* array, int pack) const {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = entries_.find(array);
  if (found == entries_.end()) return {};
  for (const auto& [index, packed] : found->second.forms) {
    if (index == pack) return {true, packed};
  }
  return {};
}

void PackCache::keep(PyObject* array, int pack, std::shared_ptr<Packed> packed) {
  PyObject* make = callback();
  PyObject* reference = make ? PyWeakref_NewRef(array, make) : nullptr;
  if (!reference) {
    PyErr_Clear();
    return;
  }
  PyObject* surplus = reference;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Entry& entry = entries_[array];
    if (!entry.reference) {
      std::swap(entry.reference, surplus);
      by_reference_[reference] = array;
    }
    auto form = entry.forms.begin();
    while (form != entry.forms.end() && form->first != pack) ++form;
    if (form == entry.forms.end()) {
      entry.forms.emplace_back(pack, std::move(packed));
    } else if (!form->second) {
      form->second = std::move(packed);
    }
  }
  Py_XDECREF(surplus);
}

int64_t PackCache::bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [array, entry] : entries_) {
    for (const auto& form : entry.forms) bytes += form.second ? form.second->bytes() : 0;
  }
  return bytes;
}

PyObject* PackCache::array_died(PyObject* self, PyObject* reference) {
  auto* cache = static_cast<std::weak_ptr<PackCache>*>(PyCapsule_GetPointer(self, kCapsule));
  if (!cache) return nullptr;
  if (auto alive = cache->lock()) alive->drop(reference);
  Py_RETURN_NONE;
}

PyObject* PackCache::callback() {
  static PyMethodDef method = {"array_died", array_died, METH_O, "Drops the packed forms of a collected array."};
  if (callback_) return callback_;
  auto* self = new std::weak_ptr<PackCache>(weak_from_this());
  PyObject* capsule = PyCapsule_New(self, kCapsule, [](PyObject* capsule) {
    delete static_cast<std::weak_ptr<PackCache>*>(PyCapsule_GetPointer(capsule, kCapsule));
  });
  if (!capsule) {
    delete self;
    return nullptr;
  }
  callback_ = PyCFunction_New(&method, capsule);
  Py_DECREF(capsule);
  return callback_;
}

void PackCache::drop(PyObject* reference) {
  Entry dropped;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = by_reference_.find(reference);
    if (found == by_reference_.end()) return;
    auto entry = entries_.find(found->second);
    dropped = std::move(entry->second);
    entries_.erase(entry);
    by_reference_.erase(found);
  }
  Py_XDECREF(dropped.reference);
}

}  // namespace ral
