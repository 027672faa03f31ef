#include "driver.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>

#include "program.h"

namespace ral {
namespace {

constexpr int kOutOfMemory = 2;

std::unique_ptr<Driver> load(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) throw Error(Error::kDevice, "there is no driver of a GPU: " + std::string(dlerror()));
  auto driver = std::make_unique<Driver>();
  auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    if (!function)
      throw Error(Error::kDevice, "the driver " + library + " is too old: it has no " + symbol + "; update it");
  };
#define RAL_FIND(name, parameters, symbol) find(driver->name, symbol);
  RAL_DRIVER_FUNCTIONS(RAL_FIND)
#undef RAL_FIND
  driver->check(driver->init(0), "cannot start the driver " + library);
  return driver;
}

}  // namespace

const Driver& Driver::open(const std::string& library) {
  static auto* opened = new std::map<std::string, std::unique_ptr<Driver>>;  // outlives what static destructors free
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Driver>& driver = (*opened)[library];
  if (!driver) driver = load(library);
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
