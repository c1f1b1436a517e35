// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/cupti/tracer.h"

#include <cuda.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "libinject/base/clock.h"
#include "libinject/base/mapping.h"
#include "libinject/capture/cupti/foreign_client.h"
#include "libinject/capture/cupti/holder.h"
#include "libinject/capture/cupti/launch_observer.h"
#include "libinject/model/functions.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"
#include "libinject/record/iteration_watch.h"
#include "libinject/record/thread_registry.h"

namespace inject {

namespace {

constexpr std::array kActivityKinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                       CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET};

// What each driver callback id stands for, filled from CUPTI's own names when it is first attached: one
// binary serves driver versions that number functions which its headers don't know.
constexpr std::uint32_t kMaxDriverFunctions = 2048;
constinit std::array<DriverCall, kMaxDriverFunctions> driver_calls{};

// Where a launch's parameters keep its stream: 0 unknown.
enum class StreamAt : std::uint8_t { kUnknown, kLaunchKernel, kLaunchKernelEx, kGraphLaunch };
constinit std::array<StreamAt, kMaxDriverFunctions> stream_at{};

// Copies and memsets whose third parameter is their size: of zero bytes they submit nothing, and no record
// comes.
constinit std::array<bool, kMaxDriverFunctions> size_is_third{};

// Where the other copies and memsets have their sizes, of which any may be 0. For these it has not been
// measured that no record comes: they are launches, and one that comes finds its own.
enum class SizesAt : std::uint8_t {
  kUnknown,
  kFourth,
  kFifth,
  kFourthAndFifth,
  kCopy2D,
  kCopy3D,
  kPeer3D,
  kBatch
};
constinit std::array<SizesAt, kMaxDriverFunctions> sizes_at{};

// Where copies go, as far as their names say it.
constinit std::array<SignKind, kMaxDriverFunctions> copy_kind{};

constinit std::atomic<ActivityBuffers*> active_buffers{nullptr};
constinit std::atomic<std::uint64_t> dropped{0};
constinit std::atomic<Nanoseconds> buffer_time{0};
constinit Tracer::Events profiler_events{nullptr, nullptr};
constinit std::atomic<bool> fatal{false};
constinit std::atomic<std::uint32_t> failures_so_far{0};
constinit std::atomic<bool> graphs{false};
constinit std::atomic<decltype(&::cuptiActivityGetNumDroppedRecords)> get_dropped{nullptr};
constinit std::atomic<decltype(&::cuptiGetGraphNodeId)> get_node_id{nullptr};

constinit std::mutex use_mutex;

// CUPTI's clock beyond ours, where it does not take ours.
constinit std::atomic<Nanoseconds> clock_ahead{0};

// Bit per DriverCall whose activity CUPTI does not record: no record is to be waited for.
constinit std::atomic<std::uint32_t> unrecorded_calls{0};

std::uint64_t timestamp() {
  return now();
}

StreamAt stream_position(const char* name) noexcept {
  if (std::strncmp(name, "cuLaunchKernelEx", 16) == 0) return StreamAt::kLaunchKernelEx;
  if (std::strncmp(name, "cuLaunchKernel", 14) == 0) return StreamAt::kLaunchKernel;
  if (std::strncmp(name, "cuLaunchCooperativeKernel", 25) == 0 &&
      std::strstr(name, "MultiDevice") == nullptr) {
    return StreamAt::kLaunchKernel;  // the same leading parameters
  }
  if (std::strncmp(name, "cuGraphLaunch", 13) == 0) return StreamAt::kGraphLaunch;
  return StreamAt::kUnknown;
}

bool has_size_third(const char* name) noexcept {
  constexpr const char* kPlain[] = {
      "cuMemcpyHtoD_",      "cuMemcpyHtoDAsync_", "cuMemcpyDtoH_",   "cuMemcpyDtoHAsync_", "cuMemcpyDtoD_",
      "cuMemcpyDtoDAsync_", "cuMemsetD8_",        "cuMemsetD16_",    "cuMemsetD32_",       "cuMemcpyAsync",
      "cuMemsetD8Async",    "cuMemsetD16Async",   "cuMemsetD32Async"};
  for (const char* prefix : kPlain) {
    if (std::strncmp(name, prefix, std::strlen(prefix)) == 0) return true;
  }
  return std::strcmp(name, "cuMemcpy") == 0 || std::strcmp(name, "cuMemcpy_ptds") == 0;
}

bool submits_nothing(CUpti_CallbackId cbid, const void* parameters) noexcept {
  // Two eight-byte parameters (or ones padded to that) come first in all of them.
  static_assert(offsetof(cuMemcpyHtoDAsync_v2_params, ByteCount) == 16 &&
                offsetof(cuMemcpyAsync_params, ByteCount) == 16 &&
                offsetof(cuMemsetD8Async_params, N) == 16 && offsetof(cuMemsetD32_v2_params, N) == 16);
  if (!size_is_third[cbid] || parameters == nullptr) return false;
  std::size_t size;
  std::memcpy(&size, static_cast<const char*>(parameters) + 16, sizeof size);
  return size == 0;
}

SizesAt sizes_position(const char* name) noexcept {
  // Of what has a version, the first one was for 32 bits.
  struct Known {
    const char* prefix;
    SizesAt at;
  };
  constexpr Known kKnown[] = {{"cuMemcpy2D_v2", SizesAt::kCopy2D},
                              {"cuMemcpy2DUnaligned_v2", SizesAt::kCopy2D},
                              {"cuMemcpy2DAsync_v2", SizesAt::kCopy2D},
                              {"cuMemcpy3D_v2", SizesAt::kCopy3D},
                              {"cuMemcpy3DAsync_v2", SizesAt::kCopy3D},
                              {"cuMemcpy3DPeer", SizesAt::kPeer3D},
                              {"cuMemcpyPeer", SizesAt::kFifth},
                              {"cuMemcpyAtoA_v2", SizesAt::kFifth},
                              {"cuMemcpyDtoA_v2", SizesAt::kFourth},
                              {"cuMemcpyAtoD_v2", SizesAt::kFourth},
                              {"cuMemcpyHtoA_v2", SizesAt::kFourth},
                              {"cuMemcpyAtoH_v2", SizesAt::kFourth},
                              {"cuMemcpyHtoAAsync_v2", SizesAt::kFourth},
                              {"cuMemcpyAtoHAsync_v2", SizesAt::kFourth},
                              {"cuMemsetD2D8_v2", SizesAt::kFourthAndFifth},
                              {"cuMemsetD2D16_v2", SizesAt::kFourthAndFifth},
                              {"cuMemsetD2D32_v2", SizesAt::kFourthAndFifth},
                              {"cuMemsetD2D8Async", SizesAt::kFourthAndFifth},
                              {"cuMemsetD2D16Async", SizesAt::kFourthAndFifth},
                              {"cuMemsetD2D32Async", SizesAt::kFourthAndFifth},
                              {"cuMemcpyBatchAsync", SizesAt::kBatch}};
  for (const Known& known : kKnown) {
    if (std::strncmp(name, known.prefix, std::strlen(known.prefix)) == 0) return known.at;
  }
  return SizesAt::kUnknown;
}

// Whether one of the sizes is 0, so that there is nothing to copy or set; of a batch, all of them.
bool is_empty(CUpti_CallbackId cbid, const void* parameters) noexcept {
  static_assert(
      offsetof(cuMemcpyPeer_params, ByteCount) == 32 && offsetof(cuMemcpyAtoA_v2_params, ByteCount) == 32 &&
      offsetof(cuMemcpyHtoAAsync_v2_params, ByteCount) == 24 &&
      offsetof(cuMemcpyAtoD_v2_params, ByteCount) == 24 && offsetof(cuMemsetD2D8_v2_params, Width) == 24 &&
      offsetof(cuMemsetD2D32Async_params, Height) == 32);
  if (parameters == nullptr) return false;
  const auto size_at = [parameters](std::size_t offset) {
    std::size_t size;
    std::memcpy(&size, static_cast<const char*>(parameters) + offset, sizeof size);
    return size;
  };
  const void* first = nullptr;
  std::memcpy(static_cast<void*>(&first), parameters, sizeof first);
  switch (sizes_at[cbid]) {
    case SizesAt::kFourth:
      return size_at(24) == 0;
    case SizesAt::kFifth:
      return size_at(32) == 0;
    case SizesAt::kFourthAndFifth:
      return size_at(24) == 0 || size_at(32) == 0;
    case SizesAt::kCopy2D: {
      const auto* copy = static_cast<const CUDA_MEMCPY2D*>(first);
      return copy != nullptr && (copy->WidthInBytes == 0 || copy->Height == 0);
    }
    case SizesAt::kCopy3D: {
      const auto* copy = static_cast<const CUDA_MEMCPY3D*>(first);
      return copy != nullptr && (copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0);
    }
    case SizesAt::kPeer3D: {
      const auto* copy = static_cast<const CUDA_MEMCPY3D_PEER*>(first);
      return copy != nullptr && (copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0);
    }
    case SizesAt::kBatch: {
      // Targets, sources, sizes, how many.
      const std::size_t* sizes = nullptr;
      std::memcpy(static_cast<void*>(&sizes), static_cast<const char*>(parameters) + 16, sizeof sizes);
      const std::size_t count = size_at(24);
      return sizes != nullptr &&
             std::all_of(sizes, sizes + count, [](std::size_t size) { return size == 0; });
    }
    case SizesAt::kUnknown:
      break;
  }
  return false;
}

// What may be launched without a device record to come.
LaunchObserver::Work work_of(DriverCall call, CUpti_CallbackId cbid, const void* parameters) noexcept {
  if (call == DriverCall::kGraphLaunch) {
    const void* graph =
        parameters == nullptr ? nullptr : static_cast<const cuGraphLaunch_params*>(parameters)->hGraph;
    return {kCallGraph,
            static_cast<std::uint16_t>(hash_mix(reinterpret_cast<std::uint64_t>(graph) * kHashSeed))};
  }
  return {static_cast<std::uint8_t>(is_empty(cbid, parameters) ? kCallNoWork : 0), 0};
}

std::uint64_t stream_of(CUpti_CallbackId cbid, const void* parameters) noexcept {
  if (parameters == nullptr) return 0;
  switch (stream_at[cbid]) {
    case StreamAt::kLaunchKernel:
      return reinterpret_cast<std::uint64_t>(static_cast<const cuLaunchKernel_params*>(parameters)->hStream);
    case StreamAt::kLaunchKernelEx: {
      const auto* config = static_cast<const cuLaunchKernelEx_params*>(parameters)->config;
      return config == nullptr ? 0 : reinterpret_cast<std::uint64_t>(config->hStream);
    }
    case StreamAt::kGraphLaunch:
      return reinterpret_cast<std::uint64_t>(static_cast<const cuGraphLaunch_params*>(parameters)->hStream);
    case StreamAt::kUnknown:
      break;
  }
  return 0;
}

// A launch, copy or memset as the search for iterations has it. Handles of kernels stay the same while their
// module is loaded.
void tell_sign(DriverCall call, CUpti_CallbackId cbid, const CUpti_CallbackData& data) noexcept {
  const void* parameters = data.functionParams;
  if (parameters == nullptr) return;
  const std::uint64_t stream = stream_of(cbid, parameters);
  const Nanoseconds begin = LaunchObserver::call_begin();
  const auto hashed = [](const void* handle) {
    return hash_mix(reinterpret_cast<std::uint64_t>(handle) * kHashSeed + 1);
  };
  const auto kernel = [&](const void* handle, std::uint64_t grid_xy, std::uint64_t grid_z,
                          std::uint64_t block_xy, std::uint64_t block_z) {
    const std::uint64_t function = hashed(handle);
    if (data.symbolName != nullptr && function_is_new(function)) emit_name(function, data.symbolName);
    const std::uint64_t shape =
        hash_mix((function ^ grid_xy) * kHashSeed + hash_mix(block_xy ^ (grid_z << 32 | block_z)));
    emit_sign(SignKind::kKernel, function, shape, stream, true, begin);
  };
  const auto pair = [](std::uint64_t x, std::uint64_t y) { return x << 32 | y; };
  switch (call) {
    case DriverCall::kLaunch:
      if (stream_at[cbid] == StreamAt::kLaunchKernel) {
        const auto* p = static_cast<const cuLaunchKernel_params*>(parameters);
        kernel(p->f, pair(p->gridDimX, p->gridDimY), p->gridDimZ, pair(p->blockDimX, p->blockDimY),
               p->blockDimZ);
      } else if (stream_at[cbid] == StreamAt::kLaunchKernelEx) {
        const auto* p = static_cast<const cuLaunchKernelEx_params*>(parameters);
        if (p->config == nullptr) return;
        const CUlaunchConfig& c = *p->config;
        kernel(p->f, pair(c.gridDimX, c.gridDimY), c.gridDimZ, pair(c.blockDimX, c.blockDimY), c.blockDimZ);
      } else {
        emit_sign(SignKind::kKernel, cbid, hash_mix(cbid * kHashSeed), stream, true, begin);
      }
      break;
    case DriverCall::kGraphLaunch: {
      const std::uint64_t graph = hashed(static_cast<const cuGraphLaunch_params*>(parameters)->hGraph);
      emit_sign(SignKind::kGraph, graph, hash_mix(graph + 1), stream, true, begin);
      break;
    }
    case DriverCall::kCopy:
    case DriverCall::kMemset: {
      const SignKind kind = call == DriverCall::kMemset ? SignKind::kMemset : copy_kind[cbid];
      std::uint64_t size = 0;
      if (size_is_third[cbid]) std::memcpy(&size, static_cast<const char*>(parameters) + 16, sizeof size);
      emit_sign(kind, cbid, hash_mix(cbid * kHashSeed + size), stream, true, begin);
      break;
    }
    case DriverCall::kOther:
      break;
  }
}

void on_driver_call(CUpti_CallbackId cbid, const CUpti_CallbackData& data) noexcept {
  if (cbid >= kMaxDriverFunctions) return;
  const DriverCall call = driver_calls[cbid];
  const bool enter = data.callbackSite == CUPTI_API_ENTER;
  const bool unrecorded =
      (unrecorded_calls.load(std::memory_order_relaxed) >> static_cast<unsigned>(call) & 1u) != 0;
  if (call == DriverCall::kOther || unrecorded || submits_nothing(cbid, data.functionParams)) {
    if (cbid == CUPTI_DRIVER_TRACE_CBID_cuProfilerStart || cbid == CUPTI_DRIVER_TRACE_CBID_cuProfilerStop) {
      // Seen twice, nested, for one call: edges count, not calls. Opened on the way out, closed on the way
      // in.
      if (!enter && cbid == CUPTI_DRIVER_TRACE_CBID_cuProfilerStart) profiler_events.profiler_start();
      if (enter && cbid == CUPTI_DRIVER_TRACE_CBID_cuProfilerStop) profiler_events.profiler_stop();
      return;
    }
    const int status = enter || data.functionReturnValue == nullptr
                           ? 0
                           : *static_cast<const CUresult*>(data.functionReturnValue);
    if (enter) {
      LaunchObserver::enter_plain(data.correlationData);
    } else {
      LaunchObserver::leave_plain(cbid, data.correlationId, status, data.correlationData);
    }
    return;
  }
  if (call == DriverCall::kGraphLaunch) graphs.store(true, std::memory_order_relaxed);
  if (enter) {
    if (iteration_watch.source.load(std::memory_order_relaxed) == SignSource::kCallbacks) {
      tell_sign(call, cbid, data);
    }
    LaunchObserver::enter(call, cbid, data.correlationId, stream_of(cbid, data.functionParams),
                          data.correlationData);
  } else {
    const int status =
        data.functionReturnValue == nullptr ? 0 : *static_cast<const CUresult*>(data.functionReturnValue);
    // What a call that failed was given may be no memory at all.
    const bool made = status == 0 && *data.correlationData != 0;
    LaunchObserver::leave(made ? work_of(call, cbid, data.functionParams) : LaunchObserver::Work{}, cbid,
                          data.correlationId, stream_of(cbid, data.functionParams), status,
                          data.correlationData);
  }
}

/// CUPTI's id of a graph's node, as its kernel's records have it; 0 if there is none.
std::uint64_t node_id(CUgraphNode node) noexcept {
  std::uint64_t id = 0;
  auto* ask = get_node_id.load(std::memory_order_acquire);
  return ask != nullptr && node != nullptr && ask(node, &id) == CUPTI_SUCCESS ? id : 0;
}

void on_resource(CUpti_CallbackId cbid, const void* data) noexcept {
  if (cbid == CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED) graphs.store(true, std::memory_order_relaxed);
  if (cbid != CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED && cbid != CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) return;
  const auto& resource = *static_cast<const CUpti_ResourceData*>(data);
  const auto* graph = static_cast<const CUpti_GraphData*>(resource.resourceDescriptor);
  const bool kernel = graph != nullptr && graph->nodeType == CU_GRAPH_NODE_TYPE_KERNEL;
  if (cbid == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
    LaunchObserver::graph_node_created();
    if (kernel && LaunchObserver::captures_kernel()) LaunchObserver::kernel_captured(node_id(graph->node));
  } else if (kernel) {
    LaunchObserver::graph_node_cloned(node_id(graph->node), node_id(graph->originalNode));
  }
}

// Nothing below us may throw, and nothing does: the callbacks are plain stores into memory that is already
// there.
void CUPTIAPI on_callback(void*, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void* data) {
  switch (domain) {
    case CUPTI_CB_DOMAIN_DRIVER_API:
      on_driver_call(cbid, *static_cast<const CUpti_CallbackData*>(data));
      break;
    case CUPTI_CB_DOMAIN_RESOURCE:
      on_resource(cbid, data);
      break;
    case CUPTI_CB_DOMAIN_STATE:
      if (cbid == CUPTI_CBID_STATE_FATAL_ERROR) {
        failures_so_far.fetch_add(1, std::memory_order_release);
        fatal.store(true, std::memory_order_release);
      }
      break;
    default:
      break;
  }
}

// Adds the time until its end to buffer_time: some 50 ns a buffer of thousands of records.
class TimedBuffer {
 public:
  TimedBuffer() noexcept : since_(now()) {}
  ~TimedBuffer() { buffer_time.fetch_add(now() - since_, std::memory_order_relaxed); }
  TimedBuffer(const TimedBuffer&) = delete;
  TimedBuffer& operator=(const TimedBuffer&) = delete;

 private:
  Nanoseconds since_;
};

void CUPTIAPI on_buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  const TimedBuffer timed;
  ActivityBuffers* buffers = active_buffers.load(std::memory_order_acquire);
  const ActivityBuffers::Buffer taken =
      buffers == nullptr ? ActivityBuffers::Buffer{}
                         : buffers->take(current_generation.load(std::memory_order_relaxed));
  *buffer = taken.data;
  *size = taken.bytes;
  *most_records = 0;
}

void note_dropped(CUcontext context, std::uint32_t stream) noexcept {
  std::size_t lost = 0;
  if (auto* ask = get_dropped.load(std::memory_order_acquire);
      ask != nullptr && ask(context, stream, &lost) == CUPTI_SUCCESS) {
    dropped.fetch_add(lost, std::memory_order_relaxed);
  }
}

void CUPTIAPI on_buffer_completed(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                                  std::size_t valid) {
  const TimedBuffer timed;
  note_dropped(context, stream);
  if (ActivityBuffers* buffers = active_buffers.load(std::memory_order_acquire); buffers != nullptr) {
    buffers->complete(buffer, valid);
  }
}

/// Who has subscribed, after we were refused: as CUPTI knows it, and as hooks, environment or loaded
/// libraries have it. Empty if nobody knows.
std::string holder_name(const CuptiApi& api) {
  std::string name;
  if (api.Subscribe_v2 != nullptr) {
    std::array<char, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN> holder{};
    CUpti_SubscriberParams params{};
    params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    params.subscriberName = "libinject";
    params.oldSubscriberName = holder.data();
    params.oldSubscriberSize = holder.size();
    CUpti_SubscriberHandle subscriber = nullptr;
    // The holder may have gone since, or this CUPTI may take several who subscribe in this way: not ours.
    if (api.Subscribe_v2(&subscriber, &on_callback, nullptr, &params) == CUPTI_SUCCESS) {
      api.Unsubscribe(subscriber);
    } else {
      holder.back() = '\0';
      // What CUPTI 13.0 says of those who have given no name.
      if (std::strstr(holder.data(), "<not provided>") == nullptr) name = holder.data();
    }
  }
  std::string likely = foreign_client.has_subscriber() ? foreign_client.name() : likely_holder();
  if (likely.empty() && foreign_client.has_subscriber()) likely = "the program itself";
  if (name.empty() || likely.empty()) return name + likely;
  return name + ", " + likely;
}

}  // namespace

Tracer::Tracer(ActivityBuffers& buffers, Events events) noexcept : buffers_(buffers) {
  profiler_events = events;
}

Nanoseconds Tracer::to_our_clock(Nanoseconds time) noexcept {
  return time == 0 ? 0 : time - clock_ahead.load(std::memory_order_relaxed);
}

Nanoseconds Tracer::clock_ahead_of_ours() noexcept {
  return clock_ahead.load(std::memory_order_relaxed);
}

Nanoseconds Tracer::buffer_callback_time() noexcept {
  return buffer_time.load(std::memory_order_relaxed);
}
std::uint64_t Tracer::dropped_records() noexcept {
  return dropped.load(std::memory_order_relaxed);
}
bool Tracer::saw_graphs() noexcept {
  return graphs.load(std::memory_order_relaxed);
}
bool Tracer::failed() noexcept {
  return fatal.load(std::memory_order_acquire);
}

std::uint32_t Tracer::failures() noexcept {
  return failures_so_far.load(std::memory_order_acquire);
}

// What CUPTI's callbacks are about, by the names that it has for the driver's functions. False where a launch
// has none: what it launches would be taken for what was on its way as the window opened.
bool Tracer::name_driver_calls(std::string& error) {
  for (std::uint32_t cbid = 1; cbid < kMaxDriverFunctions; ++cbid) {
    const char* name = nullptr;
    if (api_.GetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, cbid, &name) != CUPTI_SUCCESS || name == nullptr)
      continue;
    driver_calls[cbid] = classify_driver_call(name);
    stream_at[cbid] = stream_position(name);
    size_is_third[cbid] = has_size_third(name);
    sizes_at[cbid] = sizes_position(name);
    copy_kind[cbid] = std::strstr(name, "HtoD") != nullptr   ? SignKind::kCopyToDevice
                      : std::strstr(name, "DtoH") != nullptr ? SignKind::kCopyToHost
                                                             : SignKind::kCopy;
    set_driver_function_name(static_cast<FunctionId>(kDriverFunction | cbid), name);
  }
  for (const auto cbid :
       {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz}) {
    if (driver_calls[cbid] != DriverCall::kOther) continue;
    error = "CUPTI does not name the launch that its callback " + std::to_string(cbid) + " is about";
    return false;
  }
  return true;
}

bool Tracer::attach(std::string& error) {
  if (!loaded_) {
    if (!load_cupti(api_, error)) return false;
    get_dropped.store(api_.ActivityGetNumDroppedRecords, std::memory_order_release);
    get_node_id.store(api_.GetGraphNodeId, std::memory_order_release);
    if (!name_driver_calls(error)) return false;
    loaded_ = true;
  }
  const CUptiResult result = api_.Subscribe(&subscriber_, &on_callback, nullptr);
  if (result != CUPTI_SUCCESS) {
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
      const std::string holder = holder_name(api_);
      error = "another profiler is attached to this process" + (holder.empty() ? " " : ": " + holder + " ") +
              "(" + api_.describe(result) + ")";
    } else {
      error = "cuptiSubscribe failed: " + api_.describe(result);
    }
    subscriber_ = nullptr;
    return false;
  }
  fatal.store(false, std::memory_order_release);
  current_generation.fetch_add(1, std::memory_order_release);
  active_buffers.store(&buffers_, std::memory_order_release);
  for (const auto cbid : {CUPTI_DRIVER_TRACE_CBID_cuProfilerStart, CUPTI_DRIVER_TRACE_CBID_cuProfilerStop}) {
    api_.EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, static_cast<CUpti_CallbackId>(cbid));
  }
  api_.EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR);
  level_ = TracerLevel::kProfilerCalls;
  return true;
}

bool Tracer::enable_launch_callbacks(bool all_driver_calls, std::string& error) {
  for (std::uint32_t cbid = 1; cbid < kMaxDriverFunctions; ++cbid) {
    if (driver_calls[cbid] == DriverCall::kOther) continue;
    const CUptiResult result = api_.EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, cbid);
    if (result != CUPTI_SUCCESS && driver_calls[cbid] == DriverCall::kLaunch) {
      error = "launch callbacks can't be enabled: " + api_.describe(result);
      return false;
    }
  }
  if (all_driver_calls) api_.EnableDomain(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API);
  for (const auto cbid : {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
                          CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED}) {
    api_.EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, static_cast<CUpti_CallbackId>(cbid));
  }
  level_ = TracerLevel::kLaunches;
  return true;
}

bool Tracer::enable_activity(std::string& error) {
  // We hand over zeroed buffers, so that CUPTI does not zero them on the launching thread. A CUPTI that
  // doesn't know the attribute zeroes them again, which does no harm.
  std::uint8_t zeroed = 1;
  std::size_t size = sizeof zeroed;
  api_.ActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &zeroed);
  CUptiResult result = api_.ActivityRegisterCallbacks(&on_buffer_requested, &on_buffer_completed);
  if (result != CUPTI_SUCCESS) {
    error = "activity buffers can't be registered: " + api_.describe(result);
    return false;
  }
  // CLOCK_MONOTONIC instead of CUPTI's default, CLOCK_REALTIME, which can step. Anew after each finalize,
  // once each.
  const bool ours = api_.ActivityRegisterTimestampCallback != nullptr &&
                    api_.ActivityRegisterTimestampCallback(&timestamp) == CUPTI_SUCCESS;
  clock_ahead.store(ours ? 0 : realtime_ahead(), std::memory_order_relaxed);
  collecting_activity.store(true, std::memory_order_release);
  std::uint32_t unrecorded = 0;
  for (const CUpti_ActivityKind kind : kActivityKinds) {
    result = api_.ActivityEnable(kind);
    if (result == CUPTI_SUCCESS) continue;
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      error = "kernel activity can't be enabled: " + api_.describe(result);
      return false;
    }
    error = "copies or memsets are missing: " + api_.describe(result);
    if (kind == CUPTI_ACTIVITY_KIND_MEMCPY) unrecorded |= 1u << static_cast<unsigned>(DriverCall::kCopy);
    if (kind == CUPTI_ACTIVITY_KIND_MEMSET) unrecorded |= 1u << static_cast<unsigned>(DriverCall::kMemset);
  }
  unrecorded_calls.store(unrecorded, std::memory_order_relaxed);
  activity_on_ = true;
  level_ = TracerLevel::kActivity;
  return true;
}

bool Tracer::climb(TracerLevel level, bool all_driver_calls, std::string& error) {
  if (level_ == TracerLevel::kDetached && !attach(error)) return false;
  if (level >= TracerLevel::kLaunches && level_ < TracerLevel::kLaunches &&
      !enable_launch_callbacks(all_driver_calls, error)) {
    return false;
  }
  return level < TracerLevel::kActivity || level_ >= TracerLevel::kActivity || enable_activity(error);
}

bool Tracer::raise(TracerLevel level, bool all_driver_calls, std::string& error) {
  const bool was_attached = level_ != TracerLevel::kDetached;
  if (climb(level, all_driver_calls, error)) return true;
  detach(!foreign_client.minds_finalize());
  if (!was_attached) return false;
  // The subscription that we held may be void: a program that calls cuptiFinalize ends everybody's. Once
  // more, afresh.
  error.clear();
  if (climb(level, all_driver_calls, error)) return true;
  detach(!foreign_client.minds_finalize());
  return false;
}

void Tracer::stop_activity() noexcept {
  if (!activity_on_) return;
  for (const CUpti_ActivityKind kind : kActivityKinds) api_.ActivityDisable(kind);
  collecting_activity.store(false, std::memory_order_release);
  activity_on_ = false;
}

void Tracer::resume_activity() noexcept {
  if (level_ < TracerLevel::kActivity || activity_on_) return;
  collecting_activity.store(true, std::memory_order_release);
  for (const CUpti_ActivityKind kind : kActivityKinds) api_.ActivityEnable(kind);
  activity_on_ = true;
}

void Tracer::keep_launches() noexcept {
  stop_activity();
  if (level_ == TracerLevel::kActivity) level_ = TracerLevel::kLaunches;
}

std::unique_lock<std::mutex> Tracer::use() noexcept {
  std::unique_lock lock(use_mutex, std::try_to_lock);
  const timespec pause{0, 100'000};
  for (const Nanoseconds deadline = now() + kMaxUse; !lock.owns_lock() && now() < deadline;) {
    nanosleep(&pause, nullptr);
    lock.try_lock();
  }
  return lock;
}

void Tracer::flush(bool force) noexcept {
  const std::unique_lock use = Tracer::use();
  if (!use.owns_lock() || level_ < TracerLevel::kActivity) return;
  api_.ActivityFlushAll(force ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : CUPTI_ACTIVITY_FLAG_NONE);
  // Also where no buffer comes back: there may have been none to give.
  note_dropped(nullptr, 0);
}

void Tracer::detach(bool finalize) noexcept {
  if (level_ == TracerLevel::kDetached) return;
  const std::unique_lock use = Tracer::use();
  stop_activity();
  collecting_activity.store(false, std::memory_order_release);
  finalize = finalize && use.owns_lock() && !failed() && !saw_graphs();
  // A buffer that CUPTI keeps, for kernels launched after the window, would have the next attachment's
  // records as well, whose correlation ids are others.
  if (!finalize && level_ == TracerLevel::kActivity && use.owns_lock() && !failed() &&
      buffers_.outstanding() != 0) {
    api_.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  }
  if (subscriber_ != nullptr) api_.Unsubscribe(subscriber_);
  subscriber_ = nullptr;
  // CUPTI leaves something of its own in every graph that it has traced. After cuptiFinalize the next
  // attachment, or the next update of such a graph, made the program fail with CUDA_ERROR_LAUNCH_FAILED
  // (CUDA 13.0 on an H200: JAX's command buffers, torch.cuda.CUDAGraph; a synchronization before or a pause
  // of 400 ms did not help). So programs with graphs keep CUPTI, with nothing enabled and nobody subscribed.
  // After a fatal error it has finalized itself.
  finalized_ = finalize;
  if (finalized_) {
    api_.Finalize();
    // Graphs that were captured, but never instantiated: the next attachment numbers nodes anew.
    if (Core* core = Core::get_if_any(); core != nullptr) core->graph_nodes.clear();
  }
  level_ = TracerLevel::kDetached;
}

bool Tracer::holds() noexcept {
  // It is enabled already.
  return level_ != TracerLevel::kDetached &&
         api_.EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API,
                             CUPTI_DRIVER_TRACE_CBID_cuProfilerStart) == CUPTI_SUCCESS;
}

void Tracer::forget() noexcept {
  if (level_ == TracerLevel::kDetached) return;
  collecting_activity.store(false, std::memory_order_release);
  activity_on_ = false;
  subscriber_ = nullptr;
  finalized_ = true;
  if (Core* core = Core::get_if_any(); core != nullptr) core->graph_nodes.clear();
  level_ = TracerLevel::kDetached;
}

}  // namespace inject
