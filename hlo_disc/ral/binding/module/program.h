// Programs from the records that Python has of them.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <vector>

#include "executable.h"
#include "gpu/gpu.h"

namespace ral {

// A flag that Python sets, and calls in other threads read.
struct Gate {
  std::shared_ptr<std::atomic<bool>> open = std::make_shared<std::atomic<bool>>(false);
  void let() { open->store(true); }
};

// Modules that Python adds, and calls in other threads load.
struct AddedModules {
  std::shared_ptr<LateModules> all = std::make_shared<LateModules>();
  void add(uintptr_t modules) { all->add(reinterpret_cast<const ral_module*>(modules)); }
};

// Constructs an executable: see `_ral.pyi`. rows: `Program` of `hlo_disc/compiled/program.py`.
void construct(Executable* self, nanobind::handle rows, const nanobind::callable& address,
               const std::vector<nanobind::object>& calls, int threads, int64_t packed_bytes,
               nanobind::object keep_alive, nanobind::handle driver, bool recordable, bool multiplies,
               const nanobind::object& wide_modules, const nanobind::object& make_kernel, const Gate* packs_inputs,
               const AddedModules* late_modules);

}  // namespace ral
