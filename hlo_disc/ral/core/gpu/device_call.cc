#include "gpu/device_call.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "gpu/products.h"
#include "library/library.h"
#include "threads/pool.h"

namespace ral {
namespace {

// Arguments in the host's memory up to this size are copied once more, so that a call need not wait for the GPU to read
// them.
constexpr int64_t kStaged = 1 << 16;

struct DeviceRun : Run {
  DeviceRun(const ral_call& base, Call& call, Tasks& tasks, OnDevice& device, void* stream)
      : Run(base, call.program, tasks), device(device), stream(stream), results(call.program.outputs.size()) {
    this->call = &call;
    allocate_temporary = [this](int64_t bytes) {
      temporaries.emplace_back(this->device.gpu, this->stream, bytes, "intermediate values");
      return temporaries.back().data();
    };
  }
  // Memory that the GPU has yet to read stays until it has, also when the call fails.
  ~DeviceRun() {
    bool waits = call->on_stream && call->on_stream->waits;
    bool failed = waits && !staged.empty();
    if (failed || (reads_caller && !read_by)) driver().synchronize(stream);
    if (read_by) device.gpu.wait(read_by);
    if (!waits && !staged.empty()) device.gpu.keep(stream, std::move(staged));
  }

  // Copies contents to memory that stays until the GPU has read it. Throws Error that names `what`.
  const void* stage(const void* from, int64_t bytes, const std::string& what) {
    staged.emplace_back(bytes, Use::kTemporary);
    if (!staged.back()) out_of_memory(bytes, what);
    return std::memcpy(staged.back().data(), from, static_cast<size_t>(bytes));
  }

  // Copies memory of the host, which must stay until the GPU has read it. Throws Error that names `what`.
  void copy_in(uintptr_t to, const void* from, int64_t bytes, const std::string& what) {
    driver().check(driver().copy_in(to, from, static_cast<size_t>(bytes), stream),
                   "cannot copy " + what + " to the GPU");
  }

  // Copies an argument, which the caller may change when the call is over. Throws Error that names it.
  void copy_argument(uintptr_t to, const void* from, int64_t bytes, const std::string& name) {
    const bool is_small = bytes <= kStaged;
    copy_in(to, is_small ? stage(from, bytes, name) : from, bytes, name);
    reads_caller |= !is_small;
  }

  // Copies the arguments that lie in the host's memory.
  void copy_arguments(const std::function<bool(int)>& is_resident) {
    const int64_t* sizes = call->dims.data();
    for (int i = 0; i < static_cast<int>(program.inputs.size()); i++) {
      const TensorType& type = program.inputs[i];
      if (type.read && !is_resident(i)) {
        int64_t bytes = Program::tensor_bytes(type, sizes);
        temporaries.emplace_back(device.gpu, stream, bytes, program.argument(i));
        copy_argument(temporaries.back().address(), call->bufs[i], bytes, program.argument(i));
        call->bufs[i] = temporaries.back().data();
      }
      sizes += type.rank();
    }
    // A call waits for these copies only, not for later ones.
    if (reads_caller) read_by = device.gpu.record(stream);
  }

  // A tensor in the GPU's memory at an address that kernels can read.
  void* aligned(void* data, int64_t bytes) {
    auto address = reinterpret_cast<uintptr_t>(data);
    if (address % RAL_GPU_ALIGNMENT == 0 || bytes == 0) return data;
    void* copy = allocate_temporary(bytes);
    driver().check(driver().copy_within(reinterpret_cast<uintptr_t>(copy), address, static_cast<size_t>(bytes), stream),
                   "cannot copy an argument");
    return copy;
  }

  // Inputs that lie on the GPU, where kernels can read them.
  void align_inputs(const std::function<bool(int)>& is_resident) {
    const int64_t* sizes = call->dims.data();
    for (int i = 0; i < static_cast<int>(program.inputs.size()); i++) {
      const TensorType& type = program.inputs[i];
      if (type.read && is_resident(i)) call->bufs[i] = aligned(call->bufs[i], Program::tensor_bytes(type, sizes));
      sizes += type.rank();
    }
  }

  // Throws what main leaves.
  void run_main(void* arena) {
    for (size_t k = 0; k < device.constants.size(); k++)
      call->bufs[program.first_constant + static_cast<int>(k)] = device.constants[k].data();
    int32_t status = enter(program.main_fn, call->env.data(), static_cast<char*>(arena), call->bufs.data());
    if (error) throw *error;
    check_status(*this, status, call->env.data());
  }

  const Driver& driver() const { return device.gpu.driver; }

  // The modules that kernels are taken from: null for each one's own.
  const ral_module* modules() {
    int wide = program.env.wide;
    if (!wide_modules && wide >= 0 && call->env[wide]) wide_modules = program.wide_modules();
    return wide_modules;
  }

  // Runs `action`, unless something has failed before; keeps the reason when it fails.
  template <typename Action>
  bool attempt(Action action) noexcept {
    if (error) return false;
    try {
      action();
    } catch (const Error& what) {
      error = what;
    } catch (const std::exception& what) {
      error = Error(Error::kDevice, what.what());
    }
    return !error;
  }

  void* allocate_result(int k, const int64_t* sizes) {
    const TensorType& type = program.outputs[k];
    results[k] = DeviceBlock(device.gpu, stream, Program::tensor_bytes(type, sizes), "output " + std::to_string(k));
    int64_t* own = const_cast<int64_t*>(call->output_sizes(k));
    if (own != sizes) std::copy(sizes, sizes + type.rank(), own);
    return results[k].data();
  }

  // Allocates the results whose sizes are known before the run.
  void allocate_results() {
    const int64_t* sizes = call->output_sizes(0);
    for (int k = 0; k < static_cast<int>(results.size()); k++) {
      int rank = program.outputs[k].rank();
      if (is_known(sizes, rank)) call->bufs[program.first_result + k] = allocate_result(k, sizes);
      sizes += rank;
    }
  }

  // Leaves the results on the GPU.
  void hand_over_results() {
    const int64_t* sizes = call->output_sizes(0);
    for (size_t k = 0; k < results.size(); k++) {
      const TensorType& type = program.outputs[k];
      std::vector<int64_t> own(sizes, sizes + type.rank());
      call->device_outputs.emplace_back(std::move(results[k]), type.dtype, std::move(own), *call->on_stream,
                                        dlpack_device(*program.driver));
      sizes += type.rank();
    }
  }

  // Copies the results to the host's memory.
  void copy_results() {
    const int64_t* sizes = call->output_sizes(0);
    for (size_t k = 0; k < results.size(); k++) {
      const TensorType& type = program.outputs[k];
      int64_t bytes = Program::tensor_bytes(type, sizes);
      call->outputs.emplace_back(bytes, Use::kResult);
      if (!call->outputs.back()) out_of_memory(bytes, "output " + std::to_string(k));
      driver().check(
          driver().copy_out(call->outputs.back().data(), results[k].address(), static_cast<size_t>(bytes), stream),
          "cannot copy a result from the GPU");
      sizes += type.rank();
    }
  }

  // See ral_product. Products of a call use the same workspace: they come one after the other. What only prepares loads
  // the kernel that stands for one, too.
  bool multiply(const char* kernel, const ral_product_args& args) {
    try {
      Products* products = Products::find(program.driver->api, device.gpu);
      if (!products) return false;
      if (only_prepares) {
        products->run(args, stream, {});
        return false;
      }
      return products->run(args, stream, [this](int64_t bytes) {
        if (bytes > workspace_bytes) {
          workspace = allocate_temporary(bytes);
          workspace_bytes = bytes;
        }
        return workspace;
      });
    } catch (const Error& error) {
      throw Error(error.which, "cannot launch the kernel " + std::string(kernel) + ": " + error.what());
    }
  }

  OnDevice& device;
  void* stream;
  std::vector<Block> staged;
  bool reads_caller = false;  // does a copy of an argument read what is not staged?
  void* read_by = nullptr;    // an event behind the last one that does
  bool only_prepares = false;
  const ral_module* wide_modules = nullptr;
  void* workspace = nullptr;  // of products
  int64_t workspace_bytes = 0;
  std::function<void*(int64_t)> allocate_temporary;
  std::vector<DeviceBlock> temporaries, results;
};

void launch(ral_call* call, ral_kernel* kernel, int64_t blocks, int64_t threads, int32_t shared, const void* record,
            int64_t bytes) {
  auto& run = *static_cast<DeviceRun*>(call);
  Kernels& kernels = run.device.kernels;
  run.attempt([&] {
    if (run.only_prepares) return kernels.prepare(*kernel, run.modules(), shared);
    kernels.launch(*kernel, run.modules(), run.stream, blocks, threads, shared, record, bytes);
  });
}

int32_t read(ral_call* call, void* to, const void* from, int64_t bytes) {
  auto& run = *static_cast<DeviceRun*>(call);
  bool done = run.attempt([&] {
    auto address = reinterpret_cast<uintptr_t>(from);
    run.driver().check(run.driver().copy_out(to, address, static_cast<size_t>(bytes), run.stream),
                       "cannot read the GPU's memory");
    run.driver().check(run.driver().synchronize(run.stream), "a kernel failed");
  });
  return done ? 0 : RAL_FAILED;
}

int32_t write(ral_call* call, void* to, const void* from, int64_t bytes) {
  auto& run = *static_cast<DeviceRun*>(call);
  bool done = run.attempt(
      [&] { run.copy_in(reinterpret_cast<uintptr_t>(to), run.stage(from, bytes, "numbers"), bytes, "numbers"); });
  return done ? 0 : RAL_FAILED;
}

int32_t product(ral_call* call, const char* kernel, const ral_product_args* args) {
  auto& run = *static_cast<DeviceRun*>(call);
  bool taken = true;  // of a call that has failed nothing more is launched
  run.attempt([&] { taken = run.multiply(kernel, *args); });
  return taken;
}

void* allocate(ral_call* call, int32_t what, const int64_t* sizes) {
  auto& run = *static_cast<DeviceRun*>(call);
  void* data = nullptr;
  run.attempt([&] {
    if (what >= 0) {
      data = run.allocate_result(what, sizes);
    } else if (what == RAL_SCRATCH) {
      data = &run;  // a launch says itself how much fast memory its blocks need
    } else {
      data = run.allocate_temporary(sizes[0]);
    }
  });
  return data;
}

int32_t refuse_library_call(ral_call* call, int32_t, const int64_t*) {
  static_cast<DeviceRun*>(call)->error = Error(Error::kDevice, "a library function cannot run on a GPU");
  return RAL_FAILED;
}

ral_call device_call() {
  ral_call base = standalone_call(1, nullptr, 0);
  base.library_call = refuse_library_call;
  base.allocate = allocate;
  base.launch = launch;
  base.read = read;
  base.write = write;
  base.product = product;
  return base;
}

}  // namespace

OnDevice::OnDevice(Gpu& gpu, const Program& program) : gpu(gpu), kernels(gpu, program), stream(gpu) {
  Gpu::Current current(gpu);
  std::vector<DeviceBlock> made;  // when something fails, they go before the context does
  for (size_t k = 0; k < program.constants.size(); k++) {
    int64_t bytes = program.constant_bytes[k];
    made.emplace_back(gpu, stream.handle(), bytes, "a constant");
    gpu.driver.check(
        gpu.driver.copy_in(made[k].address(), program.constants[k], static_cast<size_t>(bytes), stream.handle()),
        "cannot copy a constant to the GPU");
  }
  gpu.driver.check(gpu.driver.synchronize(stream.handle()), "cannot copy constants to the GPU");
  constants = std::move(made);
}

OnDevice::~OnDevice() {
  try {
    Gpu::Current current(gpu);
    // Calls may have yet to read them, and to run the kernels, in any stream.
    gpu.driver.synchronize_all();
    constants.clear();
  } catch (const Error&) {  // a context that is gone has taken them along
  }
}

void enqueue(Call& call, OnDevice& device, void* stream, void* arena, void* workspace,
             const std::function<void*(int64_t)>& allocate) {
  Gpu::Current current(device.gpu);
  StandaloneTasks tasks(1);
  DeviceRun run(device_call(), call, tasks, device, stream);
  run.allocate_temporary = allocate;
  run.workspace = workspace;
  run.workspace_bytes = workspace ? kProductWorkspace : 0;
  run.align_inputs([](int) { return true; });
  run.run_main(arena);
}

void prepare(Call& call, OnDevice& device) {
  Gpu::Current current(device.gpu);
  StandaloneTasks tasks(1);
  DeviceRun run(device_call(), call, tasks, device, nullptr);
  run.only_prepares = true;
  run.run_main(nullptr);
}

void run_on_device(Call& call, OnDevice& device) {
  const Program& program = call.program;
  program.plan(call.dims.data(), call.env.data());

  Gpu& gpu = device.gpu;
  Gpu::Current current(gpu);
  const bool stays = call.on_stream.has_value();
  if (!stays) {
    auto own = std::make_shared<Gpu::Stream>(gpu);
    call.on_stream = OnStream{&gpu, own->handle(), own, true};
  }
  void* stream = call.on_stream->handle;
  StandaloneTasks tasks(1);
  DeviceRun run(device_call(), call, tasks, device, stream);

  auto is_resident = [&](int i) { return !call.resident.empty() && call.resident[i]; };
  run.copy_arguments(is_resident);
  if (stays) run.align_inputs(is_resident);
  run.allocate_results();
  void* arena = nullptr;
  if (int64_t bytes = call.env[program.env.arena]) {
    run.temporaries.emplace_back(gpu, stream, bytes, "intermediate values");
    arena = run.temporaries.back().data();
  }

  run.run_main(arena);

  if (stays) {
    run.hand_over_results();
  } else {
    run.copy_results();
  }
  if (!call.on_stream->waits) return;
  gpu.driver.check(gpu.driver.synchronize(stream), "a kernel failed");
  run.staged.clear();
}

}  // namespace ral

extern "C" void ral_launch(ral_call* call, ral_kernel* kernel, int64_t blocks, int64_t threads, int32_t shared,
                           const void* record, int64_t bytes) {
  call->launch(call, kernel, blocks, threads, shared, record, bytes);
}

extern "C" int32_t ral_read(ral_call* call, void* to, const void* from, int64_t bytes) {
  return call->read(call, to, from, bytes);
}

extern "C" int32_t ral_write(ral_call* call, void* to, const void* from, int64_t bytes) {
  return call->write(call, to, from, bytes);
}

extern "C" int32_t ral_product(ral_call* call, const char* kernel, const ral_product_args* args) {
  return call->product(call, kernel, args);
}
