// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/core/driver.h"

#include <cupti.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "tests/sim/core/trace.h"

namespace inject::sim::drv {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr int kDriverVersion = 13000;

std::atomic<bool> initialised{false};
// The thread that is inside cuInit: others wait for it, and its own calls pass, as the injected library makes
// some.
struct Initialising {
  std::mutex mutex;
  std::condition_variable over;
  bool under_way = false;
  std::thread::id thread;
};
Initialising& initialising() {
  static Initialising& instance = *new Initialising;
  return instance;
}

void load_injection() {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr || *path == '\0') return;
  // As the driver does it: a library that is missing or has no entry point is passed over in silence.
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  using Initialise = int (*)();
  if (auto entry = reinterpret_cast<Initialise>(dlsym(library, "InitializeInjection"))) entry();
}

// The name of the kernel that a call launches, as callbacks have it.
template <class Parameters>
const char* launched(const Parameters& params) {
  if constexpr (requires { params.f; }) {
    return params.f == nullptr ? nullptr : reinterpret_cast<const Kernel*>(params.f)->name;
  } else {
    return nullptr;
  }
}

// Every driver call: counted, failed on demand, seen by the subscriber.
template <class Body>
CUresult call(Function& function, const void* params, const char* symbol, bool needs_init, Body&& body) {
  int fault = function.enter();
  if (needs_init && !initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (in_forked_child()) return CUDA_ERROR_NOT_INITIALIZED;
  CUresult result = CUDA_SUCCESS;
  trace::ApiCall api(function, params, &result, symbol);
  result = fault != 0 ? static_cast<CUresult>(fault) : body();
  if (result == CUDA_SUCCESS && needs_init) result = sticky_error();
  return result;
}

#define DRIVER_FUNCTION(name)         \
  static constinit FunctionSlot slot; \
  Function& function = slot.get(kLibrary, #name, Domain::kDriver)

// A call whose parameters the vendor describes in a structure named for it.
#define DRIVER_CALL(name, ...)             \
  DRIVER_FUNCTION(name);                   \
  const name##_params params{__VA_ARGS__}; \
  return call(function, &params, launched(params), true, [&]() -> CUresult
#define DRIVER_CALL_PLAIN(name) \
  DRIVER_FUNCTION(name);        \
  return call(function, nullptr, nullptr, true, [&]() -> CUresult
#define DRIVER_END )

Context* context_or_null(CUcontext handle) {
  return is_context(handle) ? reinterpret_cast<Context*>(handle) : nullptr;
}

bool valid_device(CUdevice device) {
  return device >= 0 && device < settings().devices;
}

void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}
CUdeviceptr address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

CUresult launch(CUfunction function, Extent3 grid, Extent3 block, unsigned shared, CUstream handle,
                bool ptsz) {
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(handle, ptsz);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  auto threads = static_cast<std::int64_t>(block.x) * block.y * block.z;
  if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0 || threads <= 0 || threads > 1024)
    return CUDA_ERROR_INVALID_VALUE;
  KernelWork work{reinterpret_cast<Kernel*>(function), grid, block, shared};
  return enqueue(stream, work);
}

Extent3 extent(unsigned x, unsigned y, unsigned z) {
  return {static_cast<std::int32_t>(x), static_cast<std::int32_t>(y), static_cast<std::int32_t>(z)};
}

CUresult copy(CUstream handle, bool ptsz, void* target, const void* source, std::size_t bytes,
              bool synchronous) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(handle, ptsz);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CopyWork work;
  work.target = target;
  work.source = source;
  work.width = bytes;
  return copy_on_stream(stream, work, synchronous);
}

CUresult set(CUstream handle, bool ptsz, SetWork work, bool synchronous) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (synchronous && capture_forbids_unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Stream* stream = find_stream(handle, ptsz);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  work.async = !synchronous;
  return enqueue(stream, work);  // not waited for, as on the device
}

SetWork set_work(CUdeviceptr target, std::uint32_t value, unsigned element, std::size_t count) {
  SetWork work;
  work.target = pointer(target);
  work.value = value;
  work.element = element;
  work.width = count;
  return work;
}

CUresult allocate_to(CUdeviceptr* out, std::size_t bytes, MemoryType type) {
  Context* context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* memory = allocate(bytes, type, context);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = address(memory);
  return CUDA_SUCCESS;
}

CopyWork copy_2d(const CUDA_MEMCPY2D& params) {
  auto pick = [](CUmemorytype type, const void* host, CUdeviceptr device) -> const void* {
    return type == CU_MEMORYTYPE_HOST ? host : pointer(device);
  };
  CopyWork work;
  const auto* source =
      static_cast<const std::byte*>(pick(params.srcMemoryType, params.srcHost, params.srcDevice));
  auto* target = static_cast<std::byte*>(
      const_cast<void*>(pick(params.dstMemoryType, params.dstHost, params.dstDevice)));
  work.source = source + params.srcY * params.srcPitch + params.srcXInBytes;
  work.target = target + params.dstY * params.dstPitch + params.dstXInBytes;
  work.width = params.WidthInBytes;
  work.height = params.Height;
  work.source_pitch = params.srcPitch != 0 ? params.srcPitch : params.WidthInBytes;
  work.target_pitch = params.dstPitch != 0 ? params.dstPitch : params.WidthInBytes;
  return work;
}

CUresult copy_2d_on(CUstream handle, bool ptsz, const CUDA_MEMCPY2D* params, bool synchronous) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (params == nullptr || params->srcMemoryType == CU_MEMORYTYPE_ARRAY ||
      params->dstMemoryType == CU_MEMORYTYPE_ARRAY)
    return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = find_stream(handle, ptsz);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return copy_on_stream(stream, copy_2d(*params), synchronous);
}

// Both structures that describe a box name their fields alike.
template <class Params>
CopyWork copy_3d(const Params& params) {
  auto pick = [](CUmemorytype type, const void* host, CUdeviceptr device) -> const void* {
    return type == CU_MEMORYTYPE_HOST ? host : pointer(device);
  };
  CopyWork work;
  work.width = params.WidthInBytes;
  work.height = params.Height;
  work.depth = params.Depth;
  work.source_pitch = params.srcPitch != 0 ? params.srcPitch : params.WidthInBytes;
  work.target_pitch = params.dstPitch != 0 ? params.dstPitch : params.WidthInBytes;
  work.source_slice = work.source_pitch * (params.srcHeight != 0 ? params.srcHeight : params.Height);
  work.target_slice = work.target_pitch * (params.dstHeight != 0 ? params.dstHeight : params.Height);
  const auto* source =
      static_cast<const std::byte*>(pick(params.srcMemoryType, params.srcHost, params.srcDevice));
  auto* target = static_cast<std::byte*>(
      const_cast<void*>(pick(params.dstMemoryType, params.dstHost, params.dstDevice)));
  work.source =
      source + params.srcZ * work.source_slice + params.srcY * work.source_pitch + params.srcXInBytes;
  work.target =
      target + params.dstZ * work.target_slice + params.dstY * work.target_pitch + params.dstXInBytes;
  return work;
}

template <class Params>
CUresult copy_3d_on(CUstream handle, bool ptsz, const Params* params, bool synchronous) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (params == nullptr || params->srcMemoryType == CU_MEMORYTYPE_ARRAY ||
      params->dstMemoryType == CU_MEMORYTYPE_ARRAY)
    return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = find_stream(handle, ptsz);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return copy_on_stream(stream, copy_3d(*params), synchronous);
}

Graph* graph_of(CUgraph handle) {
  return reinterpret_cast<Graph*>(handle);
}
GraphExec* exec_of(CUgraphExec handle) {
  return reinterpret_cast<GraphExec*>(handle);
}

CUresult add_graph_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                        CUgraphNodeType type, Node** added) {
  if (out == nullptr || graph == nullptr || (count != 0 && after == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Node*> dependencies;
  for (std::size_t i = 0; i < count; ++i) dependencies.push_back(reinterpret_cast<Node*>(after[i]));
  std::lock_guard lock(world());
  *added = add_node(graph_of(graph), type, std::move(dependencies));
  *out = (*added)->handle();
  return CUDA_SUCCESS;
}

CUresult synchronize(const OpRef& op) {
  timeline::wait(op);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult copy_on_stream(Stream* stream, const CopyWork& work, bool synchronous) {
  if (synchronous && capture_forbids_unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (work.bytes() != 0 && (work.target == nullptr || work.source == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  CopyWork copy = work;
  copy.async = !synchronous;
  OpRef op;
  CUresult result = enqueue(stream, copy, &op);
  if (result != CUDA_SUCCESS || op == nullptr) return result;
  // A copy out of the device into pageable memory has arrived when the call returns, asynchronous or not.
  Allocation found;
  bool pageable_target = !find_allocation(work.target, found);
  if (synchronous || pageable_target) timeline::wait(op);
  return result;
}

CUresult initialise() {
  if (in_forked_child()) return CUDA_ERROR_NOT_INITIALIZED;
  Initialising& shared = initialising();
  std::unique_lock lock(shared.mutex);
  if (initialised) {
    shared.over.wait(lock, [&] { return !shared.under_way || shared.thread == std::this_thread::get_id(); });
    return CUDA_SUCCESS;
  }
  if (settings().devices == 0) return CUDA_ERROR_NO_DEVICE;
  initialised = true;
  mark_initialised();
  shared.under_way = true;
  shared.thread = std::this_thread::get_id();
  lock.unlock();
  load_injection();
  lock.lock();
  shared.under_way = false;
  shared.over.notify_all();
  return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int Flags) {
  DRIVER_FUNCTION(cuInit);
  const cuInit_params params{Flags};
  return call(function, &params, nullptr, false,
              [&] { return Flags == 0 ? initialise() : CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuDriverGetVersion(int* version) {
  DRIVER_FUNCTION(cuDriverGetVersion);
  const cuDriverGetVersion_params params{version};
  return call(function, &params, nullptr, false, [&] {
    *version = kDriverVersion;
    return CUDA_SUCCESS;
  });
}

namespace {
struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};
const ErrorText* error_text(CUresult code) {
  for (const ErrorText& entry : kErrors)
    if (entry.code == code) return &entry;
  return nullptr;
}
}  // namespace

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  DRIVER_FUNCTION(cuGetErrorName);
  return call(function, nullptr, nullptr, false, [&] {
    const ErrorText* entry = error_text(error);
    *pStr = entry != nullptr ? entry->name : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
  });
}

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  DRIVER_FUNCTION(cuGetErrorString);
  return call(function, nullptr, nullptr, false, [&] {
    const ErrorText* entry = error_text(error);
    *pStr = entry != nullptr ? entry->text : "unknown error";
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  DRIVER_CALL(cuDeviceGet, device, ordinal) {
    if (!valid_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuDeviceGetCount(int* count) {
  DRIVER_CALL(cuDeviceGetCount, count) {
    *count = settings().devices;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  DRIVER_CALL(cuDeviceGetName, name, len, dev) {
    if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(name, static_cast<std::size_t>(len), "Simulated H200");
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  DRIVER_CALL(cuDeviceGetUuid_v2, uuid, dev) {
    if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
    std::memset(uuid->bytes, 0x51, sizeof uuid->bytes);
    uuid->bytes[15] = static_cast<char>(dev);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  DRIVER_CALL(cuDeviceTotalMem_v2, bytes, dev) {
    if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = kDeviceMemory;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

namespace {
int device_attribute(CUdevice_attribute attribute, CUdevice device) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return 48 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return 227 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return 228 << 10;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return 1 << 10;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      return 64 << 10;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return 1'980'000;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 132;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return 2'619'000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return 5120;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 50 << 20;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return 0;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return device + 1;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 3;
    default:
      return 0;
  }
}
}  // namespace

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  DRIVER_CALL(cuDeviceGetAttribute, pi, attrib, dev) {
    if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
    *pi = device_attribute(attrib, dev);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  DRIVER_CALL(cuDeviceGetPCIBusId, pciBusId, len, dev) {
    if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(pciBusId, static_cast<std::size_t>(len), "0000:%02X:00.0", dev + 1);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  DRIVER_CALL(cuDevicePrimaryCtxRetain, pctx, dev) {
    if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
    *pctx = primary_context(dev)->handle();
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  DRIVER_CALL(cuDevicePrimaryCtxRelease_v2, dev) {
    return valid_device(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  }
  DRIVER_END;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  DRIVER_CALL(cuDevicePrimaryCtxReset_v2, dev) {
    if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
    Context* context = existing_primary_context(dev);
    if (context == nullptr) return CUDA_SUCCESS;
    destroy_context(context);
    std::erase(context_stack(), context);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  DRIVER_CALL(cuDevicePrimaryCtxSetFlags_v2, dev, flags) {
    return valid_device(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  }
  DRIVER_END;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  DRIVER_CALL(cuDevicePrimaryCtxGetState, dev, flags, active) {
    if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = existing_primary_context(dev) != nullptr ? 1 : 0;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

namespace {
CUresult create_current_context(CUcontext* pctx, CUdevice dev) {
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  Context* context = create_context(dev, false);
  context_stack().push_back(context);
  *pctx = context->handle();
  return CUDA_SUCCESS;
}
}  // namespace

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  DRIVER_CALL(cuCtxCreate_v2, pctx, flags, dev) {
    return create_current_context(pctx, dev);
  }
  DRIVER_END;
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
  DRIVER_CALL(cuCtxCreate_v4, pctx, ctxCreateParams, flags, dev) {
    return create_current_context(pctx, dev);
  }
  DRIVER_END;
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  DRIVER_CALL(cuCtxDestroy_v2, ctx) {
    Context* context = context_or_null(ctx);
    if (context == nullptr || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    destroy_context(context);
    std::erase(context_stack(), context);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  DRIVER_CALL(cuCtxPushCurrent_v2, ctx) {
    Context* context = context_or_null(ctx);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    context_stack().push_back(context);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  DRIVER_CALL(cuCtxPopCurrent_v2, pctx) {
    if (context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (pctx != nullptr) *pctx = context_stack().back()->handle();
    context_stack().pop_back();
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  DRIVER_CALL(cuCtxSetCurrent, ctx) {
    if (ctx != nullptr && context_or_null(ctx) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    set_current_context(reinterpret_cast<Context*>(ctx));
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  DRIVER_CALL(cuCtxGetCurrent, pctx) {
    *pctx = current_context_handle();
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  DRIVER_CALL(cuCtxGetDevice, device) {
    if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *device = current_context()->device;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  DRIVER_CALL(cuCtxGetFlags, flags) {
    if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *flags = 0;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  DRIVER_CALL(cuCtxGetId, ctx, ctxId) {
    Context* context = ctx != nullptr ? context_or_null(ctx) : current_context();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *ctxId = context->uid;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  DRIVER_CALL(cuCtxGetApiVersion, ctx, version) {
    if (ctx != nullptr && context_or_null(ctx) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *version = 3020;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuCtxSynchronize() {
  DRIVER_CALL_PLAIN(cuCtxSynchronize) {
    Context* context = current_context();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (capture_forbids_unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return synchronize(context_tail(context));
  }
  DRIVER_END;
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  DRIVER_CALL(cuCtxGetStreamPriorityRange, leastPriority, greatestPriority) {
    if (leastPriority != nullptr) *leastPriority = 0;
    if (greatestPriority != nullptr) *greatestPriority = -5;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  DRIVER_CALL(cuCtxEnablePeerAccess, peerContext, Flags) {
    return context_or_null(peerContext) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  }
  DRIVER_END;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  DRIVER_CALL(cuCtxDisablePeerAccess, peerContext) {
    return context_or_null(peerContext) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  }
  DRIVER_END;
}

CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  DRIVER_CALL(cuDeviceCanAccessPeer, canAccessPeer, dev, peerDev) {
    if (!valid_device(dev) || !valid_device(peerDev)) return CUDA_ERROR_INVALID_DEVICE;
    *canAccessPeer = dev != peerDev ? 1 : 0;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

// Images are not read: a module has every kernel that is asked for. A missing one can be had by a fault on
// cuModuleGetFunction.
namespace {
CUresult load_module(CUmodule* module) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *module = reinterpret_cast<CUmodule>(new int(0));
  return CUDA_SUCCESS;
}
}  // namespace

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  DRIVER_CALL(cuModuleLoad, module, fname) {
    return load_module(module);
  }
  DRIVER_END;
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  DRIVER_CALL(cuModuleLoadData, module, image) {
    return load_module(module);
  }
  DRIVER_END;
}
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
  DRIVER_CALL(cuModuleLoadDataEx, module, image, numOptions, options, optionValues) {
    return load_module(module);
  }
  DRIVER_END;
}
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  DRIVER_CALL(cuModuleLoadFatBinary, module, fatCubin) {
    return load_module(module);
  }
  DRIVER_END;
}
CUresult cuModuleUnload(CUmodule hmod) {
  DRIVER_CALL(cuModuleUnload, hmod) {
    delete reinterpret_cast<int*>(hmod);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  DRIVER_CALL(cuModuleGetFunction, hfunc, hmod, name) {
    *hfunc = reinterpret_cast<CUfunction>(&kernel_by_name(name));
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption* libraryOptions, void** libraryOptionValues,
                           unsigned int numLibraryOptions) {
  DRIVER_CALL(cuLibraryLoadData, library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
              libraryOptionValues, numLibraryOptions) {
    *library = reinterpret_cast<CUlibrary>(new int(0));
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuLibraryUnload(CUlibrary library) {
  DRIVER_CALL(cuLibraryUnload, library) {
    delete reinterpret_cast<int*>(library);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  DRIVER_CALL(cuLibraryGetKernel, pKernel, library, name) {
    *pKernel = reinterpret_cast<CUkernel>(&kernel_by_name(name));
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  DRIVER_CALL(cuKernelGetFunction, pFunc, kernel) {
    *pFunc = reinterpret_cast<CUfunction>(kernel);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  DRIVER_CALL(cuFuncGetName, name, hfunc) {
    if (hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *name = reinterpret_cast<Kernel*>(hfunc)->name;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  DRIVER_CALL(cuFuncGetAttribute, pi, attrib, hfunc) {
    *pi = attrib == CU_FUNC_ATTRIBUTE_NUM_REGS                ? 32
          : attrib == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
                                                              : 0;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  DRIVER_CALL(cuFuncSetAttribute, hfunc, attrib, value) {
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void** extra) {
  DRIVER_CALL(cuLaunchKernel, f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
              sharedMemBytes, hStream, kernelParams, extra) {
    return launch(f, extent(gridDimX, gridDimY, gridDimZ), extent(blockDimX, blockDimY, blockDimZ),
                  sharedMemBytes, hStream, false);
  }
  DRIVER_END;
}
CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                             unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                             unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                             void** kernelParams, void** extra) {
  DRIVER_CALL(cuLaunchKernel_ptsz, f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
              sharedMemBytes, hStream, kernelParams, extra) {
    return launch(f, extent(gridDimX, gridDimY, gridDimZ), extent(blockDimX, blockDimY, blockDimZ),
                  sharedMemBytes, hStream, true);
  }
  DRIVER_END;
}

namespace {
CUresult launch_config(CUfunction f, const CUlaunchConfig* config, bool ptsz) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return launch(f, extent(config->gridDimX, config->gridDimY, config->gridDimZ),
                extent(config->blockDimX, config->blockDimY, config->blockDimZ), config->sharedMemBytes,
                config->hStream, ptsz);
}
}  // namespace

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra) {
  DRIVER_CALL(cuLaunchKernelEx, config, f, kernelParams, extra) {
    return launch_config(f, config, false);
  }
  DRIVER_END;
}
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                               void** extra) {
  DRIVER_CALL(cuLaunchKernelEx_ptsz, config, f, kernelParams, extra) {
    return launch_config(f, config, true);
  }
  DRIVER_END;
}
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                   unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  DRIVER_CALL(cuLaunchCooperativeKernel, f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
              sharedMemBytes, hStream, kernelParams) {
    return launch(f, extent(gridDimX, gridDimY, gridDimZ), extent(blockDimX, blockDimY, blockDimZ),
                  sharedMemBytes, hStream, false);
  }
  DRIVER_END;
}
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                        void** kernelParams) {
  DRIVER_CALL(cuLaunchCooperativeKernel_ptsz, f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
              blockDimZ, sharedMemBytes, hStream, kernelParams) {
    return launch(f, extent(gridDimX, gridDimY, gridDimZ), extent(blockDimX, blockDimY, blockDimZ),
                  sharedMemBytes, hStream, true);
  }
  DRIVER_END;
}

namespace {
CUresult host_function(CUstream handle, bool ptsz, CUhostFn fn, void* data) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(handle, ptsz);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return enqueue(stream, HostWork{fn, data});
}
}  // namespace

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  DRIVER_CALL(cuLaunchHostFunc, hStream, fn, userData) {
    return host_function(hStream, false, fn, userData);
  }
  DRIVER_END;
}
CUresult cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void* userData) {
  DRIVER_CALL(cuLaunchHostFunc_ptsz, hStream, fn, userData) {
    return host_function(hStream, true, fn, userData);
  }
  DRIVER_END;
}

namespace {
CUresult add_callback(CUstream handle, bool ptsz, CUstreamCallback callback, void* data) {
  struct Call {
    CUstream stream;
    CUstreamCallback callback;
    void* data;
  };
  auto* call = new Call{handle, callback, data};
  CUresult result = host_function(
      handle, ptsz,
      [](void* opaque) {
        auto* made = static_cast<Call*>(opaque);
        made->callback(made->stream, CUDA_SUCCESS, made->data);
        delete made;
      },
      call);
  if (result != CUDA_SUCCESS) delete call;
  return result;
}
}  // namespace

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) {
  DRIVER_CALL(cuStreamAddCallback, hStream, callback, userData, flags) {
    return add_callback(hStream, false, callback, userData);
  }
  DRIVER_END;
}
CUresult cuStreamAddCallback_ptsz(CUstream hStream, CUstreamCallback callback, void* userData,
                                  unsigned int flags) {
  DRIVER_CALL(cuStreamAddCallback_ptsz, hStream, callback, userData, flags) {
    return add_callback(hStream, true, callback, userData);
  }
  DRIVER_END;
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  DRIVER_CALL(cuMemGetInfo_v2, free, total) {
    if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *total = kDeviceMemory;
    *free = kDeviceMemory - used_bytes(current_context()->device);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  DRIVER_CALL(cuMemAlloc_v2, dptr, bytesize) {
    if (capture_forbids_unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return allocate_to(dptr, bytesize, MemoryType::kDevice);
  }
  DRIVER_END;
}
CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  DRIVER_CALL(cuMemAllocPitch_v2, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes) {
    *pPitch = (WidthInBytes + 511) / 512 * 512;
    return allocate_to(dptr, *pPitch * Height, MemoryType::kDevice);
  }
  DRIVER_END;
}
CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  DRIVER_CALL(cuMemAllocManaged, dptr, bytesize, flags) {
    return allocate_to(dptr, bytesize, MemoryType::kManaged);
  }
  DRIVER_END;
}
CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  DRIVER_CALL(cuMemAllocAsync, dptr, bytesize, hStream) {
    return allocate_to(dptr, bytesize, MemoryType::kDevice);
  }
  DRIVER_END;
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  DRIVER_CALL(cuMemAllocAsync_ptsz, dptr, bytesize, hStream) {
    return allocate_to(dptr, bytesize, MemoryType::kDevice);
  }
  DRIVER_END;
}
CUresult cuMemFree_v2(CUdeviceptr dptr) {
  DRIVER_CALL(cuMemFree_v2, dptr) {
    if (dptr == 0) return CUDA_SUCCESS;
    if (current_context() != nullptr && !capture_forbids_unsafe_call())
      timeline::wait(context_tail(current_context()));  // a free waits for the device, as on the real one
    return release(pointer(dptr), MemoryType::kDevice) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  DRIVER_END;
}
CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  DRIVER_CALL(cuMemFreeAsync, dptr, hStream) {
    return release(pointer(dptr), MemoryType::kDevice) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  DRIVER_END;
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  DRIVER_CALL(cuMemFreeAsync_ptsz, dptr, hStream) {
    return release(pointer(dptr), MemoryType::kDevice) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  DRIVER_END;
}
CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  DRIVER_CALL(cuMemAllocHost_v2, pp, bytesize) {
    return allocate_to(reinterpret_cast<CUdeviceptr*>(pp), bytesize, MemoryType::kPinned);
  }
  DRIVER_END;
}
CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  DRIVER_CALL(cuMemHostAlloc, pp, bytesize, Flags) {
    return allocate_to(reinterpret_cast<CUdeviceptr*>(pp), bytesize, MemoryType::kPinned);
  }
  DRIVER_END;
}
CUresult cuMemFreeHost(void* p) {
  DRIVER_CALL(cuMemFreeHost, p) {
    if (p == nullptr) return CUDA_SUCCESS;
    return release(p, MemoryType::kPinned) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  DRIVER_END;
}
CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  DRIVER_CALL(cuMemHostRegister_v2, p, bytesize, Flags) {
    if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return register_host(p, bytesize, current_context()) ? CUDA_SUCCESS
                                                         : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  DRIVER_END;
}
CUresult cuMemHostUnregister(void* p) {
  DRIVER_CALL(cuMemHostUnregister, p) {
    return unregister_host(p) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  DRIVER_END;
}
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  DRIVER_CALL(cuMemHostGetDevicePointer_v2, pdptr, p, Flags) {
    *pdptr = address(p);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  DRIVER_CALL(cuPointerGetAttribute, data, attribute, ptr) {
    Allocation found;
    if (!find_allocation(pointer(ptr), found)) return CUDA_ERROR_INVALID_VALUE;
    bool host = found.type == MemoryType::kPinned;
    switch (attribute) {
      case CU_POINTER_ATTRIBUTE_CONTEXT:
        *static_cast<CUcontext*>(data) = found.context->handle();
        return CUDA_SUCCESS;
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<CUmemorytype*>(data) = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(data) = found.device;
        return CUDA_SUCCESS;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *static_cast<unsigned*>(data) = found.type == MemoryType::kManaged ? 1 : 0;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  DRIVER_END;
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  DRIVER_CALL(cuMemcpy, dst, src, ByteCount) {
    return copy(nullptr, false, pointer(dst), pointer(src), ByteCount, true);
  }
  DRIVER_END;
}
CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  DRIVER_CALL(cuMemcpy_ptds, dst, src, ByteCount) {
    return copy(nullptr, true, pointer(dst), pointer(src), ByteCount, true);
  }
  DRIVER_END;
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  DRIVER_CALL(cuMemcpyHtoD_v2, dstDevice, srcHost, ByteCount) {
    return copy(nullptr, false, pointer(dstDevice), srcHost, ByteCount, true);
  }
  DRIVER_END;
}
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  DRIVER_CALL(cuMemcpyHtoD_v2_ptds, dstDevice, srcHost, ByteCount) {
    return copy(nullptr, true, pointer(dstDevice), srcHost, ByteCount, true);
  }
  DRIVER_END;
}
CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  DRIVER_CALL(cuMemcpyDtoH_v2, dstHost, srcDevice, ByteCount) {
    return copy(nullptr, false, dstHost, pointer(srcDevice), ByteCount, true);
  }
  DRIVER_END;
}
CUresult cuMemcpyDtoH_v2_ptds(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  DRIVER_CALL(cuMemcpyDtoH_v2_ptds, dstHost, srcDevice, ByteCount) {
    return copy(nullptr, true, dstHost, pointer(srcDevice), ByteCount, true);
  }
  DRIVER_END;
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  DRIVER_CALL(cuMemcpyDtoD_v2, dstDevice, srcDevice, ByteCount) {
    return copy(nullptr, false, pointer(dstDevice), pointer(srcDevice), ByteCount, true);
  }
  DRIVER_END;
}
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  DRIVER_CALL(cuMemcpyDtoD_v2_ptds, dstDevice, srcDevice, ByteCount) {
    return copy(nullptr, true, pointer(dstDevice), pointer(srcDevice), ByteCount, true);
  }
  DRIVER_END;
}
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  DRIVER_CALL(cuMemcpyAsync, dst, src, ByteCount, hStream) {
    return copy(hStream, false, pointer(dst), pointer(src), ByteCount, false);
  }
  DRIVER_END;
}
CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  DRIVER_CALL(cuMemcpyAsync_ptsz, dst, src, ByteCount, hStream) {
    return copy(hStream, true, pointer(dst), pointer(src), ByteCount, false);
  }
  DRIVER_END;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  DRIVER_CALL(cuMemcpyHtoDAsync_v2, dstDevice, srcHost, ByteCount, hStream) {
    return copy(hStream, false, pointer(dstDevice), srcHost, ByteCount, false);
  }
  DRIVER_END;
}
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                                   CUstream hStream) {
  DRIVER_CALL(cuMemcpyHtoDAsync_v2_ptsz, dstDevice, srcHost, ByteCount, hStream) {
    return copy(hStream, true, pointer(dstDevice), srcHost, ByteCount, false);
  }
  DRIVER_END;
}
CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  DRIVER_CALL(cuMemcpyDtoHAsync_v2, dstHost, srcDevice, ByteCount, hStream) {
    return copy(hStream, false, dstHost, pointer(srcDevice), ByteCount, false);
  }
  DRIVER_END;
}
CUresult cuMemcpyDtoHAsync_v2_ptsz(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  DRIVER_CALL(cuMemcpyDtoHAsync_v2_ptsz, dstHost, srcDevice, ByteCount, hStream) {
    return copy(hStream, true, dstHost, pointer(srcDevice), ByteCount, false);
  }
  DRIVER_END;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  DRIVER_CALL(cuMemcpyDtoDAsync_v2, dstDevice, srcDevice, ByteCount, hStream) {
    return copy(hStream, false, pointer(dstDevice), pointer(srcDevice), ByteCount, false);
  }
  DRIVER_END;
}
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                   CUstream hStream) {
  DRIVER_CALL(cuMemcpyDtoDAsync_v2_ptsz, dstDevice, srcDevice, ByteCount, hStream) {
    return copy(hStream, true, pointer(dstDevice), pointer(srcDevice), ByteCount, false);
  }
  DRIVER_END;
}
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) {
  DRIVER_CALL(cuMemcpy2D_v2, pCopy) {
    return copy_2d_on(nullptr, false, pCopy, true);
  }
  DRIVER_END;
}
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) {
  DRIVER_CALL(cuMemcpy2DUnaligned_v2, pCopy) {
    return copy_2d_on(nullptr, false, pCopy, true);
  }
  DRIVER_END;
}
CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D* pCopy) {
  DRIVER_CALL(cuMemcpy2DUnaligned_v2_ptds, pCopy) {
    return copy_2d_on(nullptr, true, pCopy, true);
  }
  DRIVER_END;
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  DRIVER_CALL(cuMemcpy2DAsync_v2, pCopy, hStream) {
    return copy_2d_on(hStream, false, pCopy, false);
  }
  DRIVER_END;
}
CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  DRIVER_CALL(cuMemcpy2DAsync_v2_ptsz, pCopy, hStream) {
    return copy_2d_on(hStream, true, pCopy, false);
  }
  DRIVER_END;
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) {
  DRIVER_CALL(cuMemcpy3D_v2, pCopy) {
    return copy_3d_on(nullptr, false, pCopy, true);
  }
  DRIVER_END;
}
CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D* pCopy) {
  DRIVER_CALL(cuMemcpy3D_v2_ptds, pCopy) {
    return copy_3d_on(nullptr, true, pCopy, true);
  }
  DRIVER_END;
}
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  DRIVER_CALL(cuMemcpy3DAsync_v2, pCopy, hStream) {
    return copy_3d_on(hStream, false, pCopy, false);
  }
  DRIVER_END;
}
CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  DRIVER_CALL(cuMemcpy3DAsync_v2_ptsz, pCopy, hStream) {
    return copy_3d_on(hStream, true, pCopy, false);
  }
  DRIVER_END;
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  DRIVER_CALL(cuMemcpy3DPeer, pCopy) {
    return copy_3d_on(nullptr, false, pCopy, true);
  }
  DRIVER_END;
}
CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER* pCopy) {
  DRIVER_CALL(cuMemcpy3DPeer_ptds, pCopy) {
    return copy_3d_on(nullptr, true, pCopy, true);
  }
  DRIVER_END;
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  DRIVER_CALL(cuMemcpy3DPeerAsync, pCopy, hStream) {
    return copy_3d_on(hStream, false, pCopy, false);
  }
  DRIVER_END;
}
CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  DRIVER_CALL(cuMemcpy3DPeerAsync_ptsz, pCopy, hStream) {
    return copy_3d_on(hStream, true, pCopy, false);
  }
  DRIVER_END;
}
CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
  DRIVER_CALL(cuMemcpyPeer, dstDevice, dstContext, srcDevice, srcContext, ByteCount) {
    return copy(nullptr, false, pointer(dstDevice), pointer(srcDevice), ByteCount, true);
  }
  DRIVER_END;
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  DRIVER_CALL(cuMemcpyPeerAsync, dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream) {
    return copy(hStream, false, pointer(dstDevice), pointer(srcDevice), ByteCount, false);
  }
  DRIVER_END;
}
CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  DRIVER_CALL(cuMemcpyPeerAsync_ptsz, dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream) {
    return copy(hStream, true, pointer(dstDevice), pointer(srcDevice), ByteCount, false);
  }
  DRIVER_END;
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  DRIVER_CALL(cuMemsetD8_v2, dstDevice, uc, N) {
    return set(nullptr, false, set_work(dstDevice, uc, 1, N), true);
  }
  DRIVER_END;
}
CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  DRIVER_CALL(cuMemsetD8_v2_ptds, dstDevice, uc, N) {
    return set(nullptr, true, set_work(dstDevice, uc, 1, N), true);
  }
  DRIVER_END;
}
CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  DRIVER_CALL(cuMemsetD16_v2, dstDevice, us, N) {
    return set(nullptr, false, set_work(dstDevice, us, 2, N), true);
  }
  DRIVER_END;
}
CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  DRIVER_CALL(cuMemsetD32_v2, dstDevice, ui, N) {
    return set(nullptr, false, set_work(dstDevice, ui, 4, N), true);
  }
  DRIVER_END;
}
CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  DRIVER_CALL(cuMemsetD8Async, dstDevice, uc, N, hStream) {
    return set(hStream, false, set_work(dstDevice, uc, 1, N), false);
  }
  DRIVER_END;
}
CUresult cuMemsetD8Async_ptsz(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  DRIVER_CALL(cuMemsetD8Async_ptsz, dstDevice, uc, N, hStream) {
    return set(hStream, true, set_work(dstDevice, uc, 1, N), false);
  }
  DRIVER_END;
}
CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
  DRIVER_CALL(cuMemsetD16Async, dstDevice, us, N, hStream) {
    return set(hStream, false, set_work(dstDevice, us, 2, N), false);
  }
  DRIVER_END;
}
CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  DRIVER_CALL(cuMemsetD32Async, dstDevice, ui, N, hStream) {
    return set(hStream, false, set_work(dstDevice, ui, 4, N), false);
  }
  DRIVER_END;
}
CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height) {
  DRIVER_CALL(cuMemsetD2D8_v2, dstDevice, dstPitch, uc, Width, Height) {
    SetWork work = set_work(dstDevice, uc, 1, Width);
    work.height = Height;
    work.pitch = dstPitch;
    return set(nullptr, false, work, true);
  }
  DRIVER_END;
}
CUresult cuMemsetD2D8_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                              size_t Height) {
  DRIVER_CALL(cuMemsetD2D8_v2_ptds, dstDevice, dstPitch, uc, Width, Height) {
    SetWork work = set_work(dstDevice, uc, 1, Width);
    work.height = Height;
    work.pitch = dstPitch;
    return set(nullptr, true, work, true);
  }
  DRIVER_END;
}
CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream) {
  DRIVER_CALL(cuMemsetD2D8Async, dstDevice, dstPitch, uc, Width, Height, hStream) {
    SetWork work = set_work(dstDevice, uc, 1, Width);
    work.height = Height;
    work.pitch = dstPitch;
    return set(hStream, false, work, false);
  }
  DRIVER_END;
}
CUresult cuMemsetD2D8Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                                size_t Height, CUstream hStream) {
  DRIVER_CALL(cuMemsetD2D8Async_ptsz, dstDevice, dstPitch, uc, Width, Height, hStream) {
    SetWork work = set_work(dstDevice, uc, 1, Width);
    work.height = Height;
    work.pitch = dstPitch;
    return set(hStream, true, work, false);
  }
  DRIVER_END;
}

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  DRIVER_CALL(cuStreamCreate, phStream, Flags) {
    if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *phStream = create_stream(current_context(), Flags, 0)->handle();
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  DRIVER_CALL(cuStreamCreateWithPriority, phStream, flags, priority) {
    if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *phStream = create_stream(current_context(), flags, priority)->handle();
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuStreamDestroy_v2(CUstream hStream) {
  DRIVER_CALL(cuStreamDestroy_v2, hStream) {
    Stream* stream = find_stream(hStream, false);
    if (stream == nullptr || stream->legacy) return CUDA_ERROR_INVALID_HANDLE;
    destroy_stream(stream);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

namespace {
CUresult stream_synchronize(CUstream handle, bool ptsz) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(handle, ptsz);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr || capture_forbids_unsafe_call())
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return synchronize(stream_tail(stream));
}
CUresult stream_query(CUstream handle, bool ptsz) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(handle, ptsz);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return stream_tail(stream)->ended_by(now_ns()) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult stream_wait_event(CUstream handle, bool ptsz, CUevent event_handle) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(handle, ptsz);
  Event* event = find_event(event_handle);
  if (stream == nullptr || event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return wait_event(stream, event);
}
CUresult capture_status(CUstream handle, bool ptsz, CUstreamCaptureStatus* status) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(handle, ptsz);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *status = stream->capture != nullptr ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult capture_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** dependencies, size_t* count) {
  CUresult result = capture_status(handle, false, status);
  if (result != CUDA_SUCCESS || *status == CU_STREAM_CAPTURE_STATUS_NONE) return result;
  Stream* stream = find_stream(handle, false);
  std::lock_guard lock(world());
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = stream->capture->graph->handle();
  if (dependencies != nullptr)
    *dependencies = reinterpret_cast<const CUgraphNode*>(stream->capture_tail.data());
  if (count != nullptr) *count = stream->capture_tail.size();
  return CUDA_SUCCESS;
}
CUresult stream_begin_capture(CUstream handle, bool ptsz, CUstreamCaptureMode mode) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(handle, ptsz);
  return stream != nullptr ? begin_capture(stream, mode) : CUDA_ERROR_INVALID_HANDLE;
}
CUresult stream_end_capture(CUstream handle, bool ptsz, CUgraph* graph) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(handle, ptsz);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Graph* captured = nullptr;
  CUresult result = end_capture(stream, &captured);
  *graph = captured != nullptr ? captured->handle() : nullptr;
  return result;
}
}  // namespace

CUresult cuStreamSynchronize(CUstream hStream) {
  DRIVER_CALL(cuStreamSynchronize, hStream) {
    return stream_synchronize(hStream, false);
  }
  DRIVER_END;
}
CUresult cuStreamSynchronize_ptsz(CUstream hStream) {
  DRIVER_CALL(cuStreamSynchronize_ptsz, hStream) {
    return stream_synchronize(hStream, true);
  }
  DRIVER_END;
}
CUresult cuStreamQuery(CUstream hStream) {
  DRIVER_CALL(cuStreamQuery, hStream) {
    return stream_query(hStream, false);
  }
  DRIVER_END;
}
CUresult cuStreamQuery_ptsz(CUstream hStream) {
  DRIVER_CALL(cuStreamQuery_ptsz, hStream) {
    return stream_query(hStream, true);
  }
  DRIVER_END;
}
CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  DRIVER_CALL(cuStreamWaitEvent, hStream, hEvent, Flags) {
    return stream_wait_event(hStream, false, hEvent);
  }
  DRIVER_END;
}
CUresult cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  DRIVER_CALL(cuStreamWaitEvent_ptsz, hStream, hEvent, Flags) {
    return stream_wait_event(hStream, true, hEvent);
  }
  DRIVER_END;
}
CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  DRIVER_CALL(cuStreamGetFlags, hStream, flags) {
    Stream* stream = find_stream(hStream, false);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  DRIVER_CALL(cuStreamGetPriority, hStream, priority) {
    Stream* stream = find_stream(hStream, false);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  DRIVER_CALL(cuStreamGetCtx, hStream, pctx) {
    Stream* stream = find_stream(hStream, false);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *pctx = stream->context->handle();
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  DRIVER_CALL(cuStreamGetId, hStream, streamId) {
    Stream* stream = find_stream(hStream, false);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *streamId = stream->id;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  DRIVER_CALL(cuStreamIsCapturing, hStream, captureStatus) {
    return capture_status(hStream, false, captureStatus);
  }
  DRIVER_END;
}
CUresult cuStreamIsCapturing_ptsz(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  DRIVER_CALL(cuStreamIsCapturing_ptsz, hStream, captureStatus) {
    return capture_status(hStream, true, captureStatus);
  }
  DRIVER_END;
}
CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out, size_t* numDependencies_out) {
  DRIVER_CALL(cuStreamGetCaptureInfo_v2, hStream, captureStatus_out, id_out, graph_out, dependencies_out,
              numDependencies_out) {
    return capture_info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out);
  }
  DRIVER_END;
}
CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out, const CUgraphEdgeData** edgeData_out,
                                   size_t* numDependencies_out) {
  DRIVER_CALL(cuStreamGetCaptureInfo_v3, hStream, captureStatus_out, id_out, graph_out, dependencies_out,
              edgeData_out, numDependencies_out) {
    if (edgeData_out != nullptr) *edgeData_out = nullptr;
    return capture_info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out);
  }
  DRIVER_END;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  DRIVER_CALL(cuThreadExchangeStreamCaptureMode, mode) {
    thread_local CUstreamCaptureMode mode_of_thread = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::swap(*mode, mode_of_thread);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  DRIVER_CALL(cuStreamBeginCapture_v2, hStream, mode) {
    return stream_begin_capture(hStream, false, mode);
  }
  DRIVER_END;
}
CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
  DRIVER_CALL(cuStreamBeginCapture_v2_ptsz, hStream, mode) {
    return stream_begin_capture(hStream, true, mode);
  }
  DRIVER_END;
}
CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  DRIVER_CALL(cuStreamEndCapture, hStream, phGraph) {
    return stream_end_capture(hStream, false, phGraph);
  }
  DRIVER_END;
}
CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph* phGraph) {
  DRIVER_CALL(cuStreamEndCapture_ptsz, hStream, phGraph) {
    return stream_end_capture(hStream, true, phGraph);
  }
  DRIVER_END;
}

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  DRIVER_CALL(cuEventCreate, phEvent, Flags) {
    if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *phEvent = reinterpret_cast<CUevent>(create_event(current_context(), Flags));
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuEventDestroy_v2(CUevent hEvent) {
  DRIVER_CALL(cuEventDestroy_v2, hEvent) {
    Event* event = find_event(hEvent);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    destroy_event(event);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

namespace {
CUresult event_record(CUevent handle, CUstream stream_handle, bool ptsz) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Event* event = find_event(handle);
  Stream* stream = find_stream(stream_handle, ptsz);
  if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return record_event(event, stream);
}
}  // namespace

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  DRIVER_CALL(cuEventRecord, hEvent, hStream) {
    return event_record(hEvent, hStream, false);
  }
  DRIVER_END;
}
CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream) {
  DRIVER_CALL(cuEventRecord_ptsz, hEvent, hStream) {
    return event_record(hEvent, hStream, true);
  }
  DRIVER_END;
}
CUresult cuEventQuery(CUevent hEvent) {
  DRIVER_CALL(cuEventQuery, hEvent) {
    Event* event = find_event(hEvent);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return event->op == nullptr || event->op->ended_by(now_ns()) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  }
  DRIVER_END;
}
CUresult cuEventSynchronize(CUevent hEvent) {
  DRIVER_CALL(cuEventSynchronize, hEvent) {
    Event* event = find_event(hEvent);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return synchronize(event->op);
  }
  DRIVER_END;
}
CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  DRIVER_CALL(cuEventElapsedTime_v2, pMilliseconds, hStart, hEnd) {
    Event* start = find_event(hStart);
    Event* end = find_event(hEnd);
    if (start == nullptr || end == nullptr || start->op == nullptr || end->op == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    Nanoseconds now = now_ns();
    if (!start->op->ended_by(now) || !end->op->ended_by(now)) return CUDA_ERROR_NOT_READY;
    auto elapsed = static_cast<std::int64_t>(end->op->end.load() - start->op->end.load());
    *pMilliseconds = static_cast<float>(static_cast<double>(elapsed) * 1e-6);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  DRIVER_CALL(cuGraphCreate, phGraph, flags) {
    *phGraph = create_graph()->handle();
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuGraphDestroy(CUgraph hGraph) {
  DRIVER_CALL(cuGraphDestroy, hGraph) {
    if (hGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    destroy_graph(graph_of(hGraph));
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  DRIVER_CALL(cuGraphClone, phGraphClone, originalGraph) {
    if (originalGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::map<const Node*, Node*> copies;
    *phGraphClone = clone_graph(*graph_of(originalGraph), copies)->handle();
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  DRIVER_CALL(cuGraphGetNodes, hGraph, nodes, numNodes) {
    if (hGraph == nullptr || numNodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Graph& graph = *graph_of(hGraph);
    if (nodes != nullptr)
      for (std::size_t i = 0; i < std::min(*numNodes, graph.nodes.size()); ++i)
        nodes[i] = graph.nodes[i]->handle();
    *numNodes = nodes != nullptr ? std::min(*numNodes, graph.nodes.size()) : graph.nodes.size();
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                 size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  DRIVER_CALL(cuGraphAddKernelNode_v2, phGraphNode, hGraph, dependencies, numDependencies, nodeParams) {
    Node* node = nullptr;
    CUresult result =
        add_graph_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_KERNEL, &node);
    if (result != CUDA_SUCCESS) return result;
    void* kernel = nodeParams->func != nullptr ? static_cast<void*>(nodeParams->func)
                                               : static_cast<void*>(nodeParams->kern);
    node->kernel = {static_cast<Kernel*>(kernel),
                    extent(nodeParams->gridDimX, nodeParams->gridDimY, nodeParams->gridDimZ),
                    extent(nodeParams->blockDimX, nodeParams->blockDimY, nodeParams->blockDimZ),
                    nodeParams->sharedMemBytes};
    announce_node(node);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  DRIVER_CALL(cuGraphAddMemcpyNode, phGraphNode, hGraph, dependencies, numDependencies, copyParams, ctx) {
    Node* node = nullptr;
    CUresult result =
        add_graph_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMCPY, &node);
    if (result != CUDA_SUCCESS) return result;
    node->copy = copy_3d(*copyParams);
    announce_node(node);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                  size_t numDependencies, CUgraph childGraph) {
  DRIVER_CALL(cuGraphAddChildGraphNode, phGraphNode, hGraph, dependencies, numDependencies, childGraph) {
    if (childGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Node* node = nullptr;
    CUresult result =
        add_graph_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_GRAPH, &node);
    if (result != CUDA_SUCCESS) return result;
    std::map<const Node*, Node*> copies;
    node->child = clone_graph(*graph_of(childGraph), copies);
    announce_node(node);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  DRIVER_CALL(cuGraphNodeGetType, hNode, type) {
    if (hNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *type = reinterpret_cast<Node*>(hNode)->type;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
// `hNode` is a node of the graph that was instantiated; its copy is in the same place.
CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  DRIVER_CALL(cuGraphNodeSetEnabled, hGraphExec, hNode, isEnabled) {
    if (hGraphExec == nullptr || hNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto& original = reinterpret_cast<Node*>(hNode)->graph->nodes;
    const auto& copies = exec_of(hGraphExec)->graph->nodes;
    for (std::size_t i = 0; i < std::min(original.size(), copies.size()); ++i)
      if (original[i]->handle() == hNode) copies[i]->enabled = isEnabled != 0;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                              CUcontext ctx) {
  DRIVER_CALL(cuGraphAddMemsetNode, phGraphNode, hGraph, dependencies, numDependencies, memsetParams, ctx) {
    Node* node = nullptr;
    CUresult result =
        add_graph_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMSET, &node);
    if (result != CUDA_SUCCESS) return result;
    node->set =
        set_work(memsetParams->dst, memsetParams->value, memsetParams->elementSize, memsetParams->width);
    node->set.height = memsetParams->height;
    node->set.pitch = memsetParams->pitch;
    announce_node(node);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                             size_t numDependencies) {
  DRIVER_CALL(cuGraphAddEmptyNode, phGraphNode, hGraph, dependencies, numDependencies) {
    Node* node = nullptr;
    CUresult result =
        add_graph_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EMPTY, &node);
    if (result == CUDA_SUCCESS) announce_node(node);
    return result;
  }
  DRIVER_END;
}
CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                            size_t numDependencies, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  DRIVER_CALL(cuGraphAddHostNode, phGraphNode, hGraph, dependencies, numDependencies, nodeParams) {
    Node* node = nullptr;
    CUresult result =
        add_graph_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_HOST, &node);
    if (result != CUDA_SUCCESS) return result;
    node->host = {nodeParams->fn, nodeParams->userData};
    announce_node(node);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph, unsigned long long flags) {
  DRIVER_CALL(cuGraphInstantiateWithFlags, phGraphExec, hGraph, flags) {
    if (hGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto* exec = new GraphExec;
    exec->id = next_graph_id();
    exec->context = current_context();
    std::map<const Node*, Node*> copies;
    exec->graph = clone_graph(*graph_of(hGraph), copies, true);
    *phGraphExec = reinterpret_cast<CUgraphExec>(exec);
    CUpti_GraphData data{};
    data.graph = hGraph;
    data.graphExec = *phGraphExec;
    trace::fire_resource(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED, current_context_handle(), nullptr, &data);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  DRIVER_CALL(cuGraphExecDestroy, hGraphExec) {
    if (hGraphExec == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUpti_GraphData data{};
    data.graphExec = hGraphExec;
    trace::fire_resource(CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING, current_context_handle(), nullptr,
                         &data);
    forget_graph(*exec_of(hGraphExec));
    delete exec_of(hGraphExec)->graph;
    delete exec_of(hGraphExec);
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  DRIVER_CALL(cuGraphExecUpdate_v2, hGraphExec, hGraph, resultInfo) {
    if (hGraphExec == nullptr || hGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    GraphExec& exec = *exec_of(hGraphExec);
    touch_broken_graphs();
    bool alike = exec.graph->nodes.size() == graph_of(hGraph)->nodes.size();
    if (resultInfo != nullptr)
      *resultInfo = {alike ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
                     nullptr, nullptr};
    if (!alike) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    std::map<const Node*, Node*> copies;
    Graph* fresh = clone_graph(*graph_of(hGraph), copies);
    std::swap(exec.graph, fresh);
    delete fresh;
    return CUDA_SUCCESS;
  }
  DRIVER_END;
}
CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
  DRIVER_CALL(cuGraphUpload, hGraphExec, hStream) {
    return hGraphExec != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  DRIVER_END;
}

namespace {
CUresult graph_launch(CUgraphExec handle, CUstream stream_handle, bool ptsz) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(stream_handle, ptsz);
  if (handle == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return enqueue(stream, *exec_of(handle));
}
}  // namespace

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
  DRIVER_CALL(cuGraphLaunch, hGraphExec, hStream) {
    return graph_launch(hGraphExec, hStream, false);
  }
  DRIVER_END;
}
CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  DRIVER_CALL(cuGraphLaunch_ptsz, hGraphExec, hStream) {
    return graph_launch(hGraphExec, hStream, true);
  }
  DRIVER_END;
}

// Seen on hardware: CUPTI reports the profiler calls twice, one inside the other.
CUresult cuProfilerStart() {
  DRIVER_CALL_PLAIN(cuProfilerStart) {
    CUresult result = CUDA_SUCCESS;
    trace::ApiCall again(function, nullptr, &result);
    return result;
  }
  DRIVER_END;
}
CUresult cuProfilerStop() {
  DRIVER_CALL_PLAIN(cuProfilerStop) {
    CUresult result = CUDA_SUCCESS;
    trace::ApiCall again(function, nullptr, &result);
    return result;
  }
  DRIVER_END;
}

}  // namespace inject::sim::drv
