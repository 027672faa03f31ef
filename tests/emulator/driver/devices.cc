#include "driver/devices.h"

#include <vector>

namespace devices {
namespace {

char contexts[kCount];
thread_local std::vector<int> stack;
thread_local int count = 0;

}  // namespace

void* context_of(int device) { return &contexts[device]; }

int device_of(const void* context) {
  if (!context) return 0;
  for (int i = 0; i < kCount; i++) {
    if (context == &contexts[i]) return i;
  }
  return -1;
}

int current() { return stack.empty() ? -1 : stack.back(); }

int here() { return stack.empty() ? 0 : stack.back(); }

void push(int device) {
  stack.push_back(device);
  count++;
}

bool pop() {
  if (stack.empty()) return false;
  stack.pop_back();
  count--;
  return true;
}

void set(int device) {
  if (stack.empty()) stack.push_back(device);
  stack.back() = device;
}

int pushed() { return count; }

}  // namespace devices
