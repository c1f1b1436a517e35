// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Memory: the devices' and the host's pinned one, both of this host.
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "tests/sim/core/device/shared.h"

namespace inject::sim {
namespace {

struct State {
  std::map<std::uintptr_t, Allocation> memory;
  std::map<int, std::size_t> used;
};
// Leaked: see base.cpp.
State& state() {
  static State& instance = *new State;
  return instance;
}

bool takes_device_memory(MemoryType type) {
  return type == MemoryType::kDevice || type == MemoryType::kArray;
}

void give_back(const Allocation& allocation) {
  if (takes_device_memory(allocation.type)) state().used[allocation.device] -= allocation.bytes;
  munmap(reinterpret_cast<void*>(allocation.base), allocation.bytes);
}

}  // namespace

// What the program allocated itself stays.
void internal::release_memory_of(Context* context) {
  std::erase_if(state().memory, [&](const auto& entry) {
    const Allocation& allocation = entry.second;
    if (allocation.context != context || allocation.registered) return false;
    give_back(allocation);
    return true;
  });
}

void* allocate(std::size_t bytes, MemoryType type, Context* context) {
  State& shared = state();
  std::size_t size = std::max<std::size_t>(bytes, 1);
  bool on_device = takes_device_memory(type);
  std::lock_guard lock(world());
  if (on_device && shared.used[context->device] + size > kDeviceMemory) return nullptr;
  // Reserved, not touched: a program may allocate more device memory than this host has.
  void* pointer =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pointer == MAP_FAILED) return nullptr;
  auto base = reinterpret_cast<std::uintptr_t>(pointer);
  shared.memory[base] = {base, size, type, context, context->device, false};
  if (on_device) shared.used[context->device] += size;
  return pointer;
}

bool release(void* pointer, MemoryType type) {
  State& shared = state();
  std::lock_guard lock(world());
  auto found = shared.memory.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == shared.memory.end() || found->second.registered) return false;
  bool host = found->second.type == MemoryType::kPinned;
  if (host != (type == MemoryType::kPinned)) return false;
  give_back(found->second);
  shared.memory.erase(found);
  return true;
}

bool find_allocation(const void* pointer, Allocation& found) {
  State& shared = state();
  std::lock_guard lock(world());
  auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto next = shared.memory.upper_bound(address);
  if (next == shared.memory.begin()) return false;
  const Allocation& candidate = std::prev(next)->second;
  if (address - candidate.base >= candidate.bytes) return false;
  found = candidate;
  return true;
}

bool register_host(void* pointer, std::size_t bytes, Context* context) {
  State& shared = state();
  std::lock_guard lock(world());
  auto base = reinterpret_cast<std::uintptr_t>(pointer);
  return shared.memory
      .emplace(base, Allocation{base, bytes, MemoryType::kPinned, context, context->device, true})
      .second;
}

bool unregister_host(void* pointer) {
  State& shared = state();
  std::lock_guard lock(world());
  auto found = shared.memory.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == shared.memory.end() || !found->second.registered) return false;
  shared.memory.erase(found);
  return true;
}

std::size_t used_bytes(int device) {
  State& shared = state();
  std::lock_guard lock(world());
  return shared.used[device];
}

void lose_bytes(std::size_t bytes) {
  State& shared = state();
  std::lock_guard lock(world());
  std::set<int> devices;
  for (const Context* context : internal::contexts()) devices.insert(context->device);
  for (const int device : devices) shared.used[device] += bytes;
}

}  // namespace inject::sim
