#include "program/call.h"

#include <algorithm>
#include <cstring>

#include "library/library.h"
#include "threads/pool.h"

namespace ral {
namespace {

void run_pack(ral_main_fn fn, const Program& program, const void* source, void* destination) {
  StandaloneTasks tasks(program.workers);
  Run run(standalone_call(program.workers, nullptr, 0), program, tasks);
  void* bufs[] = {const_cast<void*>(source), destination};
  check_status(run, run.enter(fn, nullptr, nullptr, bufs), nullptr);
}

}  // namespace

const int64_t* Call::output_sizes(int k) {
  const int64_t* sizes = env.data() + program.env.outputs;
  for (int i = 0; i < k; i++) sizes += program.outputs[i].rank();
  return sizes;
}

void* Call::allocate_output(int k, const int64_t* sizes) {
  const TensorType& type = program.outputs[k];
  int64_t bytes = Program::tensor_bytes(type, sizes);
  outputs[k] = Block(bytes, Use::kResult);
  if (!outputs[k])
    out_of_memory(bytes,
                  "output " + std::to_string(k) + ", " + type.dtype->name + " " + shape_text(sizes, type.rank()));
  int64_t* own = const_cast<int64_t*>(output_sizes(k));
  if (own != sizes) std::copy(sizes, sizes + type.rank(), own);
  return bufs[program.first_result + k] = outputs[k].data();
}

void Call::bind_constants() {
  for (size_t k = 0; k < program.constants.size(); k++) {
    bufs[program.first_constant + static_cast<int>(k)] = const_cast<void*>(program.constants[k]);
  }
  for (size_t k = 0; k < program.packs.size(); k++) {
    bufs[program.first_pack + static_cast<int>(k)] = const_cast<void*>(program.packs[k].form);
  }
}

void Call::allocate_outputs() {
  int count = static_cast<int>(program.outputs.size());
  outputs.reserve(count);
  const int64_t* sizes = output_sizes(0);
  for (int k = 0; k < count; k++) {
    int rank = program.outputs[k].rank();
    outputs.emplace_back();
    if (!bufs[program.first_result + k] && is_known(sizes, rank)) allocate_output(k, sizes);
    sizes += rank;
  }
}

void Call::run(int64_t pack_limit) {
  program.plan(dims.data(), env.data());
  allocate_outputs();
  launch(pack_limit);
}

void Call::launch(int64_t pack_limit) {
  int64_t arena_bytes = align_up(env[program.env.arena], RAL_ALIGNMENT);
  int64_t scratch_bytes = align_up(env[program.env.scratch], RAL_ALIGNMENT);
  Block arena;
  if (arena_bytes || scratch_bytes) {
    int64_t bytes = arena_bytes + workers * scratch_bytes;
    arena = Block(bytes, Use::kTemporary);
    if (!arena) out_of_memory(bytes, "intermediate values");
  }

  bind_constants();
  for (PackRequest& request : packs) {
    const Pack& pack = program.packs[request.pack];
    PackedForm& form = request.form;
    if (!form.packed) {
      request.changed = true;
      if (!form.seen) continue;  // main knows how to work from the unpacked array
      Block block = PackBudget::take(pack.bytes, pack_limit);
      if (!block) continue;
      form.packed = std::make_shared<Packed>(std::move(block));
      run_pack(pack.fn, program, bufs[pack.index], form.packed->data());
    }
    bufs[program.first_pack + request.pack] = form.packed->data();
  }

  char* scratch = scratch_bytes ? arena.data() + arena_bytes : nullptr;
  StandaloneTasks tasks(workers);
  Run run(standalone_call(workers, scratch, scratch_bytes), program, tasks);
  run.call = this;
  check_status(run, run.enter(program.main_fn, env.data(), arena.data(), bufs.data()), env.data());
}

Block pack_constant(ral_main_fn fn, const void* constant, int64_t bytes) {
  Block packed(bytes, Use::kResult);
  if (!packed) out_of_memory(bytes, "a packed constant");
  std::memset(packed.data(), 0, static_cast<size_t>(bytes));  // what packing leaves out is the same in every process
  Program none{};
  none.workers = usable_cores();
  run_pack(fn, none, constant, packed.data());
  return packed;
}

}  // namespace ral
