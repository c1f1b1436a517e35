// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/unit/fake_cupti.h"

#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "libinject/base/clock.h"
#include "libinject/capture/cupti/api.h"

namespace inject {

namespace {

using Kernel = CUpti_ActivityKernel9;

constexpr std::pair<CUpti_CallbackId, const char*> kDriverFunctions[] = {
    {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "cuLaunchKernel"},
    {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, "cuLaunchKernel_ptsz"},
    {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, "cuLaunchKernelEx"},
    {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz, "cuLaunchKernelEx_ptsz"},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, "cuGraphLaunch"},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz, "cuGraphLaunch_ptsz"},
    {CUPTI_DRIVER_TRACE_CBID_cuProfilerStart, "cuProfilerStart"},
    {CUPTI_DRIVER_TRACE_CBID_cuProfilerStop, "cuProfilerStop"},
};

/// Returns the result of `work`, unless the test requested a failure of this call.
template <typename Work>
CUptiResult called(const char* function, Work work) {
  CUptiResult result = CUPTI_SUCCESS;
  return FakeCupti::get().enter(function, result) ? work() : result;
}

CUptiResult callback_name(CUpti_CallbackDomain, std::uint32_t id, const char** name) {
  for (const auto& [function, text] : kDriverFunctions) {
    if (function != id) continue;
    *name = text;
    return CUPTI_SUCCESS;
  }
  return CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult next_record(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
  auto* next = *record == nullptr ? buffer : reinterpret_cast<std::uint8_t*>(*record) + sizeof(Kernel);
  if (next + sizeof(Kernel) > buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

CuptiApi fake_api() {
  CuptiApi api;
  api.version = CUPTI_API_VERSION;
  api.path = "a fake";
  api.Subscribe = [](CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* data) {
    return called("Subscribe", [&] { return FakeCupti::get().subscribe(subscriber, callback, data); });
  };
  api.Subscribe_v2 = [](CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* data,
                        CUpti_SubscriberParams* parameters) {
    const CUptiResult result = FakeCupti::get().subscribe(subscriber, callback, data);
    if (result != CUPTI_SUCCESS) std::strcpy(parameters->oldSubscriberName, "another tool");
    return result;
  };
  api.Unsubscribe = [](CUpti_SubscriberHandle subscriber) {
    return called("Unsubscribe", [&] { return FakeCupti::get().unsubscribe(subscriber); });
  };
  api.EnableCallback = [](std::uint32_t on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                          CUpti_CallbackId id) {
    return called("EnableCallback",
                  [&] { return FakeCupti::get().enable_callback(on != 0, subscriber, domain, id); });
  };
  api.EnableDomain = [](std::uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain) {
    return called("EnableDomain", [] { return CUPTI_SUCCESS; });
  };
  api.GetCallbackName = &callback_name;
  api.GetVersion = [](std::uint32_t* version) {
    *version = CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
  };
  api.GetResultString = [](CUptiResult, const char** text) {
    *text = "CUPTI_ERROR_OF_A_TEST";
    return CUPTI_SUCCESS;
  };
  api.Finalize = [] {
    return called("Finalize", [] {
      FakeCupti::get().finalize();
      return CUPTI_SUCCESS;
    });
  };
  api.ActivityEnable = [](CUpti_ActivityKind kind) {
    return called("ActivityEnable", [&] { return FakeCupti::get().enable_activity(kind, true); });
  };
  api.ActivityDisable = [](CUpti_ActivityKind kind) {
    return called("ActivityDisable", [&] { return FakeCupti::get().enable_activity(kind, false); });
  };
  api.ActivityFlushAll = [](std::uint32_t flags) {
    return called("ActivityFlushAll",
                  [&] { return FakeCupti::get().flush((flags & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0); });
  };
  api.ActivityGetNextRecord = &next_record;
  api.ActivityGetNumDroppedRecords = [](CUcontext, std::uint32_t, std::size_t* dropped) {
    *dropped = FakeCupti::get().take_dropped();
    return CUPTI_SUCCESS;
  };
  api.ActivityRegisterCallbacks = [](CUpti_BuffersCallbackRequestFunc request,
                                     CUpti_BuffersCallbackCompleteFunc complete) {
    return called("ActivityRegisterCallbacks",
                  [&] { return FakeCupti::get().register_buffers(request, complete); });
  };
  api.ActivityRegisterTimestampCallback = [](CUpti_TimestampCallbackFunc) {
    return called("ActivityRegisterTimestampCallback", [] { return CUPTI_SUCCESS; });
  };
  api.ActivitySetAttribute = [](CUpti_ActivityAttribute, std::size_t*, void*) {
    return called("ActivitySetAttribute", [] { return CUPTI_SUCCESS; });
  };
  return api;
}

}  // namespace

// Replaces libinject/capture/cupti/api.cpp.
bool load_cupti(CuptiApi& api, std::string& error) {
  if (!FakeCupti::get().present) {
    error = "there is no CUPTI";
    return false;
  }
  api = fake_api();
  return true;
}

std::string CuptiApi::describe(CUptiResult result) const {
  return "error " + std::to_string(static_cast<int>(result));
}

// Leaked, because it is called until the process exits.
FakeCupti& FakeCupti::get() {
  static auto* const cupti = new FakeCupti;
  return *cupti;
}

void FakeCupti::answer(const std::string& function, CUptiResult result, int times) {
  const std::lock_guard lock(mutex_);
  answers_[function] = {result, times};
}

void FakeCupti::hold(const std::string& function) {
  const std::lock_guard lock(mutex_);
  held_ = function;
  released_.notify_all();
}

bool FakeCupti::holds() const {
  const std::lock_guard lock(mutex_);
  return waiting_ != 0;
}

bool FakeCupti::enter(const char* function, CUptiResult& result) {
  std::unique_lock lock(mutex_);
  if (const auto found = answers_.find(function); found != answers_.end() && found->second.second > 0) {
    --found->second.second;
    result = found->second.first;
    return false;
  }
  ++waiting_;
  released_.wait(lock, [&] { return held_ != function; });
  --waiting_;
  ++counts_[function];
  return true;
}

int FakeCupti::count(const std::string& function) const {
  const std::lock_guard lock(mutex_);
  const auto found = counts_.find(function);
  return found == counts_.end() ? 0 : found->second;
}

bool FakeCupti::subscribed() const {
  const std::lock_guard lock(mutex_);
  return subscriber_ != 0;
}

bool FakeCupti::records_kernels() const {
  const std::lock_guard lock(mutex_);
  return activities_.count(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != 0;
}

CUptiResult FakeCupti::other_subscribes() {
  const std::lock_guard lock(mutex_);
  if (subscriber_ != 0 || other_) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  other_ = true;
  return CUPTI_SUCCESS;
}

void FakeCupti::other_unsubscribes() {
  const std::lock_guard lock(mutex_);
  other_ = false;
}

CUptiResult FakeCupti::subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                                 void* data) {
  const std::lock_guard lock(mutex_);
  if (subscriber_ != 0 || other_) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  subscriber_ = ++subscriptions_;
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(subscriber_);
  callback_ = callback;
  callback_data_ = data;
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::unsubscribe(CUpti_SubscriberHandle subscriber) {
  const std::lock_guard lock(mutex_);
  if (subscriber_ == 0 || reinterpret_cast<std::uintptr_t>(subscriber) != subscriber_)
    return CUPTI_ERROR_INVALID_PARAMETER;
  subscriber_ = 0;
  callbacks_.clear();
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::enable_callback(bool on, CUpti_SubscriberHandle subscriber,
                                       CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  const std::lock_guard lock(mutex_);
  if (subscriber_ == 0 || reinterpret_cast<std::uintptr_t>(subscriber) != subscriber_)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (on) {
    callbacks_.emplace(domain, id);
  } else {
    callbacks_.erase({domain, id});
  }
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::enable_activity(CUpti_ActivityKind kind, bool on) {
  const std::lock_guard lock(mutex_);
  if (on) {
    activities_.insert(kind);
  } else {
    activities_.erase(kind);
  }
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::register_buffers(CUpti_BuffersCallbackRequestFunc request,
                                        CUpti_BuffersCallbackCompleteFunc complete) {
  const std::lock_guard lock(mutex_);
  request_ = request;
  complete_ = complete;
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::flush(bool force) {
  std::unique_lock lock(mutex_);
  if (buffer_.data == nullptr || (running && !force)) return CUPTI_SUCCESS;
  const Buffer full = std::exchange(buffer_, {});
  for (std::size_t at = 0; running && at < full.used; at += sizeof(Kernel)) {
    auto* kernel = reinterpret_cast<Kernel*>(full.data + at);
    kernel->start = kernel->end = 0;
  }
  const auto complete = complete_;
  lock.unlock();
  complete(nullptr, 0, full.data, full.size, full.used);
  return CUPTI_SUCCESS;
}

std::size_t FakeCupti::take_dropped() {
  const std::lock_guard lock(mutex_);
  return std::exchange(dropped_, 0);
}

// Does not return the buffers that it holds.
void FakeCupti::finalize() {
  const std::lock_guard lock(mutex_);
  subscriber_ = 0;
  callbacks_.clear();
  activities_.clear();
  buffer_ = {};
}

void FakeCupti::fail() {
  std::unique_lock lock(mutex_);
  if (callbacks_.count({CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR}) == 0) return;
  const auto callback = callback_;
  void* const callback_data = callback_data_;
  lock.unlock();
  callback(callback_data, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR, nullptr);
}

template <typename Parameters, typename Meanwhile>
void FakeCupti::driver_call(CUpti_CallbackId id, const char* name, const Parameters& parameters,
                            Meanwhile meanwhile) {
  std::unique_lock lock(mutex_);
  const bool told = callbacks_.count({CUPTI_CB_DOMAIN_DRIVER_API, id}) != 0;
  const auto callback = callback_;
  void* const callback_data = callback_data_;
  CUpti_CallbackData data{};
  std::uint64_t carried = 0;
  CUresult status = CUDA_SUCCESS;
  data.callbackSite = CUPTI_API_ENTER;
  data.functionParams = &parameters;
  data.functionReturnValue = &status;
  data.symbolName = name;
  data.correlationId = ++correlation_;
  data.correlationData = &carried;
  lock.unlock();
  if (told) callback(callback_data, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
  meanwhile(data.correlationId);
  data.callbackSite = CUPTI_API_EXIT;
  if (told) callback(callback_data, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
}

void FakeCupti::record_kernel(std::uint32_t correlation, const char* name) {
  std::unique_lock lock(mutex_);
  if (activities_.count(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == 0 || request_ == nullptr) return;
  if (buffer_.data != nullptr && buffer_.used + sizeof(Kernel) > buffer_.size) {
    const Buffer full = std::exchange(buffer_, {});
    const auto complete = complete_;
    lock.unlock();
    complete(nullptr, 0, full.data, full.size, full.used);
    lock.lock();
  }
  if (buffer_.data == nullptr) {
    const auto request = request_;
    lock.unlock();
    Buffer fresh;
    std::size_t most = 0;
    request(&fresh.data, &fresh.size, &most);
    lock.lock();
    buffer_ = fresh;
  }
  if (buffer_.data == nullptr) {
    ++dropped_;
    return;
  }
  Kernel kernel{};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.start = now();
  kernel.end = kernel.start + 1;
  kernel.streamId = 7;
  kernel.contextId = 1;
  kernel.correlationId = correlation;
  kernel.gridX = kernel.gridY = kernel.gridZ = kernel.blockX = kernel.blockY = kernel.blockZ = 1;
  kernel.name = name;
  std::memcpy(buffer_.data + buffer_.used, &kernel, sizeof kernel);
  buffer_.used += sizeof kernel;
}

void FakeCupti::launch(std::uintptr_t function, const char* name) {
  cuLaunchKernel_params parameters{};
  parameters.f = reinterpret_cast<CUfunction>(function);
  parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
  parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1;
  driver_call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, name, parameters,
              [&](std::uint32_t correlation) { record_kernel(correlation, name); });
}

void FakeCupti::launch_graph() {
  cuGraphLaunch_params parameters{};
  parameters.hGraph = reinterpret_cast<CUgraphExec>(std::uintptr_t{1});
  driver_call(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, nullptr, parameters,
              [this](std::uint32_t correlation) { record_kernel(correlation, "_Z4nodev"); });
}

void FakeCupti::profiler_start() {
  driver_call(CUPTI_DRIVER_TRACE_CBID_cuProfilerStart, nullptr, 0, [](std::uint32_t) {});
}

void FakeCupti::profiler_stop() {
  driver_call(CUPTI_DRIVER_TRACE_CBID_cuProfilerStop, nullptr, 0, [](std::uint32_t) {});
}

}  // namespace inject
