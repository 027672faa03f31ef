// Calls the library `layer` (rows of 33 floats) from many threads, at many sizes, with wrong arguments, and with memory
// that runs out at every place where it can. argv: threads, and calls of each.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "layer.h"

namespace {

constexpr int64_t kColumns = 33;
std::atomic<int> failures{0};

void expect(bool holds, const char* what) {
  if (holds) return;
  failures++;
  std::fprintf(stderr, "not so: %s (%s)\n", what, layer_error());
}

std::vector<float> rows(int64_t count) {
  std::vector<float> made(static_cast<size_t>(count * kColumns));
  for (size_t i = 0; i < made.size(); i++) made[i] = static_cast<float>(i % 17) / 17 - 0.5f;
  return made;
}

hlo_disc_tensor tensor(std::vector<float>& data, int64_t count) {
  hlo_disc_tensor made{};
  made.dtype = HLO_DISC_FLOAT32;
  made.rank = 2;
  made.shape[0] = count;
  made.shape[1] = kColumns;
  made.data = data.data();
  return made;
}

// What it returns for so many rows.
std::vector<float> answer(const hlo_disc_model* model, int64_t count) {
  std::vector<float> x = rows(count);
  hlo_disc_tensor input = tensor(x, count), output{};
  expect(layer_run(model, &input, &output) == HLO_DISC_OK, "a call succeeds");
  const auto* data = static_cast<const float*>(output.data);
  std::vector<float> found(data, data + output.bytes / sizeof(float));
  layer_release(model, &output);
  expect(found.size() == x.size(), "the result is as large as the argument");
  return found;
}

void work(const hlo_disc_model* model, int seed, int calls, const std::vector<std::vector<float>>& wanted) {
  for (int i = 0; i < calls; i++) {
    const int64_t count = (i * 7 + seed) % static_cast<int64_t>(wanted.size());
    if (i % 50 == 49) {  // a wrong call between others disturbs nobody
      std::vector<float> x = rows(count);
      hlo_disc_tensor input = tensor(x, count), output{};
      input.shape[1] = 5;
      expect(layer_run(model, &input, &output) == HLO_DISC_SHAPE, "a wrong shape is refused");
      expect(std::strlen(layer_error()) > 20, "and said so");
      expect(!output.data, "without a result");
    }
    expect(answer(model, count) == wanted[static_cast<size_t>(count)], "the answer is always the same");
  }
}

// Memory that is counted, and runs out when it is asked for the n-th time.
struct Heap {
  std::atomic<int64_t> asked{0}, out{0};
  int64_t last = -1;

  static void* allocate(void* self, size_t bytes, size_t alignment) {
    auto* heap = static_cast<Heap*>(self);
    if (heap->asked++ == heap->last) return nullptr;
    heap->out++;
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  static void release(void* self, void* block, size_t) {
    static_cast<Heap*>(self)->out--;
    std::free(block);
  }
};

void run_out_of_memory(const std::vector<float>& wanted, int64_t count) {
  Heap heap;
  hlo_disc_settings settings{};
  settings.allocate = Heap::allocate;
  settings.release = Heap::release;
  settings.context = &heap;
  hlo_disc_model* model = nullptr;
  expect(layer_open(&settings, HLO_DISC_API_VERSION, &model) == HLO_DISC_OK, "a model is opened");
  for (heap.last = 0;; heap.last++) {
    std::vector<float> x = rows(count);
    hlo_disc_tensor input = tensor(x, count), output{};
    heap.asked = 0;
    const int32_t status = layer_run(model, &input, &output);
    if (status == HLO_DISC_OK) {
      layer_release(model, &output);
      break;
    }
    expect(status == HLO_DISC_OUT_OF_MEMORY, "memory is what is missing");
    expect(!output.data && heap.out == 0, "and nothing is kept");
  }
  expect(heap.last > 0, "there is memory to be asked for");
  heap.last = -1;
  expect(answer(model, count) == wanted, "a failed call leaves no trace");
  expect(heap.out == 0, "all memory comes back");
  layer_close(model);
}

}  // namespace

int main(int, char** argv) {
  const int threads = std::atoi(argv[1]), calls = std::atoi(argv[2]);
  hlo_disc_model* model = nullptr;
  if (layer_open(nullptr, HLO_DISC_API_VERSION, &model) != HLO_DISC_OK) {
    std::fprintf(stderr, "%s\n", layer_error());
    return 1;
  }
  std::vector<std::vector<float>> wanted;
  for (int64_t count = 0; count < 40; count++) wanted.push_back(answer(model, count));
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; i++) workers.emplace_back(work, model, i, calls, std::cref(wanted));
  for (int i = 0; i < 3; i++) {  // others come and go meanwhile
    hlo_disc_model* other = nullptr;
    expect(layer_open(nullptr, HLO_DISC_API_VERSION, &other) == HLO_DISC_OK, "a second model is opened");
    expect(answer(other, 7) == wanted[7], "and computes the same");
    layer_close(other);
  }
  for (std::thread& worker : workers) worker.join();
  run_out_of_memory(wanted[30], 30);
  layer_close(model);
  std::printf("%d threads, %d calls each, %d failures\n", threads, calls, failures.load());
  return failures != 0;
}
