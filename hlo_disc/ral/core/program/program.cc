#include "program/program.h"

#include <algorithm>

#include "library/library.h"
#include "threads/floats.h"

namespace ral {
namespace {

std::string join(const std::vector<std::string>& texts) {
  std::string out = "(";
  for (size_t i = 0; i < texts.size(); i++) out += (i ? ", " : "") + texts[i];
  return out + (texts.size() == 1 ? ",)" : ")");
}

// A guard's message, as Python's str.format has it: {k} is args[k], {{ and }} are braces. Anything else stays.
std::string format(const Guard& guard, const int64_t* args) {
  std::string out;
  const std::string& text = guard.message;
  for (size_t i = 0; i < text.size(); i++) {
    bool brace = text[i] == '{' || text[i] == '}';
    if (brace && i + 1 < text.size() && text[i + 1] == text[i]) {
      out += text[i++];
      continue;
    }
    size_t end = i + 1;
    int64_t k = 0;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9' && k < guard.args)
      k = 10 * k + (text[end++] - '0');
    if (text[i] == '{' && end > i + 1 && end < text.size() && text[end] == '}' && k < guard.args) {
      out += std::to_string(args[k]);
      i = end;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

const char* name_of(Error::Class which) {
  switch (which) {
    case Error::kArgument: return "ArgumentError";
    case Error::kShape: return "ShapeError";
    case Error::kOutOfMemory: return "OutOfMemoryError";
    case Error::kCall: return "CallError";
    case Error::kDevice: return "DeviceError";
    case Error::kOverflow: return "SizeOverflowError";
  }
  return "HloDiscError";
}

Program::Program() = default;
Program::Program(Program&&) = default;
Program::~Program() = default;

bool is_known(const int64_t* sizes, int rank) {
  return std::all_of(sizes, sizes + rank, [](int64_t size) { return size >= 0; });
}

std::string shape_text(const int64_t* sizes, int rank) {
  std::vector<std::string> texts;
  for (int i = 0; i < rank; i++) texts.push_back(std::to_string(sizes[i]));
  return join(texts);
}

void out_of_memory(int64_t bytes, const std::string& what) {
  throw Error(Error::kOutOfMemory, "cannot allocate " + std::to_string(bytes) + " bytes for " + what);
}

TensorType TensorType::of(const std::string& name, const std::string& dtype, std::vector<std::string> dims) {
  TensorType type;
  type.name = name;
  type.dtype = find_dtype(dtype.c_str());
  if (!type.dtype) throw std::invalid_argument("dtype " + dtype + " of " + name + " is not supported by the runtime");
  for (const std::string& text : dims) {
    bool fixed = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    type.dims.push_back(fixed ? std::stoll(text) : -1);
  }
  type.texts = std::move(dims);
  return type;
}

std::string TensorType::str() const { return std::string(dtype->name) + " " + join(texts); }

void Program::finish() {
  for (const TensorType& input : inputs) dims_size += input.rank();
  int sizes = 0;
  for (const TensorType& output : outputs) sizes += output.rank();
  auto need = [this](const char* what, int at, int count) {
    if (at >= 0 && int64_t{at} + count <= env.words) return;
    throw std::invalid_argument("an env of " + std::to_string(env.words) + " words has no room for " + what + ": " +
                                std::to_string(count) + " from word " + std::to_string(at));
  };
  need("the bytes of the arena", env.arena, 1);
  need("the bytes of scratch", env.scratch, 1);
  if (!asked.empty()) need("the asked conditions", env.asked, 1);
  need("the sizes of the outputs", env.outputs, sizes);
  for (const Guard& guard : guards) need("the values of a guard's message", 0, guard.args);
  for (const Pack& pack : packs) {
    size_t count = pack.of_constant ? constants.size() : inputs.size();
    if (pack.index < 0 || static_cast<size_t>(pack.index) >= count || pack.bytes < 0) {
      throw std::invalid_argument("a pack refers to " + std::string(pack.of_constant ? "constant " : "input ") +
                                  std::to_string(pack.index) + " of " + std::to_string(count));
    }
  }
  first_constant = static_cast<int>(inputs.size());
  first_pack = first_constant + static_cast<int>(constants.size());
  first_result = first_pack + static_cast<int>(packs.size());
  bufs_size = first_result + static_cast<int>(outputs.size());
}

int32_t Program::enter_plan(const int64_t* dims, int64_t* env) const {
  OwnFloats floats;
  return plan_fn(dims, env);
}

void Program::plan(const int64_t* dims, int64_t* env) const {
  int32_t broken = enter_plan(dims, env);
  uint64_t unmet = asked.empty() ? 0 : static_cast<uint64_t>(env[this->env.asked]);
  if (unmet != 0 && !accepted->has(unmet)) {  // then the guards are not about this call
    throw Error(Error::kShape, asked[static_cast<size_t>(__builtin_ctzll(unmet))]);
  }
  if (broken != 0) broken_guard(static_cast<size_t>(broken) - RAL_PLAN_BROKEN, env);
  if (env[this->env.arena] >= RAL_BEYOND_MEMORY) beyond_memory(dims, env);
}

void Program::beyond_memory(const int64_t* dims, const int64_t* env) const {
  const int64_t* sizes = env + this->env.outputs;
  for (size_t k = 0; k < outputs.size(); sizes += outputs[k++].rank()) {
    if (!is_known(sizes, outputs[k].rank())) continue;
    const int64_t bytes = tensor_bytes(outputs[k], sizes);
    if (bytes >= RAL_BEYOND_MEMORY) out_of_memory(bytes, "output " + std::to_string(k));
  }
  std::string given;
  for (const TensorType& input : inputs) {
    if (input.rank()) given += (given.empty() ? "" : ", ") + input.name + " " + shape_text(dims, input.rank());
    dims += input.rank();
  }
  throw Error(Error::kOutOfMemory, "an array that is computed has more elements or bytes than 64 bits can count, for " +
                                       (given.empty() ? std::string("these arguments") : given));
}

uint64_t Program::unmet(const int64_t* dims) const {
  if (asked.empty()) return 0;
  std::vector<int64_t> words(env.words);
  enter_plan(dims, words.data());
  return static_cast<uint64_t>(words[env.asked]);
}

bool Accepted::has(uint64_t unmet) const {
  for (const auto& set : sets_) {
    uint64_t found = set.load(std::memory_order_relaxed);
    if (found == unmet) return true;
    if (found == 0) return false;
  }
  return false;
}

bool Accepted::add(uint64_t unmet) {
  if (unmet >> RAL_ASKED_BITS) return false;
  for (auto& set : sets_) {
    uint64_t found = 0;
    if (set.compare_exchange_strong(found, unmet) || found == unmet) return true;
  }
  return false;
}

void Program::broken_guard(size_t k, const int64_t* args) const {
  if (k >= guards.size())
    throw std::logic_error("guard " + std::to_string(k) + " is reported, of " + std::to_string(guards.size()));
  throw Error(guards[k].overflow ? Error::kOverflow : Error::kShape, format(guards[k], args));
}

int64_t Program::tensor_bytes(const TensorType& type, const int64_t* sizes) {
  int64_t bytes = type.dtype->bytes;
  bool too_large = false;
  for (int i = 0; i < type.rank(); i++) {
    too_large |= __builtin_mul_overflow(bytes, sizes[i], &bytes);
  }
  if (too_large) {
    throw Error(Error::kOutOfMemory, std::string("a ") + type.dtype->name + " of shape " +
                                         shape_text(sizes, type.rank()) + " is larger than any memory");
  }
  return bytes;
}

std::string Program::argument(int input) const { return "argument '" + inputs[input].name + "'"; }

void Program::check_dtype(int input, const std::string& dtype) const {
  const TensorType& type = inputs[input];
  if (dtype == type.dtype->name) return;
  throw Error(Error::kArgument, argument(input) + " has dtype " + dtype + ", but " + type.dtype->name +
                                    " was compiled: " + type.str() + "; convert it before the call");
}

void Program::check_shape(int input, const int64_t* sizes, int rank) const {
  const TensorType& type = inputs[input];
  if (rank != type.rank()) {
    throw Error(Error::kArgument, argument(input) + " has rank " + std::to_string(rank) + ", shape " +
                                      shape_text(sizes, rank) + ", but rank " + std::to_string(type.rank()) +
                                      " was compiled: " + type.str());
  }
  for (int i = 0; i < rank; i++) {
    if (type.dims[i] < 0 || type.dims[i] == sizes[i]) continue;
    throw Error(Error::kShape, argument(input) + " has size " + std::to_string(sizes[i]) + " in dimension " +
                                   std::to_string(i) + ", shape " + shape_text(sizes, rank) + ", but size " +
                                   std::to_string(type.dims[i]) + " was compiled: " + type.str() +
                                   "; compile with a symbol there to let it vary");
  }
}

}  // namespace ral
