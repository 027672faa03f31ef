#include "model.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cpu.h"
#include "digest.h"
#include "gpu/device_call.h"
#include "library/library.h"
#include "link/code.h"
#include "link/symbols.h"
#include "program/call.h"
#include "program/program.h"
#include "threads/pool.h"
#include "threads/tasks.h"

namespace ral {
namespace {

thread_local std::string error_text;

// A reason that kept a library from being opened.
struct OpenError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

hlo_disc_status status_of(Error::Class which) {
  switch (which) {
    case Error::kArgument: return HLO_DISC_ARGUMENT;
    case Error::kShape: return HLO_DISC_SHAPE;
    case Error::kOverflow: return HLO_DISC_OVERFLOW;
    case Error::kOutOfMemory: return HLO_DISC_OUT_OF_MEMORY;
    case Error::kCall: return HLO_DISC_CALL;
    case Error::kDevice: return HLO_DISC_DEVICE;
  }
  return HLO_DISC_INTERNAL;
}

void set_error(const char* text) noexcept {
  try {
    error_text = text;
  } catch (...) {
    error_text.clear();
  }
}

// f(), or the status of what it throws.
template <typename F>
int32_t guarded(F f) noexcept {
  hlo_disc_status status;
  try {
    f();
    return HLO_DISC_OK;
  } catch (const Error& error) {
    status = status_of(error.which);
    set_error(error.what());
  } catch (const OpenError& error) {
    status = HLO_DISC_OPEN;
    set_error(error.what());
  } catch (const std::bad_alloc&) {
    status = HLO_DISC_OUT_OF_MEMORY;
    set_error("out of memory");
  } catch (const std::exception& error) {
    status = HLO_DISC_INTERNAL;
    set_error(error.what());
  } catch (...) {
    status = HLO_DISC_INTERNAL;
    set_error("an exception of an unknown kind");
  }
  return status;
}

// A file's content, mapped.
class Mapped {
 public:
  explicit Mapped(const std::string& path) {
    int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) throw OpenError("the weights " + path + " cannot be read: " + std::strerror(errno));
    struct stat about;
    bool known = fstat(file, &about) == 0;
    size_ = known ? about.st_size : 0;
    void* data = size_ ? mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
    int reason = errno;
    ::close(file);
    if (!known || data == MAP_FAILED)
      throw OpenError("the weights " + path + " cannot be mapped: " + std::strerror(reason));
    data_ = static_cast<const char*>(data);
  }
  Mapped(const Mapped&) = delete;
  ~Mapped() {
    if (data_) munmap(const_cast<char*>(data_), static_cast<size_t>(size_));
  }
  const char* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  const char* data_ = nullptr;
  int64_t size_ = 0;
};

// The directory of this library, with the slash.
std::string own_directory() {
  Dl_info about;
  if (!dladdr(reinterpret_cast<const void*>(&own_directory), &about) || !about.dli_fname) return "";
  std::string path = about.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

uintptr_t function(const Code& code, const char* name) {
  uintptr_t address = code.address(name);
  if (!address) throw OpenError(std::string("the code has no function ") + name);
  return address;
}

TensorType type_of(const TypeRow& row) {
  TensorType type = TensorType::of(row.name, row.dtype, {row.dims.begin(), row.dims.end()});
  type.read = row.read;
  return type;
}

Attributes attributes_of(const Rows<AttributeRow>& rows) {
  Attributes attributes;
  for (const AttributeRow& row : rows) {
    if (std::strcmp(row.kind, "dictionary") == 0) {
      attributes.add_dictionary(row.name, attributes_of(row.entries));
    } else {
      attributes.add(row.name, row.kind, row.dtype, std::string(row.content, static_cast<size_t>(row.size)));
    }
  }
  return attributes;
}

std::vector<LibraryCall::Buffer> buffers_of(const Rows<BufferRow>& rows) {
  std::vector<LibraryCall::Buffer> buffers;
  for (const BufferRow& row : rows) buffers.push_back({&dtype_named(row.dtype), row.rank});
  return buffers;
}

std::unique_ptr<LibraryCall> call_of(const CallRow& row) {
  std::vector<std::pair<int, int>> aliases;
  for (const AliasRow& alias : row.aliases) aliases.emplace_back(alias.operand, alias.result);
  std::vector<XLA_FFI_Handler*> handlers(kStages);
  handlers[XLA_FFI_ExecutionStage_EXECUTE] = row.handler;
  auto made =
      std::make_unique<LibraryCall>(row.where, handlers, attributes_of(row.attributes), buffers_of(row.operands),
                                    buffers_of(row.results), aliases, row.function != nullptr, row.function);
  made->instantiate();
  return made;
}

bool has_all(const std::vector<std::string>& features, const LevelRow& level) {
  return std::all_of(level.features.begin(), level.features.end(), [&](const char* feature) {
    return std::find(features.begin(), features.end(), feature) != features.end();
  });
}

// The best level for this CPU.
const LevelRow& level_for_machine(const LibraryTable& table) {
  const std::vector<std::string> features = cpu_features();
  for (const LevelRow& level : table.levels) {
    if (has_all(features, level)) return level;
  }
  std::string missing;
  for (const char* feature : table.levels.end()[-1].features) {
    if (std::find(features.begin(), features.end(), feature) == features.end())
      missing += (missing.empty() ? "" : ", ") + std::string(feature);
  }
  throw OpenError(std::string(table.name) + " is compiled for a CPU with " + missing +
                  ", which this machine does not have");
}

const char* checked(const char* data, int64_t size, const Span& span, const std::string& what) {
  if (span.start < 0 || span.size < 0 || span.start > size - span.size)
    throw OpenError(what + " is truncated: it has no " + std::to_string(span.size) + " bytes from " +
                    std::to_string(span.start) + " on");
  if (digest(data + span.start, span.size) != span.digest)
    throw OpenError(what + " is damaged: its digest is another one");
  return data + span.start;
}

}  // namespace
}  // namespace ral

using ral::LevelRow;
using ral::LibraryTable;

struct hlo_disc_model {
  hlo_disc_model(const LibraryTable& table, const hlo_disc_settings& settings);
  hlo_disc_model(const hlo_disc_model&) = delete;
  ~hlo_disc_model();

  void log(hlo_disc_severity severity, const std::string& text) const {
    if (settings.log) settings.log(settings.context, severity, text.c_str());
  }
  const ral::Allocator* allocator() const { return memory ? &*memory : nullptr; }

  // Puts sizes and addresses of arguments into the call. Throws Error(kArgument, kShape).
  void bind(ral::Call& call, const hlo_disc_tensor* inputs, bool run) const;

  hlo_disc_settings settings;
  std::optional<ral::Allocator> memory;
  std::unique_ptr<ral::Mapped> file;
  std::deque<ral::Code> codes;
  std::vector<ral::Block> packed;
  ral::Program program{};

  // The program's part on the GPU, made when it is first needed. Throws Error.
  ral::OnDevice& on_device() const;

 private:
  mutable std::mutex device_mutex;
  mutable std::unique_ptr<ral::OnDevice> device;
  ral::Code& link(const ral::Span& span, const char* code);
  void load(const LibraryTable& table);
};

ral::Code& hlo_disc_model::link(const ral::Span& span, const char* code) {
  const char* object = ral::checked(code, INT64_MAX, span, "the code");
  try {
    return codes.emplace_back(object, static_cast<size_t>(span.size), ral::runtime_symbols());
  } catch (const std::invalid_argument& error) {
    throw ral::OpenError(std::string("cannot link the code: ") + error.what());
  }
}

hlo_disc_model::hlo_disc_model(const LibraryTable& table, const hlo_disc_settings& given) : settings(given) {
  if (!settings.allocate != !settings.release)
    throw ral::Error(ral::Error::kArgument, "settings: one of allocate and release is missing");
  if (settings.threads < 0)
    throw ral::Error(ral::Error::kArgument, "settings: " + std::to_string(settings.threads) + " threads");
  if (settings.allocate) memory = ral::Allocator{settings.allocate, settings.release, settings.context};
  try {
    load(table);
  } catch (...) {
    for (ral::Code& code : codes) code.close();
    throw;
  }
}

hlo_disc_model::~hlo_disc_model() {
  device.reset();
  for (ral::Code& code : codes) code.close();
}

ral::OnDevice& hlo_disc_model::on_device() const {
  std::lock_guard<std::mutex> lock(device_mutex);
  if (!device) device = std::make_unique<ral::OnDevice>(ral::Gpu::find(*program.driver, 0), program);
  return *device;
}

void hlo_disc_model::load(const LibraryTable& table) {
  ral::UseAllocator use(allocator());
  const LevelRow& level = ral::level_for_machine(table);
  ral::Code& code = link(level.code, table.code);
  const char* weights = table.weights;
  int64_t weights_size = table.weights_size;
  std::string from = "the library";
  if (!weights && table.weights_size) {
    from = settings.weights ? settings.weights : ral::own_directory() + table.name + ".weights";
    file = std::make_unique<ral::Mapped>(from);
    weights = file->data();
    weights_size = file->size();
  }
  settings.weights = nullptr;  // the text is the caller's

  ral::Program& p = program;
  p.plan_fn = reinterpret_cast<ral_plan_fn>(ral::function(code, "plan"));
  p.main_fn = reinterpret_cast<ral_main_fn>(ral::function(code, "main"));
  p.env = level.env;
  for (const ral::TypeRow& row : level.inputs) p.inputs.push_back(ral::type_of(row));
  for (const ral::TypeRow& row : level.outputs) p.outputs.push_back(ral::type_of(row));
  for (const ral::Span& span : level.constants) {
    const std::string what = "constant " + std::to_string(p.constants.size()) + " of " + from;
    p.constants.push_back(ral::checked(weights, weights_size, span, what));
    p.constant_bytes.push_back(span.size);
  }
  for (const ral::PackRow& row : level.packs) {
    auto fn = reinterpret_cast<ral_main_fn>(ral::function(code, row.function));
    const void* form = nullptr;
    if (row.of_constant && row.form >= 0) {
      form = ral::checked(weights, weights_size, level.forms.first[row.form],
                          "weight " + std::to_string(row.form) + " of " + from);
    } else if (row.of_constant) {
      packed.push_back(ral::pack_constant(fn, p.constants.at(static_cast<size_t>(row.index)), row.bytes));
      form = packed.back().data();
    }
    p.packs.push_back({row.of_constant, row.index, row.bytes, fn, form});
  }
  for (const ral::GuardRow& row : level.guards) p.guards.push_back({row.message, row.args, row.overflow});
  p.asked.assign(level.asked.begin(), level.asked.end());
  for (const ral::CallRow& row : level.calls) p.calls.push_back(ral::call_of(row));
  if (level.driver.api)
    p.driver = ral::DriverName{level.driver.api, {level.driver.libraries.begin(), level.driver.libraries.end()}};
  const ral::Code* wide = level.wide_code.size ? &link(level.wide_code, table.code) : &code;
  p.wide_modules = [wide] { return reinterpret_cast<const ral_module*>(ral::function(*wide, "hlo_disc.modules")); };
  p.workers = settings.threads ? settings.threads : ral::usable_cores();
  p.workers_chosen = true;
  p.finish();
  log(HLO_DISC_INFO, std::string(table.name) + ": code for " + level.name + ", " + std::to_string(p.workers) +
                         " threads, " + std::to_string(table.weights_size) + " bytes of weights from " + from);
}

void hlo_disc_model::bind(ral::Call& call, const hlo_disc_tensor* inputs, bool run) const {
  const auto count = static_cast<int>(program.inputs.size());
  if (count && !inputs) throw ral::Error(ral::Error::kArgument, "there are no arguments: the pointer is null");
  int64_t* sizes = call.dims.data();
  for (int i = 0; i < count; i++) {
    const hlo_disc_tensor& input = inputs[i];
    const auto dtype = static_cast<size_t>(input.dtype);
    if (dtype >= std::size(ral::kDTypes))
      throw ral::Error(ral::Error::kArgument,
                       program.argument(i) + " has dtype number " + std::to_string(dtype) + ", of which there is none");
    program.check_dtype(i, ral::kDTypes[dtype].name);
    if (input.rank < 0 || input.rank > HLO_DISC_MAX_RANK)
      throw ral::Error(ral::Error::kArgument, program.argument(i) + " has rank " + std::to_string(input.rank) +
                                                  ", and ranks are from 0 to " + std::to_string(HLO_DISC_MAX_RANK));
    program.check_shape(i, input.shape, input.rank);
    bool empty = false;
    for (int axis = 0; axis < input.rank; axis++) {
      if (input.shape[axis] < 0)
        throw ral::Error(ral::Error::kShape, program.argument(i) + " has shape " +
                                                 ral::shape_text(input.shape, input.rank) + ": a size is below 0");
      empty |= input.shape[axis] == 0;
    }
    if (run && !input.data && !empty && program.inputs[i].read)
      throw ral::Error(ral::Error::kArgument, program.argument(i) + " has no data: the pointer is null");
    std::copy(input.shape, input.shape + input.rank, sizes);
    sizes += input.rank;
    call.bufs[i] = input.data;
  }
}

namespace ral {
namespace {

// Type and sizes of a result.
void describe(const TensorType& type, const int64_t* sizes, hlo_disc_tensor& output) {
  output.dtype = static_cast<hlo_disc_dtype>(type.dtype - kDTypes);
  output.rank = type.rank();
  std::copy(sizes, sizes + type.rank(), output.shape);
}

void run(const hlo_disc_model& model, const hlo_disc_tensor* inputs, hlo_disc_tensor* outputs) {
  UseAllocator use(model.allocator());
  const Program& program = model.program;
  Call call(program);
  model.bind(call, inputs, true);
  program.plan(call.dims.data(), call.env.data());
  const size_t count = program.outputs.size();
  if (count && !outputs) throw Error(Error::kArgument, "there is no place for results: the pointer is null");
  auto check_room = [&](size_t k, int64_t bytes) {
    if (static_cast<size_t>(bytes) <= outputs[k].bytes) return;
    throw Error(Error::kArgument, "result " + std::to_string(k) + " has " + std::to_string(bytes) +
                                      " bytes, and there is room for " + std::to_string(outputs[k].bytes));
  };
  for (size_t k = 0; k < count; k++) {
    const TensorType& type = program.outputs[k];
    const int64_t* sizes = call.output_sizes(static_cast<int>(k));
    if (!outputs[k].data || !is_known(sizes, type.rank())) continue;
    check_room(k, Program::tensor_bytes(type, sizes));
    if (!program.driver) call.bufs[program.first_result + static_cast<int>(k)] = outputs[k].data;
  }
  if (!program.driver) {
    call.allocate_outputs();
    call.launch(0);
  } else {  // results come from the GPU's memory to the host's, and from there to where the caller wants them
    run_on_device(call, model.on_device());
  }
  std::vector<int64_t> bytes;
  for (size_t k = 0; k < count; k++) {
    bytes.push_back(Program::tensor_bytes(program.outputs[k], call.output_sizes(static_cast<int>(k))));
    if (outputs[k].data) check_room(k, bytes[k]);
  }
  for (size_t k = 0; k < count; k++) {
    describe(program.outputs[k], call.output_sizes(static_cast<int>(k)), outputs[k]);
    Block& made = call.outputs[k];
    if (outputs[k].data && made) {
      std::memcpy(outputs[k].data, made.data(), static_cast<size_t>(bytes[k]));
    } else if (!outputs[k].data) {
      outputs[k].bytes = static_cast<size_t>(bytes[k]);
      outputs[k].data = made.detach();
    }
  }
}

void plan(const hlo_disc_model& model, const hlo_disc_tensor* inputs, hlo_disc_tensor* outputs, size_t* temporary) {
  const Program& program = model.program;
  Call call(program);
  model.bind(call, inputs, false);
  program.plan(call.dims.data(), call.env.data());
  if (!program.outputs.empty() && !outputs)
    throw Error(Error::kArgument, "there is no place for results: the pointer is null");
  for (size_t k = 0; k < program.outputs.size(); k++) {
    const TensorType& type = program.outputs[k];
    const int64_t* sizes = call.output_sizes(static_cast<int>(k));
    describe(type, sizes, outputs[k]);
    outputs[k].bytes = is_known(sizes, type.rank()) ? static_cast<size_t>(Program::tensor_bytes(type, sizes)) : 0;
  }
  if (temporary)
    *temporary = static_cast<size_t>(call.env[program.env.arena] + program.workers * call.env[program.env.scratch]);
}

}  // namespace

const hlo_disc_type* type_at(const LibraryTable& table, bool input, int32_t index) noexcept {
  static std::mutex mutex;
  static auto* known = new std::unordered_map<const TypeRow*, std::pair<hlo_disc_type, std::string>>;
  const LevelRow& level = *table.levels.first;
  const Rows<TypeRow>& rows = input ? level.inputs : level.outputs;
  if (index < 0 || index >= rows.count) return nullptr;
  const TypeRow& row = rows.first[index];
  try {
    std::lock_guard<std::mutex> lock(mutex);
    auto [place, fresh] = known->try_emplace(&row);
    auto& [type, text] = place->second;
    if (fresh) {
      TensorType made = type_of(row);
      type = {static_cast<hlo_disc_dtype>(made.dtype - kDTypes), made.rank(), {}, row.name, nullptr};
      std::copy(made.dims.begin(), made.dims.end(), type.shape);
      text = made.str();
      type.text = text.c_str();
    }
    return &type;
  } catch (...) {
    return nullptr;
  }
}

int32_t open_model(const LibraryTable& table, const hlo_disc_settings* settings, int32_t api_version,
                   hlo_disc_model** model) noexcept {
  return guarded([&] {
    if (!model) throw Error(Error::kArgument, "there is no place for the model: the pointer is null");
    *model = nullptr;
    if (api_version != HLO_DISC_API_VERSION)
      throw OpenError("the header hlo_disc.h is of version " + std::to_string(api_version) +
                      " of the interface, the library " + table.name + " of version " +
                      std::to_string(HLO_DISC_API_VERSION));
    *model = new hlo_disc_model(table, settings ? *settings : hlo_disc_settings{});
  });
}

void close_model(hlo_disc_model* model) noexcept { delete model; }

int32_t plan_model(const hlo_disc_model* model, const hlo_disc_tensor* inputs, hlo_disc_tensor* outputs,
                   size_t* temporary) noexcept {
  return guarded([&] {
    if (!model) throw Error(Error::kArgument, "there is no model: the pointer is null");
    plan(*model, inputs, outputs, temporary);
  });
}

int32_t run_model(const hlo_disc_model* model, const hlo_disc_tensor* inputs, hlo_disc_tensor* outputs) noexcept {
  return guarded([&] {
    if (!model) throw Error(Error::kArgument, "there is no model: the pointer is null");
    run(*model, inputs, outputs);
  });
}

void release_result(const hlo_disc_model* model, hlo_disc_tensor* output) noexcept {
  if (!model || !output || !output->data) return;
  release(output->data, static_cast<int64_t>(output->bytes), model->allocator());
  output->data = nullptr;
  output->bytes = 0;
}

const char* last_error() noexcept { return error_text.c_str(); }

namespace {

// Threads of the library end before its code is gone.
struct AtUnload {
  ~AtUnload() {
    stop_tasks();
    stop_pool();
    trim();
  }
} at_unload;

}  // namespace
}  // namespace ral
