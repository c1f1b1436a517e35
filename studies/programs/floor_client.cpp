// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The best profiler of a few iterations that CUPTI allows, for studies/first_window.py: the activity kinds,
// driver callbacks and buffer size of libinject's windows, but attached ahead, all buffers touched ahead, and
// nothing done with what comes. Called through ctypes by the program under test; each function returns 0, or
// CUPTI's error.
#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstring>

namespace {

constexpr std::size_t kBufferBytes = 1 << 20;
constexpr int kBuffers = 64;
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET};

alignas(4096) std::uint8_t memory[kBuffers][kBufferBytes];
std::atomic<int> next_buffer{0};
std::atomic<std::uint64_t> callbacks{0};
std::atomic<std::uint64_t> bytes{0};
CUpti_SubscriberHandle subscriber = nullptr;

struct Api {
  decltype(&cuptiSubscribe) subscribe;
  decltype(&cuptiUnsubscribe) unsubscribe;
  decltype(&cuptiEnableCallback) enable_callback;
  decltype(&cuptiGetCallbackName) callback_name;
  decltype(&cuptiActivitySetAttribute) set_attribute;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityFlushAll) flush;
  decltype(&cuptiFinalize) finalize;
} api;

void CUPTIAPI requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  const int index = next_buffer.fetch_add(1, std::memory_order_relaxed);
  *buffer = index < kBuffers ? memory[index] : nullptr;
  *size = index < kBuffers ? kBufferBytes : 0;
  *max_records = 0;
}

void CUPTIAPI completed(CUcontext, std::uint32_t, std::uint8_t*, std::size_t, std::size_t valid) {
  bytes.fetch_add(valid, std::memory_order_relaxed);
}

void CUPTIAPI called(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
  if (static_cast<const CUpti_CallbackData*>(data)->callbackSite == CUPTI_API_ENTER)
    callbacks.store(callbacks.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool submits(const char* name) {
  for (const char* prefix :
       {"cuLaunchKernel", "cuLaunchCooperative", "cuGraphLaunch", "cuMemcpy", "cuMemset"}) {
    if (std::strncmp(name, prefix, std::strlen(prefix)) == 0) return true;
  }
  return false;
}

}  // namespace

extern "C" {

/// Loads CUPTI from `file` and subscribes, with all buffers zeroed and touched.
int floor_attach(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return -1;
  if (!find(library, "cuptiSubscribe", api.subscribe) ||
      !find(library, "cuptiUnsubscribe", api.unsubscribe) ||
      !find(library, "cuptiEnableCallback", api.enable_callback) ||
      !find(library, "cuptiGetCallbackName", api.callback_name) ||
      !find(library, "cuptiActivitySetAttribute", api.set_attribute) ||
      !find(library, "cuptiActivityRegisterCallbacks", api.register_callbacks) ||
      !find(library, "cuptiActivityEnable", api.enable) ||
      !find(library, "cuptiActivityDisable", api.disable) ||
      !find(library, "cuptiActivityFlushAll", api.flush) || !find(library, "cuptiFinalize", api.finalize))
    return -2;
  // Used before, it is not zero any more. A loop of volatile stores: a memset of zeros to zeros may be left
  // out, and does not touch the pages.
  for (auto& buffer : memory) {
    std::memset(buffer, 0, kBufferBytes);
    for (std::size_t at = 0; at < kBufferBytes; at += 4096)
      *static_cast<volatile std::uint8_t*>(buffer + at) = 0;
  }
  next_buffer.store(0, std::memory_order_relaxed);
  if (const int failed = api.subscribe(&subscriber, &called, nullptr); failed != 0) return failed;
  std::uint8_t zeroed = 1;
  std::size_t size = sizeof zeroed;
  api.set_attribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &zeroed);
  return api.register_callbacks(&requested, &completed);
}

/// Driver callbacks of what submits work.
int floor_callbacks() {
  for (std::uint32_t cbid = 1; cbid < 2048; ++cbid) {
    const char* name = nullptr;
    if (api.callback_name(CUPTI_CB_DOMAIN_DRIVER_API, cbid, &name) != CUPTI_SUCCESS || name == nullptr)
      continue;
    if (submits(name)) api.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, cbid);
  }
  return 0;
}

int floor_open() {
  for (const CUpti_ActivityKind kind : kKinds) {
    if (const int failed = api.enable(kind); failed != 0) return failed;
  }
  return 0;
}

int floor_close() {
  for (const CUpti_ActivityKind kind : kKinds) api.disable(kind);
  return 0;
}

/// Delivers what is left. The device must be idle.
int floor_detach() {
  api.flush(0);
  api.unsubscribe(subscriber);
  return api.finalize();
}

std::uint64_t floor_count_callbacks() {
  return callbacks.load();
}
std::uint64_t floor_bytes() {
  return bytes.load();
}

}  // extern "C"
