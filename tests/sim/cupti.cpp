// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// libcupti.so.13 and libcupti.so.12: the same functions, each with its own version number and record sizes.
#include <cupti.h>

#include <cstdio>
#include <mutex>

#include "tests/sim/core/device.h"
#include "tests/sim/core/trace.h"

// The record layouts of CUDA 12.x.
#include <cupti_activity_deprecated.h>

using namespace inject::sim;

namespace {

constexpr const char* kLibrary = SIM_CUPTI_SONAME;
constexpr bool kCuda13 = SIM_CUPTI_MAJOR == 13;
constexpr std::uint32_t kVersion = kCuda13 ? CUPTI_API_VERSION : 26;  // 26 is that of CUDA 12.6

constexpr trace::RecordSizes kSizes{
    kCuda13 ? sizeof(CUpti_ActivityKernel10) : sizeof(CUpti_ActivityKernel9),
    kCuda13 ? sizeof(CUpti_ActivityMemcpy6) : sizeof(CUpti_ActivityMemcpy5),
    sizeof(CUpti_ActivityMemcpyPtoP4),
    sizeof(CUpti_ActivityMemset4),
};

#define CUPTI_FUNCTION(name)                                      \
  static constinit FunctionSlot slot;                             \
  Function& function = slot.get(kLibrary, #name, Domain::kCupti); \
  if (int fault = function.enter()) return fail(static_cast<CUptiResult>(fault))

thread_local CUptiResult last_error = CUPTI_SUCCESS;

CUptiResult fail(CUptiResult result) {
  if (result != CUPTI_SUCCESS) last_error = result;
  return result;
}

Context* context_of(CUcontext handle) {
  return is_context(handle) ? reinterpret_cast<Context*>(handle) : nullptr;
}

struct ResultName {
  CUptiResult code;
  const char* name;
};
#define RESULT(code) \
  { code, #code }
constexpr ResultName kResults[] = {
    RESULT(CUPTI_SUCCESS),
    RESULT(CUPTI_ERROR_INVALID_PARAMETER),
    RESULT(CUPTI_ERROR_INVALID_DEVICE),
    RESULT(CUPTI_ERROR_INVALID_CONTEXT),
    RESULT(CUPTI_ERROR_INVALID_OPERATION),
    RESULT(CUPTI_ERROR_OUT_OF_MEMORY),
    RESULT(CUPTI_ERROR_HARDWARE),
    RESULT(CUPTI_ERROR_MAX_LIMIT_REACHED),
    RESULT(CUPTI_ERROR_NOT_READY),
    RESULT(CUPTI_ERROR_NOT_COMPATIBLE),
    RESULT(CUPTI_ERROR_NOT_INITIALIZED),
    RESULT(CUPTI_ERROR_INVALID_KIND),
    RESULT(CUPTI_ERROR_NOT_SUPPORTED),
    RESULT(CUPTI_ERROR_HARDWARE_BUSY),
    RESULT(CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED),
    RESULT(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES),
    RESULT(CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED),
    RESULT(CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED),
    RESULT(CUPTI_ERROR_INVALID_CHIP_NAME),
    RESULT(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED),
    RESULT(CUPTI_ERROR_UNKNOWN),
};
#undef RESULT

}  // namespace

extern "C" {

CUptiResult cuptiGetVersion(uint32_t* version) {
  CUPTI_FUNCTION(cuptiGetVersion);
  if (version == nullptr) return fail(CUPTI_ERROR_INVALID_PARAMETER);
  std::uint32_t wanted = faults().cupti_version.load();
  *version = wanted != 0 ? wanted : kVersion;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char** str) {
  CUPTI_FUNCTION(cuptiGetResultString);
  if (str == nullptr) return fail(CUPTI_ERROR_INVALID_PARAMETER);
  for (const ResultName& entry : kResults) {
    if (entry.code != result) continue;
    *str = entry.name;
    return CUPTI_SUCCESS;
  }
  *str = "CUPTI_ERROR_UNKNOWN";
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetErrorMessage(CUptiResult result, const char** str) {
  return cuptiGetResultString(result, str);
}

CUptiResult cuptiGetLastError(void) {
  CUptiResult error = last_error;
  last_error = CUPTI_SUCCESS;
  return error;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* userdata) {
  CUPTI_FUNCTION(cuptiSubscribe);
  return fail(trace::subscribe(subscriber, callback, userdata, nullptr));
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  CUPTI_FUNCTION(cuptiUnsubscribe);
  return fail(trace::unsubscribe(subscriber));
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  CUPTI_FUNCTION(cuptiEnableCallback);
  return fail(trace::enable_callback(enable != 0, subscriber, domain, cbid));
}

CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                              CUpti_CallbackDomain domain) {
  CUPTI_FUNCTION(cuptiEnableDomain);
  return fail(trace::enable_domain(enable != 0, subscriber, domain));
}

CUptiResult cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle subscriber) {
  CUPTI_FUNCTION(cuptiEnableAllDomains);
  for (int domain = CUPTI_CB_DOMAIN_DRIVER_API; domain < CUPTI_CB_DOMAIN_SIZE; ++domain)
    if (CUptiResult result =
            trace::enable_domain(enable != 0, subscriber, static_cast<CUpti_CallbackDomain>(domain)))
      return fail(result);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCallbackState(uint32_t* enable, CUpti_SubscriberHandle subscriber,
                                  CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  CUPTI_FUNCTION(cuptiGetCallbackState);
  return fail(trace::callback_state(enable, subscriber, domain, cbid));
}

CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char** name) {
  CUPTI_FUNCTION(cuptiGetCallbackName);
  if (name == nullptr) return fail(CUPTI_ERROR_INVALID_PARAMETER);
  const char* found = nullptr;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) found = cbid_name(Domain::kDriver, cbid);
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) found = cbid_name(Domain::kRuntime, cbid);
  if (found == nullptr) return fail(CUPTI_ERROR_INVALID_PARAMETER);
  *name = found;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSupportedDomains(size_t* domainCount, CUpti_DomainTable* domainTable) {
  CUPTI_FUNCTION(cuptiSupportedDomains);
  static CUpti_CallbackDomain domains[] = {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API,
                                           CUPTI_CB_DOMAIN_RESOURCE};
  *domainCount = 3;
  *domainTable = domains;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc funcBufferRequested,
                                           CUpti_BuffersCallbackCompleteFunc funcBufferCompleted) {
  CUPTI_FUNCTION(cuptiActivityRegisterCallbacks);
  return fail(trace::register_buffers(funcBufferRequested, funcBufferCompleted));
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  CUPTI_FUNCTION(cuptiActivityEnable);
  return fail(trace::enable_activity(kind, kSizes));
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  CUPTI_FUNCTION(cuptiActivityDisable);
  return fail(trace::disable_activity(kind));
}

CUptiResult cuptiActivityEnableContext(CUcontext context, CUpti_ActivityKind kind) {
  CUPTI_FUNCTION(cuptiActivityEnableContext);
  if (context_of(context) == nullptr) return fail(CUPTI_ERROR_INVALID_CONTEXT);
  return fail(trace::enable_activity(kind, kSizes));
}

CUptiResult cuptiActivityDisableContext(CUcontext context, CUpti_ActivityKind kind) {
  CUPTI_FUNCTION(cuptiActivityDisableContext);
  if (context_of(context) == nullptr) return fail(CUPTI_ERROR_INVALID_CONTEXT);
  return fail(trace::disable_activity(kind));
}

CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  CUPTI_FUNCTION(cuptiActivityFlushAll);
  return fail(trace::flush_all(flag));
}

CUptiResult cuptiActivityFlushPeriod(uint32_t time) {
  CUPTI_FUNCTION(cuptiActivityFlushPeriod);
  return fail(trace::flush_period(time));
}

CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t validBufferSizeBytes,
                                       CUpti_Activity** record) {
  CUPTI_FUNCTION(cuptiActivityGetNextRecord);
  if (buffer == nullptr || record == nullptr) return fail(CUPTI_ERROR_INVALID_PARAMETER);
  auto* next = buffer;
  if (*record != nullptr) {
    auto* bytes = reinterpret_cast<uint8_t*>(*record);
    switch ((*record)->kind) {
      case CUPTI_ACTIVITY_KIND_KERNEL:
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        next = bytes + kSizes.kernel;
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        next = bytes + kSizes.memcpy;
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY2:
        next = bytes + kSizes.memcpy_peer;
        break;
      case CUPTI_ACTIVITY_KIND_MEMSET:
        next = bytes + kSizes.memset;
        break;
      case CUPTI_ACTIVITY_KIND_DRIVER:
      case CUPTI_ACTIVITY_KIND_RUNTIME:
        next = bytes + sizeof(CUpti_ActivityAPI);
        break;
      default:
        return fail(CUPTI_ERROR_INVALID_KIND);
    }
  }
  if (next >= buffer + validBufferSizeBytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  auto* found = reinterpret_cast<CUpti_Activity*>(next);
  if (found->kind == CUPTI_ACTIVITY_KIND_INVALID) return fail(CUPTI_ERROR_INVALID_KIND);
  *record = found;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  CUPTI_FUNCTION(cuptiActivityGetNumDroppedRecords);
  return fail(trace::dropped_records(dropped));
}

CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attr, size_t* valueSize, void* value) {
  CUPTI_FUNCTION(cuptiActivitySetAttribute);
  return fail(trace::attribute(attr, valueSize, value, true));
}

CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute attr, size_t* valueSize, void* value) {
  CUPTI_FUNCTION(cuptiActivityGetAttribute);
  return fail(trace::attribute(attr, valueSize, value, false));
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc funcTimestamp) {
  CUPTI_FUNCTION(cuptiActivityRegisterTimestampCallback);
  return fail(trace::register_timestamp(funcTimestamp));
}

CUptiResult cuptiGetTimestamp(uint64_t* timestamp) {
  CUPTI_FUNCTION(cuptiGetTimestamp);
  if (timestamp == nullptr) return fail(CUPTI_ERROR_INVALID_PARAMETER);
  *timestamp = trace::timestamp();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiFinalize(void) {
  CUPTI_FUNCTION(cuptiFinalize);
  return fail(trace::finalize(true));
}

CUptiResult cuptiGetContextId(CUcontext context, uint32_t* contextId) {
  CUPTI_FUNCTION(cuptiGetContextId);
  Context* found = context_of(context);
  if (found == nullptr) return fail(CUPTI_ERROR_INVALID_CONTEXT);
  *contextId = found->uid;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t perThreadStream,
                               uint32_t* streamId) {
  CUPTI_FUNCTION(cuptiGetStreamIdEx);
  Context* found = context != nullptr ? context_of(context) : current_context();
  if (found == nullptr) return fail(CUPTI_ERROR_INVALID_CONTEXT);
  if (streamId == nullptr) return fail(CUPTI_ERROR_INVALID_PARAMETER);
  if (stream == CU_STREAM_LEGACY || (stream == nullptr && perThreadStream == 0)) {
    *streamId = found->legacy_stream->id;
    return CUPTI_SUCCESS;
  }
  if (stream == CU_STREAM_PER_THREAD || stream == nullptr) {
    *streamId = per_thread_stream_id(found);
    return *streamId != 0 ? CUPTI_SUCCESS : fail(CUPTI_ERROR_INVALID_STREAM);
  }
  std::lock_guard lock(world());
  auto* wanted = reinterpret_cast<Stream*>(stream);
  if (found->streams.count(wanted) == 0) return fail(CUPTI_ERROR_INVALID_STREAM);
  *streamId = wanted->id;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetStreamId(CUcontext context, CUstream stream, uint32_t* streamId) {
  return cuptiGetStreamIdEx(context, stream, 0, streamId);
}

CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t* deviceId) {
  CUPTI_FUNCTION(cuptiGetDeviceId);
  Context* found = context != nullptr ? context_of(context) : current_context();
  if (found == nullptr) return fail(CUPTI_ERROR_INVALID_CONTEXT);
  *deviceId = static_cast<uint32_t>(found->device);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t* nodeId) {
  CUPTI_FUNCTION(cuptiGetGraphNodeId);
  if (node == nullptr || nodeId == nullptr) return fail(CUPTI_ERROR_INVALID_PARAMETER);
  *nodeId = reinterpret_cast<Node*>(node)->id;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetGraphId(CUgraph graph, uint32_t* pId) {
  CUPTI_FUNCTION(cuptiGetGraphId);
  if (graph == nullptr || pId == nullptr) return fail(CUPTI_ERROR_INVALID_PARAMETER);
  *pId = reinterpret_cast<Graph*>(graph)->id;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetGraphExecId(CUgraphExec graphExec, uint32_t* pId) {
  CUPTI_FUNCTION(cuptiGetGraphExecId);
  if (graphExec == nullptr || pId == nullptr) return fail(CUPTI_ERROR_INVALID_PARAMETER);
  *pId = reinterpret_cast<GraphExec*>(graphExec)->id;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType) {
  CUPTI_FUNCTION(cuptiSetThreadIdType);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableLatencyTimestamps(uint8_t) {
  CUPTI_FUNCTION(cuptiActivityEnableLatencyTimestamps);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableHWTrace(uint8_t) {
  CUPTI_FUNCTION(cuptiActivityEnableHWTrace);
  return fail(CUPTI_ERROR_NOT_SUPPORTED);
}

#if SIM_CUPTI_MAJOR == 13
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* userdata,
                              CUpti_SubscriberParams* pParams) {
  CUPTI_FUNCTION(cuptiSubscribe_v2);
  return fail(trace::subscribe(subscriber, callback, userdata, pParams));
}
#endif
}
