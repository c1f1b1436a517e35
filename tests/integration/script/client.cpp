// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A program's own use of CUPTI, as a framework's profiler makes it: linked with the library, loaded late.
#include <cupti.h>
#include <cupti_profiler_target.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr std::size_t kBufferBytes = 64 * 1024;
CUpti_SubscriberHandle subscriber = nullptr;
std::atomic<int> kernels{0};

void CUPTIAPI on_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

void CUPTIAPI on_buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = kBufferBytes;
  *most = 0;
}

void CUPTIAPI on_buffer_completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                                  std::size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) ++kernels;
  std::free(buffer);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int client_subscribe() {
  return cuptiSubscribe(&subscriber, on_callback, nullptr);
}

__attribute__((visibility("default"))) int client_unsubscribe() {
  return cuptiUnsubscribe(subscriber);
}

__attribute__((visibility("default"))) int client_finalize() {
  return cuptiFinalize();
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

// Without subscribing, as newer profilers do it.
__attribute__((visibility("default"))) int client_take_buffers() {
  const int status = cuptiActivityRegisterCallbacks(on_buffer_requested, on_buffer_completed);
  return status != 0 ? status : cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
}

__attribute__((visibility("default"))) int client_records() {
  cuptiActivityFlushAll(0);
  cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cuptiActivityFlushAll(0);
  std::printf("client's kernels: %d\n", kernels.load());
  std::fflush(stdout);
  return 0;
}
}
