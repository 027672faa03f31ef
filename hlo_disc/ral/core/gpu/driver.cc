#include "gpu/driver.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>

#include "program/program.h"

namespace ral {
namespace {

constexpr int kOutOfMemory = 2;

// The first of the libraries that is loaded already, else the first that can be.
void* open_library(const std::vector<std::string>& libraries, std::string* taken) {
  std::string reason;
  for (int how : {RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD, RTLD_NOW | RTLD_LOCAL}) {
    for (const std::string& library : libraries) {
      *taken = library;
      if (void* handle = dlopen(library.c_str(), how)) return handle;
      if (how & RTLD_NOLOAD) continue;
      std::string why = dlerror();
      // A library that is there, and lacks another one, says more than one that is not there.
      bool absent = why.rfind(library + ": cannot open", 0) == 0;
      if (reason.empty() || !absent) reason = why;
    }
  }
  throw Error(Error::kDevice, "there is no driver of a GPU: " + reason);
}

std::unique_ptr<Driver> load(const DriverName& name) {
  bool hip = name.api == "hip";
  std::string library;
  void* handle = open_library(name.libraries, &library);
  auto driver = std::make_unique<Driver>();
  auto find = [&](auto& function, const char* cuda_symbol, const char* hip_symbol, bool needed) {
    const char* symbol = hip ? hip_symbol : cuda_symbol;
    if (!*symbol) return;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    if (!function && needed)
      throw Error(Error::kDevice, "the driver " + library + " is too old: it has no " + symbol + "; update it");
  };
#define RAL_FIND(name, parameters, cuda, hip) find(driver->name, cuda, hip, true);
#define RAL_LOOK_FOR(name, parameters, cuda, hip) find(driver->name, cuda, hip, false);
  RAL_DRIVER_FUNCTIONS(RAL_FIND)
  RAL_NEWER_DRIVER_FUNCTIONS(RAL_LOOK_FOR)
#undef RAL_LOOK_FOR
#undef RAL_FIND
  driver->end_of_record = reinterpret_cast<void*>(hip ? 3 : 0);  // HIP_LAUNCH_PARAM_END, CU_LAUNCH_PARAM_END
  driver->check(driver->init(0), "cannot start the driver " + library);
  return driver;
}

}  // namespace

const Driver& Driver::open(const DriverName& name) {
  // Outlives what static destructors free.
  static auto* opened = new std::map<std::pair<std::string, std::vector<std::string>>, std::unique_ptr<Driver>>;
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Driver>& driver = (*opened)[{name.api, name.libraries}];
  if (!driver) driver = load(name);
  return *driver;
}

void Driver::check(int error, const std::string& what) const {
  if (error == 0) return;
  const char* text = nullptr;
  if (error_string(error, &text) != 0 || !text) text = "an unknown error";
  throw Error(error == kOutOfMemory ? Error::kOutOfMemory : Error::kDevice,
              what + ": " + text + " (error " + std::to_string(error) + ")");
}

}  // namespace ral
