// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A program's own use of CUPTI, like a framework's profiler: linked with the library, loaded late.
#include <cupti.h>
#include <cupti_profiler_target.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

namespace {

constexpr std::size_t kBufferBytes = 64 * 1024;
CUpti_SubscriberHandle subscriber = nullptr;
std::atomic<int> kernels{0};
std::atomic<int> strays{0};  // buffers of another client

std::mutex buffers_mutex;
std::set<std::uint8_t*> buffers;

// Called as the linker binds them or, once hidden, as found on the library's own handle, which bypasses every
// hook.
#define CLIENT_CALLS(X)             \
  X(cuptiSubscribe)                 \
  X(cuptiSubscribe_v2)              \
  X(cuptiUnsubscribe)               \
  X(cuptiFinalize)                  \
  X(cuptiActivityRegisterCallbacks) \
  X(cuptiActivityEnable)            \
  X(cuptiActivityDisable)           \
  X(cuptiActivityFlushAll)
struct Calls {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name that is declared
#define CLIENT_CALL(name) decltype(&::name) name = &::name;
  CLIENT_CALLS(CLIENT_CALL)
#undef CLIENT_CALL
} calls;

void CUPTIAPI on_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

void CUPTIAPI on_buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = kBufferBytes;
  *most = 0;
  const std::lock_guard lock(buffers_mutex);
  buffers.insert(*buffer);
}

void CUPTIAPI on_buffer_completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                                  std::size_t valid) {
  {
    const std::lock_guard lock(buffers_mutex);
    if (buffers.erase(buffer) == 0) {
      ++strays;  // a less careful client would free it
      return;
    }
  }
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) ++kernels;
  std::free(buffer);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int client_hide() {
  void* library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return -1;
#define CLIENT_CALL(name) calls.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name));
  CLIENT_CALLS(CLIENT_CALL)
#undef CLIENT_CALL
  return 0;
}

__attribute__((visibility("default"))) int client_subscribe() {
  return calls.cuptiSubscribe(&subscriber, on_callback, nullptr);
}

__attribute__((visibility("default"))) int client_subscribe_named() {
  CUpti_SubscriberParams params{};
  params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  params.subscriberName = "the tests";
  return calls.cuptiSubscribe_v2(&subscriber, on_callback, nullptr, &params);
}

__attribute__((visibility("default"))) int client_unsubscribe() {
  return calls.cuptiUnsubscribe(subscriber);
}

__attribute__((visibility("default"))) int client_finalize() {
  return calls.cuptiFinalize();
}

__attribute__((visibility("default"))) int client_initialize_profiler() {
  CUpti_Profiler_Initialize_Params params{};
  params.structSize = CUpti_Profiler_Initialize_Params_STRUCT_SIZE;
  return cuptiProfilerInitialize(&params);
}

__attribute__((visibility("default"))) int client_end_profiler() {
  CUpti_Profiler_DeInitialize_Params params{};
  params.structSize = CUpti_Profiler_DeInitialize_Params_STRUCT_SIZE;
  return cuptiProfilerDeInitialize(&params);
}

__attribute__((visibility("default"))) int client_enable() {
  return calls.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
}

// Without subscribing, as in newer profilers.
__attribute__((visibility("default"))) int client_register() {
  return calls.cuptiActivityRegisterCallbacks(on_buffer_requested, on_buffer_completed);
}

__attribute__((visibility("default"))) int client_take_buffers() {
  const int status = client_register();
  return status != 0 ? status : client_enable();
}

__attribute__((visibility("default"))) int client_disable() {
  return calls.cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
}

__attribute__((visibility("default"))) int client_flush() {
  return calls.cuptiActivityFlushAll(0);
}

__attribute__((visibility("default"))) int client_count() {
  std::printf("client's kernels: %d\n", kernels.load());
  if (strays != 0) std::printf("buffers of others: %d\n", strays.load());
  std::fflush(stdout);
  return 0;
}

__attribute__((visibility("default"))) int client_records() {
  client_flush();
  client_disable();
  client_flush();
  return client_count();
}
}
