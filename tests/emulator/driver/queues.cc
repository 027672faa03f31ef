#include "driver/queues.h"

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <string>

#include "driver/devices.h"

extern "C" {
void simt_fail(const char* what);
bool simt_failed();
const char* simt_failure();
}

namespace queues {

struct Work {
  std::function<void()> action;
  Moment behind;
};

struct Queue {
  int device = devices::here();
  std::deque<Work> waiting;
  uint64_t put = 0, done = 0;  // how much was, ever
};

namespace {

// Held while work is done: of kernels there is one at a time. Actions take others inside of it, and nobody takes it inside
// of others.
std::mutex mutex;
std::atomic<bool> hostile{false};
bool strict = false;
std::mt19937_64 numbers;
int haste = 0;  // of so many calls one lets time pass; with 0 none does, so that all is as late as can be
std::map<void*, std::shared_ptr<Queue>> streams;
std::vector<std::shared_ptr<Queue>> busy;  // with work that waits, of streams that are gone too
constexpr uintptr_t kFirstHandle = 0x57e0000;
uintptr_t last_handle = kFirstHandle;

thread_local int running = 0;  // the GPU whose work this thread does, or did last

std::mutex failures;
std::string first;

bool is_default(void* stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

// The legacy default stream has two names, and each GPU has one of its own.
void* named(void* stream) {
  if (!is_default(stream)) return stream;
  auto number = reinterpret_cast<uintptr_t>(stream);
  return reinterpret_cast<void*>((number == 1 ? 0 : number) + 4 * static_cast<uintptr_t>(devices::here()));
}

// The queue of a stream that is there; null for none.
std::shared_ptr<Queue> find(void* stream) {
  auto found = streams.find(named(stream));
  if (found != streams.end()) return found->second;
  return is_default(stream) ? streams[named(stream)] = std::make_shared<Queue>() : nullptr;
}

bool done(const Moment& moment) {
  for (auto& [queue, count] : moment) {
    if (queue->done < count) return false;
  }
  return true;
}

bool may_go_on(const Queue& queue) { return !queue.waiting.empty() && done(queue.waiting.front().behind); }

void go_on(Queue& queue) {
  Work work = std::move(queue.waiting.front());
  queue.waiting.pop_front();
  running = queue.device;
  work.action();
  queue.done++;
  if (simt_failed()) fail(simt_failure());
  if (!queue.waiting.empty()) return;
  for (auto& other : busy) {
    if (other.get() != &queue) continue;
    std::swap(other, busy.back());
    busy.pop_back();
    return;
  }
}

// A queue that may do something takes its turn, if there is one among the next few.
void anyone_goes_on() {
  if (busy.empty()) return;
  std::shared_ptr<Queue> queue = busy[numbers() % busy.size()];
  if (may_go_on(*queue)) go_on(*queue);
}

// One that has to do something before the moment comes, and can.
std::shared_ptr<Queue> needed(const Moment& moment) {
  for (auto& [queue, count] : moment) {
    if (queue->done < count) return may_go_on(*queue) ? queue : needed(queue->waiting.front().behind);
  }
  return nullptr;
}

void reach(const Moment& moment) {
  while (std::shared_ptr<Queue> queue = needed(moment)) {
    if (numbers() % 2) anyone_goes_on();
    if (may_go_on(*queue) && !done(moment)) go_on(*queue);
  }
}

Moment all(int device) {
  Moment moment;
  for (auto& queue : busy) {
    if (device < 0 || queue->device == device) moment.emplace_back(queue, queue->put);
  }
  return moment;
}

}  // namespace

void be_hostile(uint64_t seed, bool is_strict) {
  be_kind();
  std::lock_guard<std::mutex> lock(mutex);
  numbers.seed(seed);
  haste = std::vector<int>{0, 8, 2}[seed % 3];
  strict = is_strict;
  hostile = true;
}

void be_kind() {
  std::lock_guard<std::mutex> lock(mutex);
  reach(all(-1));
  hostile = false;
}

bool is_hostile() { return hostile; }
bool is_strict() { return strict; }

uint64_t random(uint64_t below) {
  if (!hostile) return 0;
  std::lock_guard<std::mutex> lock(mutex);
  return numbers() % below;
}

void* create_stream() {
  std::lock_guard<std::mutex> lock(mutex);
  auto* stream = reinterpret_cast<void*>(last_handle += 16);
  streams[stream] = std::make_shared<Queue>();
  return stream;
}

void destroy_stream(void* stream) {
  std::lock_guard<std::mutex> lock(mutex);
  streams.erase(stream);
}

bool has_stream(void* stream) {
  std::lock_guard<std::mutex> lock(mutex);
  return !hostile || find(stream);
}

int device_of(void* stream) {
  if (is_default(stream)) return devices::here();
  std::lock_guard<std::mutex> lock(mutex);
  auto found = streams.find(stream);
  return found == streams.end() ? -1 : found->second->device;
}

size_t count() {
  std::lock_guard<std::mutex> lock(mutex);
  size_t made = 0;
  for (auto& [handle, queue] : streams) made += reinterpret_cast<uintptr_t>(handle) > kFirstHandle;
  return made;
}

void declare_stream(void* stream) {
  std::lock_guard<std::mutex> lock(mutex);
  streams.emplace(stream, std::make_shared<Queue>()).first->second->device = 0;
}

void put(void* stream, std::function<void()> action, Moment behind) {
  if (!hostile) {
    running = devices::here();
    return action();
  }
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Queue> queue = find(stream);
  if (!queue) return;  // destroyed by another thread since its handle was looked at
  if (queue->waiting.empty()) busy.push_back(queue);
  queue->waiting.push_back({std::move(action), std::move(behind)});
  queue->put++;
}

Moment now_of(void* stream) {
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Queue> queue = find(stream);
  return queue ? Moment{{queue, queue->put}} : Moment{};
}

Moment now(int device) {
  std::lock_guard<std::mutex> lock(mutex);
  return all(device);
}

int device() { return running; }

bool is_past(const Moment& moment) {
  std::lock_guard<std::mutex> lock(mutex);
  return done(moment);
}

void wait_for(const Moment& moment) {
  std::lock_guard<std::mutex> lock(mutex);
  reach(moment);
}

void pass_time() {
  if (!hostile) return;
  std::lock_guard<std::mutex> lock(mutex);
  if (haste == 0 || numbers() % haste) return;
  for (uint64_t turns = 1 + numbers() % 4; turns; turns--) anyone_goes_on();
}

void fail(const char* what) {
  if (!hostile) return simt_fail(what);
  std::lock_guard<std::mutex> lock(failures);
  if (first.empty()) first = what;
}

bool has_failed() {
  std::lock_guard<std::mutex> lock(failures);
  return simt_failed() || !first.empty();
}

const char* failure() {
  if (simt_failed()) return simt_failure();
  thread_local std::string text;
  std::lock_guard<std::mutex> lock(failures);
  text = std::exchange(first, "");
  return text.c_str();
}

}  // namespace queues
