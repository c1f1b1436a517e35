// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// libcudart.so.13 and libcudart.so.12, compiled from this file once for each. Every call counts, may fail on
// demand, is seen by CUPTI's subscriber and goes through the driver layer, whose callbacks nest inside it.
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "tests/sim/core/driver.h"
#include "tests/sim/core/trace.h"

using namespace inject::sim;

namespace {

constexpr const char* kLibrary = SIM_CUDART_SONAME;

/// A __device__ variable: the host's shadow variable stands for it.
struct Variable {
  const char* name = nullptr;
  void* device = nullptr;
  std::size_t bytes = 0;
};

struct LaunchConfiguration {
  dim3 grid;
  dim3 block;
  std::size_t shared = 0;
  cudaStream_t stream = nullptr;
};

// Leaked: binaries unregister in exit handlers.
struct State {
  std::mutex mutex;
  std::map<const void*, Kernel*> kernels;  // by host stub
  std::map<const void*, Variable> variables;
  std::atomic<bool> initialised{false};
};

State& state() {
  static State& instance = *new State;
  return instance;
}

struct ThreadState {
  cudaError_t last_error = cudaSuccess;
  int device = 0;
  std::vector<LaunchConfiguration> configurations;
};
// Leaked: exit handlers and static destructors call into CUDA after the main thread's thread-local objects
// are gone.
ThreadState& this_thread() {
  thread_local ThreadState& instance = *new ThreadState;
  return instance;
}

cudaError_t from_driver(CUresult result) {
  return static_cast<cudaError_t>(result);
}

cudaError_t keep(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) this_thread().last_error = error;
  return error;
}

// The first call loads the driver, as the real runtime does, and initialises it.
cudaError_t initialise() {
  State& shared = state();
  if (shared.initialised) return in_forked_child() ? cudaErrorInitializationError : cudaSuccess;
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&initialise), &info);
  std::string directory(info.dli_fname);
  directory.resize(directory.rfind('/') + 1);
  dlopen((directory + "libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  // Threads that come meanwhile wait for each other in there.
  CUresult result = drv::cuInit(0);
  if (result == CUDA_SUCCESS) shared.initialised = true;
  return from_driver(result);
}

// The thread's context; the device's primary context if it has none.
Context* need_context() {
  if (Context* context = current_context(); context != nullptr && context->alive) return context;
  Context* context = primary_context(this_thread().device);
  set_current_context(context);
  return context;
}

enum class Needs { kNothing, kDriver, kContext };

template <class Body>
cudaError_t call(Function& function, const void* params, Needs needs, Body&& body,
                 const char* symbol = nullptr) {
  int fault = function.enter();
  if (needs != Needs::kNothing)
    if (cudaError_t error = initialise(); error != cudaSuccess) return keep(error);
  cudaError_t result = cudaSuccess;
  trace::ApiCall api(function, params, &result, symbol);
  if (fault != 0) {
    result = static_cast<cudaError_t>(fault);
  } else {
    if (needs == Needs::kContext) need_context();
    result = body();
  }
  return keep(result);
}

#define RUNTIME_FUNCTION(name)        \
  static constinit FunctionSlot slot; \
  Function& function = slot.get(kLibrary, #name, Domain::kRuntime)

// A call with the parameter structure that CUPTI's callbacks hand out for it.
#define RUNTIME_CALL(name, version, needs, ...)        \
  RUNTIME_FUNCTION(name);                              \
  const name##_##version##_params params{__VA_ARGS__}; \
  return call(function, &params, Needs::needs, [&]() -> cudaError_t
#define RUNTIME_CALL_PLAIN(name, needs) \
  RUNTIME_FUNCTION(name);               \
  return call(function, nullptr, Needs::needs, [&]() -> cudaError_t
#define RUNTIME_END )

CUdeviceptr address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}
CUstream driver_stream(cudaStream_t stream) {
  return reinterpret_cast<CUstream>(stream);
}

Kernel* find_kernel(const void* function) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  auto found = shared.kernels.find(function);
  if (found != shared.kernels.end()) return found->second;
  // A kernel handle is accepted in place of the host function.
  for (const auto& [stub, kernel] : shared.kernels)
    if (kernel == function) return kernel;
  return nullptr;
}

cudaError_t launch(Kernel* kernel, dim3 grid, dim3 block, void** args, std::size_t shared,
                   cudaStream_t stream, bool ptsz) {
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  auto function = reinterpret_cast<CUfunction>(kernel);
  auto launcher = ptsz ? drv::cuLaunchKernel_ptsz : drv::cuLaunchKernel;
  CUresult result = launcher(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                             static_cast<unsigned>(shared), driver_stream(stream), args, nullptr);
  return result == CUDA_ERROR_INVALID_VALUE ? cudaErrorInvalidConfiguration : from_driver(result);
}

cudaError_t launch_ex(const cudaLaunchConfig_t* config, const void* func, void** args, bool ptsz) {
  Kernel* kernel = find_kernel(func);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  CUlaunchConfig driver_config{};
  driver_config.gridDimX = config->gridDim.x;
  driver_config.gridDimY = config->gridDim.y;
  driver_config.gridDimZ = config->gridDim.z;
  driver_config.blockDimX = config->blockDim.x;
  driver_config.blockDimY = config->blockDim.y;
  driver_config.blockDimZ = config->blockDim.z;
  driver_config.sharedMemBytes = static_cast<unsigned>(config->dynamicSmemBytes);
  driver_config.hStream = driver_stream(config->stream);
  auto launcher = ptsz ? drv::cuLaunchKernelEx_ptsz : drv::cuLaunchKernelEx;
  return from_driver(launcher(&driver_config, reinterpret_cast<CUfunction>(kernel), args, nullptr));
}

cudaError_t copy(void* dst, const void* src, std::size_t count, cudaMemcpyKind kind, bool ptds) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return from_driver((ptds ? drv::cuMemcpyHtoD_v2_ptds : drv::cuMemcpyHtoD_v2)(address(dst), src, count));
    case cudaMemcpyDeviceToHost:
      return from_driver((ptds ? drv::cuMemcpyDtoH_v2_ptds : drv::cuMemcpyDtoH_v2)(dst, address(src), count));
    case cudaMemcpyDeviceToDevice:
      return from_driver(
          (ptds ? drv::cuMemcpyDtoD_v2_ptds : drv::cuMemcpyDtoD_v2)(address(dst), address(src), count));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return from_driver((ptds ? drv::cuMemcpy_ptds : drv::cuMemcpy)(address(dst), address(src), count));
  }
  return cudaErrorInvalidMemcpyDirection;
}

cudaError_t copy_async(void* dst, const void* src, std::size_t count, cudaMemcpyKind kind,
                       cudaStream_t stream, bool ptsz) {
  CUstream on = driver_stream(stream);
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return from_driver(
          (ptsz ? drv::cuMemcpyHtoDAsync_v2_ptsz : drv::cuMemcpyHtoDAsync_v2)(address(dst), src, count, on));
    case cudaMemcpyDeviceToHost:
      return from_driver(
          (ptsz ? drv::cuMemcpyDtoHAsync_v2_ptsz : drv::cuMemcpyDtoHAsync_v2)(dst, address(src), count, on));
    case cudaMemcpyDeviceToDevice:
      return from_driver((ptsz ? drv::cuMemcpyDtoDAsync_v2_ptsz : drv::cuMemcpyDtoDAsync_v2)(
          address(dst), address(src), count, on));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return from_driver(
          (ptsz ? drv::cuMemcpyAsync_ptsz : drv::cuMemcpyAsync)(address(dst), address(src), count, on));
  }
  return cudaErrorInvalidMemcpyDirection;
}

CUDA_MEMCPY2D copy_2d(void* dst, std::size_t dpitch, const void* src, std::size_t spitch, std::size_t width,
                      std::size_t height) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = address(src);
  copy.dstDevice = address(dst);
  copy.srcPitch = spitch;
  copy.dstPitch = dpitch;
  copy.WidthInBytes = width;
  copy.Height = height;
  return copy;
}

CUDA_MEMCPY3D copy_3d(const cudaMemcpy3DParms& p) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = address(p.srcPtr.ptr);
  copy.dstDevice = address(p.dstPtr.ptr);
  copy.srcXInBytes = p.srcPos.x;
  copy.srcY = p.srcPos.y;
  copy.srcZ = p.srcPos.z;
  copy.dstXInBytes = p.dstPos.x;
  copy.dstY = p.dstPos.y;
  copy.dstZ = p.dstPos.z;
  copy.srcPitch = p.srcPtr.pitch;
  copy.dstPitch = p.dstPtr.pitch;
  copy.srcHeight = p.srcPtr.ysize;
  copy.dstHeight = p.dstPtr.ysize;
  copy.WidthInBytes = p.extent.width;
  copy.Height = p.extent.height;
  copy.Depth = p.extent.depth;
  return copy;
}

CUDA_MEMCPY3D_PEER copy_3d(const cudaMemcpy3DPeerParms& p) {
  CUDA_MEMCPY3D_PEER copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = address(p.srcPtr.ptr);
  copy.dstDevice = address(p.dstPtr.ptr);
  copy.srcContext = primary_context(p.srcDevice)->handle();
  copy.dstContext = primary_context(p.dstDevice)->handle();
  copy.srcXInBytes = p.srcPos.x;
  copy.srcY = p.srcPos.y;
  copy.srcZ = p.srcPos.z;
  copy.dstXInBytes = p.dstPos.x;
  copy.dstY = p.dstPos.y;
  copy.dstZ = p.dstPos.z;
  copy.srcPitch = p.srcPtr.pitch;
  copy.dstPitch = p.dstPtr.pitch;
  copy.srcHeight = p.srcPtr.ysize;
  copy.dstHeight = p.dstPtr.ysize;
  copy.WidthInBytes = p.extent.width;
  copy.Height = p.extent.height;
  copy.Depth = p.extent.depth;
  return copy;
}

bool find_variable(const void* symbol, Variable& found) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  auto entry = shared.variables.find(symbol);
  if (entry == shared.variables.end()) return false;
  if (entry->second.device == nullptr)
    entry->second.device = allocate(entry->second.bytes, MemoryType::kDevice, current_context());
  found = entry->second;
  return found.device != nullptr;
}

cudaError_t part_of_variable(const void* symbol, std::size_t offset, std::size_t count, Variable& variable) {
  if (!find_variable(symbol, variable)) return cudaErrorInvalidSymbol;
  return offset + count <= variable.bytes ? cudaSuccess : cudaErrorInvalidValue;
}

/// On a multiprocessor, of a kernel with 32 registers a thread and no static shared memory, as all kernels
/// here are: the 64 warps fit with their registers, and a block's shared memory, with 1 KiB for the driver,
/// comes in units of 128 bytes.
int resident_blocks(int block_size, std::size_t shared_bytes) {
  if (block_size > 1024 || shared_bytes > (227 << 10)) return 0;
  const int by_warps = 64 / ((block_size + 31) / 32);
  const std::size_t shared = (shared_bytes + (1 << 10) + 127) / 128 * 128;
  return std::min({32, by_warps, static_cast<int>((228 << 10) / shared)});
}

template <class Properties>
void fill_properties(Properties& properties, int device) {
  auto attribute = [device](CUdevice_attribute name) {
    int value = 0;
    drv::cuDeviceGetAttribute(&value, name, device);
    return value;
  };
  drv::cuDeviceGetName(properties.name, sizeof properties.name, device);
  CUuuid uuid{};
  drv::cuDeviceGetUuid_v2(&uuid, device);
  std::memcpy(&properties.uuid, &uuid, sizeof uuid);
  properties.totalGlobalMem = kDeviceMemory;
  properties.sharedMemPerBlock =
      static_cast<std::size_t>(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK));
  properties.regsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  properties.warpSize = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  properties.maxThreadsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  properties.maxThreadsDim[0] = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  properties.maxThreadsDim[1] = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  properties.maxThreadsDim[2] = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  properties.maxGridSize[0] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  properties.maxGridSize[1] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  properties.maxGridSize[2] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  properties.totalConstMem = static_cast<std::size_t>(attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY));
  properties.major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  properties.minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  properties.multiProcessorCount = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* fatCubin) {
  RUNTIME_FUNCTION(__cudaRegisterFatBinary);
  function.enter();
  return new void*(fatCubin);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void** fatCubinHandle) {
  RUNTIME_FUNCTION(__cudaUnregisterFatBinary);
  function.enter();
  delete fatCubinHandle;
}
void __cudaRegisterFunction(void**, const char* hostFun, char*, const char* deviceName, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  Kernel& kernel = kernel_by_name(deviceName);
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  shared.kernels[hostFun] = &kernel;
}
void __cudaRegisterVar(void**, char* hostVar, char*, const char* deviceName, int, size_t size, int, int) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  shared.variables[hostVar] = {intern(deviceName), nullptr, size};
}
void __cudaRegisterManagedVar(void**, void** hostVarPtrAddress, char*, const char* deviceName, int,
                              size_t size, int, int) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  auto* memory = new char[size]();
  *hostVarPtrAddress = memory;
  shared.variables[hostVarPtrAddress] = {intern(deviceName), memory, size};
}
char __cudaInitModule(void**) {
  return 1;
}

unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem,
                                     struct CUstream_st* stream) {
  this_thread().configurations.push_back({gridDim, blockDim, sharedMem, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* gridDim, dim3* blockDim, size_t* sharedMem, void* stream) {
  if (this_thread().configurations.empty()) return keep(cudaErrorMissingConfiguration);
  LaunchConfiguration configuration = this_thread().configurations.back();
  this_thread().configurations.pop_back();
  *gridDim = configuration.grid;
  *blockDim = configuration.block;
  *sharedMem = configuration.shared;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* entryFunction) {
  Kernel* found = find_kernel(entryFunction);
  if (found == nullptr) return keep(cudaErrorInvalidDeviceFunction);
  *kernel = reinterpret_cast<cudaKernel_t>(found);
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void** args,
                               size_t sharedMem, cudaStream_t stream) {
  RUNTIME_FUNCTION(__cudaLaunchKernel);
  // The headers describe no parameters for it; they are those of cudaLaunchKernel.
  const cudaLaunchKernel_v7000_params params{kernel, gridDim, blockDim, args, sharedMem, stream};
  auto* target = reinterpret_cast<Kernel*>(kernel);
  return call(
      function, &params, Needs::kContext,
      [&] { return launch(target, gridDim, blockDim, args, sharedMem, stream, false); },
      target != nullptr ? target->name : nullptr);
}
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void** args,
                                    size_t sharedMem, cudaStream_t stream) {
  RUNTIME_FUNCTION(__cudaLaunchKernel_ptsz);
  const cudaLaunchKernel_v7000_params params{kernel, gridDim, blockDim, args, sharedMem, stream};
  auto* target = reinterpret_cast<Kernel*>(kernel);
  return call(
      function, &params, Needs::kContext,
      [&] { return launch(target, gridDim, blockDim, args, sharedMem, stream, true); },
      target != nullptr ? target->name : nullptr);
}

cudaError_t cudaLaunchKernel(const void* func, dim3 gridDim, dim3 blockDim, void** args, size_t sharedMem,
                             cudaStream_t stream) {
  RUNTIME_CALL(cudaLaunchKernel, v7000, kContext, func, gridDim, blockDim, args, sharedMem, stream) {
    return launch(find_kernel(func), gridDim, blockDim, args, sharedMem, stream, false);
  }
  RUNTIME_END;
}
cudaError_t cudaLaunchKernel_ptsz(const void* func, dim3 gridDim, dim3 blockDim, void** args,
                                  size_t sharedMem, cudaStream_t stream) {
  RUNTIME_CALL(cudaLaunchKernel_ptsz, v7000, kContext, func, gridDim, blockDim, args, sharedMem, stream) {
    return launch(find_kernel(func), gridDim, blockDim, args, sharedMem, stream, true);
  }
  RUNTIME_END;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* func, void** args) {
  RUNTIME_CALL(cudaLaunchKernelExC, v11060, kContext, config, func, args) {
    return launch_ex(config, func, args, false);
  }
  RUNTIME_END;
}
cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t* config, const void* func, void** args) {
  RUNTIME_CALL(cudaLaunchKernelExC_ptsz, v11060, kContext, config, func, args) {
    return launch_ex(config, func, args, true);
  }
  RUNTIME_END;
}
cudaError_t cudaLaunchCooperativeKernel(const void* func, dim3 gridDim, dim3 blockDim, void** args,
                                        size_t sharedMem, cudaStream_t stream) {
  RUNTIME_CALL_PLAIN(cudaLaunchCooperativeKernel, kContext) {
    Kernel* kernel = find_kernel(func);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    return from_driver(drv::cuLaunchCooperativeKernel(
        reinterpret_cast<CUfunction>(kernel), gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y,
        blockDim.z, static_cast<unsigned>(sharedMem), driver_stream(stream), args));
  }
  RUNTIME_END;
}
cudaError_t cudaLaunchCooperativeKernel_ptsz(const void* func, dim3 gridDim, dim3 blockDim, void** args,
                                             size_t sharedMem, cudaStream_t stream) {
  RUNTIME_CALL_PLAIN(cudaLaunchCooperativeKernel_ptsz, kContext) {
    Kernel* kernel = find_kernel(func);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    return from_driver(drv::cuLaunchCooperativeKernel_ptsz(
        reinterpret_cast<CUfunction>(kernel), gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y,
        blockDim.z, static_cast<unsigned>(sharedMem), driver_stream(stream), args));
  }
  RUNTIME_END;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  RUNTIME_CALL_PLAIN(cudaLaunchHostFunc, kContext) {
    return from_driver(drv::cuLaunchHostFunc(driver_stream(stream), fn, userData));
  }
  RUNTIME_END;
}
cudaError_t cudaLaunchHostFunc_ptsz(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  RUNTIME_CALL_PLAIN(cudaLaunchHostFunc_ptsz, kContext) {
    return from_driver(drv::cuLaunchHostFunc_ptsz(driver_stream(stream), fn, userData));
  }
  RUNTIME_END;
}

cudaError_t cudaMalloc(void** devPtr, size_t size) {
  RUNTIME_CALL(cudaMalloc, v3020, kContext, devPtr, size) {
    return from_driver(drv::cuMemAlloc_v2(reinterpret_cast<CUdeviceptr*>(devPtr), size));
  }
  RUNTIME_END;
}
cudaError_t cudaMallocPitch(void** devPtr, size_t* pitch, size_t width, size_t height) {
  RUNTIME_CALL(cudaMallocPitch, v3020, kContext, devPtr, pitch, width, height) {
    return from_driver(
        drv::cuMemAllocPitch_v2(reinterpret_cast<CUdeviceptr*>(devPtr), pitch, width, height, 4));
  }
  RUNTIME_END;
}
cudaError_t cudaMallocManaged(void** devPtr, size_t size, unsigned int flags) {
  RUNTIME_CALL(cudaMallocManaged, v6000, kContext, devPtr, size, flags) {
    return from_driver(drv::cuMemAllocManaged(reinterpret_cast<CUdeviceptr*>(devPtr), size, flags));
  }
  RUNTIME_END;
}
cudaError_t cudaMallocHost(void** ptr, size_t size) {
  RUNTIME_CALL(cudaMallocHost, v3020, kContext, ptr, size) {
    return from_driver(drv::cuMemAllocHost_v2(ptr, size));
  }
  RUNTIME_END;
}
cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int flags) {
  RUNTIME_CALL(cudaHostAlloc, v3020, kContext, pHost, size, flags) {
    return from_driver(drv::cuMemHostAlloc(pHost, size, flags));
  }
  RUNTIME_END;
}
cudaError_t cudaMallocAsync(void** devPtr, size_t size, cudaStream_t hStream) {
  RUNTIME_CALL(cudaMallocAsync, v11020, kContext, devPtr, size, hStream) {
    return from_driver(
        drv::cuMemAllocAsync(reinterpret_cast<CUdeviceptr*>(devPtr), size, driver_stream(hStream)));
  }
  RUNTIME_END;
}
cudaError_t cudaMallocAsync_ptsz(void** devPtr, size_t size, cudaStream_t hStream) {
  RUNTIME_CALL(cudaMallocAsync_ptsz, v11020, kContext, devPtr, size, hStream) {
    return from_driver(
        drv::cuMemAllocAsync_ptsz(reinterpret_cast<CUdeviceptr*>(devPtr), size, driver_stream(hStream)));
  }
  RUNTIME_END;
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* pitchedDevPtr, cudaExtent extent) {
  RUNTIME_CALL(cudaMalloc3D, v3020, kContext, pitchedDevPtr, extent) {
    CUdeviceptr memory = 0;
    std::size_t pitch = 0;
    cudaError_t error =
        from_driver(drv::cuMemAllocPitch_v2(&memory, &pitch, extent.width, extent.height * extent.depth, 4));
    if (error == cudaSuccess)
      *pitchedDevPtr = {reinterpret_cast<void*>(memory), pitch, extent.width, extent.height};
    return error;
  }
  RUNTIME_END;
}
// A pool is a name: what is allocated from one is allocated as any other.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* memPool, int device) {
  RUNTIME_CALL_PLAIN(cudaDeviceGetDefaultMemPool, kDriver) {
    if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
    *memPool = reinterpret_cast<cudaMemPool_t>(primary_context(device));
    return cudaSuccess;
  }
  RUNTIME_END;
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* memPool, int device) {
  RUNTIME_CALL_PLAIN(cudaDeviceGetMemPool, kDriver) {
    if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
    *memPool = reinterpret_cast<cudaMemPool_t>(primary_context(device));
    return cudaSuccess;
  }
  RUNTIME_END;
}
cudaError_t cudaMallocFromPoolAsync(void** ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream) {
  RUNTIME_CALL(cudaMallocFromPoolAsync, v11020, kContext, ptr, size, memPool, stream) {
    return from_driver(
        drv::cuMemAllocAsync(reinterpret_cast<CUdeviceptr*>(ptr), size, driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaMallocFromPoolAsync_ptsz(void** ptr, size_t size, cudaMemPool_t memPool,
                                         cudaStream_t stream) {
  RUNTIME_CALL(cudaMallocFromPoolAsync_ptsz, v11020, kContext, ptr, size, memPool, stream) {
    return from_driver(
        drv::cuMemAllocAsync_ptsz(reinterpret_cast<CUdeviceptr*>(ptr), size, driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaFree(void* devPtr) {
  RUNTIME_CALL(cudaFree, v3020, kContext, devPtr) {
    return from_driver(drv::cuMemFree_v2(address(devPtr)));
  }
  RUNTIME_END;
}
cudaError_t cudaFreeAsync(void* devPtr, cudaStream_t hStream) {
  RUNTIME_CALL(cudaFreeAsync, v11020, kContext, devPtr, hStream) {
    return from_driver(drv::cuMemFreeAsync(address(devPtr), driver_stream(hStream)));
  }
  RUNTIME_END;
}
cudaError_t cudaFreeAsync_ptsz(void* devPtr, cudaStream_t hStream) {
  RUNTIME_CALL(cudaFreeAsync_ptsz, v11020, kContext, devPtr, hStream) {
    return from_driver(drv::cuMemFreeAsync_ptsz(address(devPtr), driver_stream(hStream)));
  }
  RUNTIME_END;
}
cudaError_t cudaFreeHost(void* ptr) {
  RUNTIME_CALL(cudaFreeHost, v3020, kContext, ptr) {
    return from_driver(drv::cuMemFreeHost(ptr));
  }
  RUNTIME_END;
}
cudaError_t cudaHostRegister(void* ptr, size_t size, unsigned int flags) {
  RUNTIME_CALL(cudaHostRegister, v4000, kContext, ptr, size, flags) {
    return from_driver(drv::cuMemHostRegister_v2(ptr, size, flags));
  }
  RUNTIME_END;
}
cudaError_t cudaHostUnregister(void* ptr) {
  RUNTIME_CALL(cudaHostUnregister, v4000, kContext, ptr) {
    return from_driver(drv::cuMemHostUnregister(ptr));
  }
  RUNTIME_END;
}
cudaError_t cudaHostGetDevicePointer(void** pDevice, void* pHost, unsigned int flags) {
  RUNTIME_CALL(cudaHostGetDevicePointer, v3020, kContext, pDevice, pHost, flags) {
    return from_driver(
        drv::cuMemHostGetDevicePointer_v2(reinterpret_cast<CUdeviceptr*>(pDevice), pHost, flags));
  }
  RUNTIME_END;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  RUNTIME_CALL(cudaMemGetInfo, v3020, kContext, free, total) {
    return from_driver(drv::cuMemGetInfo_v2(free, total));
  }
  RUNTIME_END;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* ptr) {
  RUNTIME_CALL(cudaPointerGetAttributes, v4000, kContext, attributes, ptr) {
    *attributes = {};
    Allocation found;
    if (!find_allocation(ptr, found)) {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = -2;
      return cudaSuccess;
    }
    attributes->type = found.type == MemoryType::kPinned    ? cudaMemoryTypeHost
                       : found.type == MemoryType::kManaged ? cudaMemoryTypeManaged
                                                            : cudaMemoryTypeDevice;
    attributes->device = found.device;
    attributes->devicePointer = const_cast<void*>(ptr);
    attributes->hostPointer = found.type == MemoryType::kDevice ? nullptr : const_cast<void*>(ptr);
    return cudaSuccess;
  }
  RUNTIME_END;
}

cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  RUNTIME_CALL(cudaMemcpy, v3020, kContext, dst, src, count, kind) {
    return copy(dst, src, count, kind, false);
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpy_ptds(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  RUNTIME_CALL(cudaMemcpy_ptds, v7000, kContext, dst, src, count, kind) {
    return copy(dst, src, count, kind, true);
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  RUNTIME_CALL(cudaMemcpyAsync, v3020, kContext, dst, src, count, kind, stream) {
    return copy_async(dst, src, count, kind, stream, false);
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpyAsync_ptsz(void* dst, const void* src, size_t count, cudaMemcpyKind kind,
                                 cudaStream_t stream) {
  RUNTIME_CALL(cudaMemcpyAsync_ptsz, v7000, kContext, dst, src, count, kind, stream) {
    return copy_async(dst, src, count, kind, stream, true);
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpy2D(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                         size_t height, cudaMemcpyKind kind) {
  RUNTIME_CALL(cudaMemcpy2D, v3020, kContext, dst, dpitch, src, spitch, width, height, kind) {
    CUDA_MEMCPY2D work = copy_2d(dst, dpitch, src, spitch, width, height);
    return from_driver(drv::cuMemcpy2DUnaligned_v2(&work));
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpy2D_ptds(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                              size_t height, cudaMemcpyKind kind) {
  RUNTIME_CALL(cudaMemcpy2D_ptds, v7000, kContext, dst, dpitch, src, spitch, width, height, kind) {
    CUDA_MEMCPY2D work = copy_2d(dst, dpitch, src, spitch, width, height);
    return from_driver(drv::cuMemcpy2DUnaligned_v2_ptds(&work));
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  RUNTIME_CALL(cudaMemcpy2DAsync, v3020, kContext, dst, dpitch, src, spitch, width, height, kind, stream) {
    CUDA_MEMCPY2D work = copy_2d(dst, dpitch, src, spitch, width, height);
    return from_driver(drv::cuMemcpy2DAsync_v2(&work, driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpy2DAsync_ptsz(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                                   size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  RUNTIME_CALL(cudaMemcpy2DAsync_ptsz, v7000, kContext, dst, dpitch, src, spitch, width, height, kind,
               stream) {
    CUDA_MEMCPY2D work = copy_2d(dst, dpitch, src, spitch, width, height);
    return from_driver(drv::cuMemcpy2DAsync_v2_ptsz(&work, driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) {
  RUNTIME_CALL(cudaMemcpy3D, v3020, kContext, p) {
    auto copy = copy_3d(*p);
    return from_driver(drv::cuMemcpy3D_v2(&copy));
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpy3D_ptds(const cudaMemcpy3DParms* p) {
  RUNTIME_CALL(cudaMemcpy3D_ptds, v7000, kContext, p) {
    auto copy = copy_3d(*p);
    return from_driver(drv::cuMemcpy3D_v2_ptds(&copy));
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms* p) {
  RUNTIME_CALL(cudaMemcpy3DPeer, v4000, kContext, p) {
    auto copy = copy_3d(*p);
    return from_driver(drv::cuMemcpy3DPeer(&copy));
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpy3DPeer_ptds(const cudaMemcpy3DPeerParms* p) {
  RUNTIME_CALL(cudaMemcpy3DPeer_ptds, v7000, kContext, p) {
    auto copy = copy_3d(*p);
    return from_driver(drv::cuMemcpy3DPeer_ptds(&copy));
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t stream) {
  RUNTIME_CALL(cudaMemcpy3DAsync, v3020, kContext, p, stream) {
    auto copy = copy_3d(*p);
    return from_driver(drv::cuMemcpy3DAsync_v2(&copy, driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpy3DAsync_ptsz(const cudaMemcpy3DParms* p, cudaStream_t stream) {
  RUNTIME_CALL(cudaMemcpy3DAsync_ptsz, v7000, kContext, p, stream) {
    auto copy = copy_3d(*p);
    return from_driver(drv::cuMemcpy3DAsync_v2_ptsz(&copy, driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* p, cudaStream_t stream) {
  RUNTIME_CALL(cudaMemcpy3DPeerAsync, v4000, kContext, p, stream) {
    auto copy = copy_3d(*p);
    return from_driver(drv::cuMemcpy3DPeerAsync(&copy, driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpy3DPeerAsync_ptsz(const cudaMemcpy3DPeerParms* p, cudaStream_t stream) {
  RUNTIME_CALL(cudaMemcpy3DPeerAsync_ptsz, v7000, kContext, p, stream) {
    auto copy = copy_3d(*p);
    return from_driver(drv::cuMemcpy3DPeerAsync_ptsz(&copy, driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpyPeer(void* dst, int dstDevice, const void* src, int srcDevice, size_t count) {
  RUNTIME_CALL(cudaMemcpyPeer, v4000, kContext, dst, dstDevice, src, srcDevice, count) {
    return from_driver(drv::cuMemcpyPeer(address(dst), primary_context(dstDevice)->handle(), address(src),
                                         primary_context(srcDevice)->handle(), count));
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice, size_t count,
                                cudaStream_t stream) {
  RUNTIME_CALL(cudaMemcpyPeerAsync, v4000, kContext, dst, dstDevice, src, srcDevice, count, stream) {
    return from_driver(drv::cuMemcpyPeerAsync(address(dst), primary_context(dstDevice)->handle(),
                                              address(src), primary_context(srcDevice)->handle(), count,
                                              driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* src, size_t count, size_t offset,
                               cudaMemcpyKind kind) {
  RUNTIME_CALL(cudaMemcpyToSymbol, v3020, kContext, symbol, src, count, offset, kind) {
    Variable variable;
    if (cudaError_t error = part_of_variable(symbol, offset, count, variable)) return error;
    return copy(static_cast<std::byte*>(variable.device) + offset, src, count, kind, false);
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpyFromSymbol(void* dst, const void* symbol, size_t count, size_t offset,
                                 cudaMemcpyKind kind) {
  RUNTIME_CALL(cudaMemcpyFromSymbol, v3020, kContext, dst, symbol, count, offset, kind) {
    Variable variable;
    if (cudaError_t error = part_of_variable(symbol, offset, count, variable)) return error;
    return copy(dst, static_cast<const std::byte*>(variable.device) + offset, count, kind, false);
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpyToSymbol_ptds(const void* symbol, const void* src, size_t count, size_t offset,
                                    cudaMemcpyKind kind) {
  RUNTIME_CALL(cudaMemcpyToSymbol_ptds, v7000, kContext, symbol, src, count, offset, kind) {
    Variable variable;
    if (cudaError_t error = part_of_variable(symbol, offset, count, variable)) return error;
    return copy(static_cast<std::byte*>(variable.device) + offset, src, count, kind, true);
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpyFromSymbol_ptds(void* dst, const void* symbol, size_t count, size_t offset,
                                      cudaMemcpyKind kind) {
  RUNTIME_CALL(cudaMemcpyFromSymbol_ptds, v7000, kContext, dst, symbol, count, offset, kind) {
    Variable variable;
    if (cudaError_t error = part_of_variable(symbol, offset, count, variable)) return error;
    return copy(dst, static_cast<const std::byte*>(variable.device) + offset, count, kind, true);
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* src, size_t count, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream) {
  RUNTIME_CALL(cudaMemcpyToSymbolAsync, v3020, kContext, symbol, src, count, offset, kind, stream) {
    Variable variable;
    if (cudaError_t error = part_of_variable(symbol, offset, count, variable)) return error;
    return copy_async(static_cast<std::byte*>(variable.device) + offset, src, count, kind, stream, false);
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpyFromSymbolAsync(void* dst, const void* symbol, size_t count, size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t stream) {
  RUNTIME_CALL(cudaMemcpyFromSymbolAsync, v3020, kContext, dst, symbol, count, offset, kind, stream) {
    Variable variable;
    if (cudaError_t error = part_of_variable(symbol, offset, count, variable)) return error;
    return copy_async(dst, static_cast<const std::byte*>(variable.device) + offset, count, kind, stream,
                      false);
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpyToSymbolAsync_ptsz(const void* symbol, const void* src, size_t count, size_t offset,
                                         cudaMemcpyKind kind, cudaStream_t stream) {
  RUNTIME_CALL(cudaMemcpyToSymbolAsync_ptsz, v7000, kContext, symbol, src, count, offset, kind, stream) {
    Variable variable;
    if (cudaError_t error = part_of_variable(symbol, offset, count, variable)) return error;
    return copy_async(static_cast<std::byte*>(variable.device) + offset, src, count, kind, stream, true);
  }
  RUNTIME_END;
}
cudaError_t cudaMemcpyFromSymbolAsync_ptsz(void* dst, const void* symbol, size_t count, size_t offset,
                                           cudaMemcpyKind kind, cudaStream_t stream) {
  RUNTIME_CALL(cudaMemcpyFromSymbolAsync_ptsz, v7000, kContext, dst, symbol, count, offset, kind, stream) {
    Variable variable;
    if (cudaError_t error = part_of_variable(symbol, offset, count, variable)) return error;
    return copy_async(dst, static_cast<const std::byte*>(variable.device) + offset, count, kind, stream,
                      true);
  }
  RUNTIME_END;
}
cudaError_t cudaGetSymbolAddress(void** devPtr, const void* symbol) {
  RUNTIME_CALL(cudaGetSymbolAddress, v3020, kContext, devPtr, symbol) {
    Variable variable;
    if (!find_variable(symbol, variable)) return cudaErrorInvalidSymbol;
    *devPtr = variable.device;
    return cudaSuccess;
  }
  RUNTIME_END;
}
cudaError_t cudaGetSymbolSize(size_t* size, const void* symbol) {
  RUNTIME_CALL(cudaGetSymbolSize, v3020, kContext, size, symbol) {
    Variable variable;
    if (!find_variable(symbol, variable)) return cudaErrorInvalidSymbol;
    *size = variable.bytes;
    return cudaSuccess;
  }
  RUNTIME_END;
}

cudaError_t cudaMemset(void* devPtr, int value, size_t count) {
  RUNTIME_CALL(cudaMemset, v3020, kContext, devPtr, value, count) {
    return from_driver(drv::cuMemsetD8_v2(address(devPtr), static_cast<unsigned char>(value), count));
  }
  RUNTIME_END;
}
cudaError_t cudaMemset_ptds(void* devPtr, int value, size_t count) {
  RUNTIME_CALL(cudaMemset_ptds, v7000, kContext, devPtr, value, count) {
    return from_driver(drv::cuMemsetD8_v2_ptds(address(devPtr), static_cast<unsigned char>(value), count));
  }
  RUNTIME_END;
}
cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
  RUNTIME_CALL(cudaMemsetAsync, v3020, kContext, devPtr, value, count, stream) {
    return from_driver(drv::cuMemsetD8Async(address(devPtr), static_cast<unsigned char>(value), count,
                                            driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaMemsetAsync_ptsz(void* devPtr, int value, size_t count, cudaStream_t stream) {
  RUNTIME_CALL(cudaMemsetAsync_ptsz, v7000, kContext, devPtr, value, count, stream) {
    return from_driver(drv::cuMemsetD8Async_ptsz(address(devPtr), static_cast<unsigned char>(value), count,
                                                 driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaMemset2D(void* devPtr, size_t pitch, int value, size_t width, size_t height) {
  RUNTIME_CALL(cudaMemset2D, v3020, kContext, devPtr, pitch, value, width, height) {
    return from_driver(
        drv::cuMemsetD2D8_v2(address(devPtr), pitch, static_cast<unsigned char>(value), width, height));
  }
  RUNTIME_END;
}
cudaError_t cudaMemset2DAsync(void* devPtr, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  RUNTIME_CALL(cudaMemset2DAsync, v3020, kContext, devPtr, pitch, value, width, height, stream) {
    return from_driver(drv::cuMemsetD2D8Async(address(devPtr), pitch, static_cast<unsigned char>(value),
                                              width, height, driver_stream(stream)));
  }
  RUNTIME_END;
}

cudaError_t cudaMemset2D_ptds(void* devPtr, size_t pitch, int value, size_t width, size_t height) {
  RUNTIME_CALL(cudaMemset2D_ptds, v7000, kContext, devPtr, pitch, value, width, height) {
    return from_driver(
        drv::cuMemsetD2D8_v2_ptds(address(devPtr), pitch, static_cast<unsigned char>(value), width, height));
  }
  RUNTIME_END;
}
cudaError_t cudaMemset2DAsync_ptsz(void* devPtr, size_t pitch, int value, size_t width, size_t height,
                                   cudaStream_t stream) {
  RUNTIME_CALL(cudaMemset2DAsync_ptsz, v7000, kContext, devPtr, pitch, value, width, height, stream) {
    return from_driver(drv::cuMemsetD2D8Async_ptsz(address(devPtr), pitch, static_cast<unsigned char>(value),
                                                   width, height, driver_stream(stream)));
  }
  RUNTIME_END;
}
// A box whose slices follow one another: rows of one plane.
cudaError_t cudaMemset3D(cudaPitchedPtr pitchedDevPtr, int value, cudaExtent extent) {
  RUNTIME_CALL(cudaMemset3D, v3020, kContext, pitchedDevPtr, value, extent) {
    return from_driver(drv::cuMemsetD2D8_v2(address(pitchedDevPtr.ptr), pitchedDevPtr.pitch,
                                            static_cast<unsigned char>(value), extent.width,
                                            extent.height * extent.depth));
  }
  RUNTIME_END;
}
// A box whose slices follow one another: rows of one plane.
cudaError_t cudaMemset3D_ptds(cudaPitchedPtr pitchedDevPtr, int value, cudaExtent extent) {
  RUNTIME_CALL(cudaMemset3D_ptds, v7000, kContext, pitchedDevPtr, value, extent) {
    return from_driver(drv::cuMemsetD2D8_v2_ptds(address(pitchedDevPtr.ptr), pitchedDevPtr.pitch,
                                                 static_cast<unsigned char>(value), extent.width,
                                                 extent.height * extent.depth));
  }
  RUNTIME_END;
}
// A box whose slices follow one another: rows of one plane.
cudaError_t cudaMemset3DAsync(cudaPitchedPtr pitchedDevPtr, int value, cudaExtent extent,
                              cudaStream_t stream) {
  RUNTIME_CALL(cudaMemset3DAsync, v3020, kContext, pitchedDevPtr, value, extent, stream) {
    return from_driver(drv::cuMemsetD2D8Async(address(pitchedDevPtr.ptr), pitchedDevPtr.pitch,
                                              static_cast<unsigned char>(value), extent.width,
                                              extent.height * extent.depth, driver_stream(stream)));
  }
  RUNTIME_END;
}
// A box whose slices follow one another: rows of one plane.
cudaError_t cudaMemset3DAsync_ptsz(cudaPitchedPtr pitchedDevPtr, int value, cudaExtent extent,
                                   cudaStream_t stream) {
  RUNTIME_CALL(cudaMemset3DAsync_ptsz, v7000, kContext, pitchedDevPtr, value, extent, stream) {
    return from_driver(drv::cuMemsetD2D8Async_ptsz(address(pitchedDevPtr.ptr), pitchedDevPtr.pitch,
                                                   static_cast<unsigned char>(value), extent.width,
                                                   extent.height * extent.depth, driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamCreate(cudaStream_t* pStream) {
  RUNTIME_CALL(cudaStreamCreate, v3020, kContext, pStream) {
    return from_driver(drv::cuStreamCreate(pStream, CU_STREAM_DEFAULT));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
  RUNTIME_CALL(cudaStreamCreateWithFlags, v5000, kContext, pStream, flags) {
    return from_driver(drv::cuStreamCreate(pStream, flags));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int priority) {
  RUNTIME_CALL(cudaStreamCreateWithPriority, v5050, kContext, pStream, flags, priority) {
    return from_driver(drv::cuStreamCreateWithPriority(pStream, flags, priority));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  RUNTIME_CALL(cudaStreamDestroy, v5050, kContext, stream) {
    return from_driver(drv::cuStreamDestroy_v2(driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  RUNTIME_CALL(cudaStreamSynchronize, v3020, kContext, stream) {
    return from_driver(drv::cuStreamSynchronize(driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream) {
  RUNTIME_CALL(cudaStreamSynchronize_ptsz, v7000, kContext, stream) {
    return from_driver(drv::cuStreamSynchronize_ptsz(driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  RUNTIME_CALL(cudaStreamQuery, v3020, kContext, stream) {
    return from_driver(drv::cuStreamQuery(driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamQuery_ptsz(cudaStream_t stream) {
  RUNTIME_CALL(cudaStreamQuery_ptsz, v7000, kContext, stream) {
    return from_driver(drv::cuStreamQuery_ptsz(driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  RUNTIME_CALL(cudaStreamWaitEvent, v3020, kContext, stream, event, flags) {
    return from_driver(drv::cuStreamWaitEvent(driver_stream(stream), event, flags));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamWaitEvent_ptsz(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  RUNTIME_CALL(cudaStreamWaitEvent_ptsz, v7000, kContext, stream, event, flags) {
    return from_driver(drv::cuStreamWaitEvent_ptsz(driver_stream(stream), event, flags));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamGetFlags(cudaStream_t hStream, unsigned int* flags) {
  RUNTIME_CALL_PLAIN(cudaStreamGetFlags, kContext) {
    return from_driver(drv::cuStreamGetFlags(driver_stream(hStream), flags));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamGetPriority(cudaStream_t hStream, int* priority) {
  RUNTIME_CALL_PLAIN(cudaStreamGetPriority, kContext) {
    return from_driver(drv::cuStreamGetPriority(driver_stream(hStream), priority));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamGetId(cudaStream_t hStream, unsigned long long* streamId) {
  RUNTIME_CALL_PLAIN(cudaStreamGetId, kContext) {
    return from_driver(drv::cuStreamGetId(driver_stream(hStream), streamId));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  RUNTIME_CALL(cudaStreamBeginCapture, v10000, kContext, stream, mode) {
    return from_driver(
        drv::cuStreamBeginCapture_v2(driver_stream(stream), static_cast<CUstreamCaptureMode>(mode)));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream, cudaStreamCaptureMode mode) {
  RUNTIME_CALL(cudaStreamBeginCapture_ptsz, v10000, kContext, stream, mode) {
    return from_driver(
        drv::cuStreamBeginCapture_v2_ptsz(driver_stream(stream), static_cast<CUstreamCaptureMode>(mode)));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
  RUNTIME_CALL(cudaStreamEndCapture, v10000, kContext, stream, pGraph) {
    return from_driver(drv::cuStreamEndCapture(driver_stream(stream), pGraph));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t* pGraph) {
  RUNTIME_CALL(cudaStreamEndCapture_ptsz, v10000, kContext, stream, pGraph) {
    return from_driver(drv::cuStreamEndCapture_ptsz(driver_stream(stream), pGraph));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* pCaptureStatus) {
  RUNTIME_CALL(cudaStreamIsCapturing, v10000, kContext, stream, pCaptureStatus) {
    return from_driver(drv::cuStreamIsCapturing(driver_stream(stream),
                                                reinterpret_cast<CUstreamCaptureStatus*>(pCaptureStatus)));
  }
  RUNTIME_END;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  RUNTIME_CALL(cudaThreadExchangeStreamCaptureMode, v10010, kDriver, mode) {
    return from_driver(drv::cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode)));
  }
  RUNTIME_END;
}
#if SIM_CUDART_MAJOR >= 13
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* captureStatus_out,
                                     unsigned long long* id_out, cudaGraph_t* graph_out,
                                     const cudaGraphNode_t** dependencies_out,
                                     const cudaGraphEdgeData** edgeData_out, size_t* numDependencies_out) {
  RUNTIME_CALL_PLAIN(cudaStreamGetCaptureInfo, kContext) {
    cuuint64_t id = 0;
    CUresult result = drv::cuStreamGetCaptureInfo_v3(
        driver_stream(stream), reinterpret_cast<CUstreamCaptureStatus*>(captureStatus_out), &id, graph_out,
        dependencies_out, reinterpret_cast<const CUgraphEdgeData**>(edgeData_out), numDependencies_out);
    if (id_out != nullptr) *id_out = id;
    return from_driver(result);
  }
  RUNTIME_END;
}
#endif

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* userData,
                                  unsigned int flags) {
  RUNTIME_CALL(cudaStreamAddCallback, v5000, kContext, stream, callback, userData, flags) {
    return from_driver(drv::cuStreamAddCallback(
        driver_stream(stream), reinterpret_cast<CUstreamCallback>(callback), userData, flags));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamAddCallback_ptsz(cudaStream_t stream, cudaStreamCallback_t callback, void* userData,
                                       unsigned int flags) {
  RUNTIME_CALL(cudaStreamAddCallback_ptsz, v7000, kContext, stream, callback, userData, flags) {
    return from_driver(drv::cuStreamAddCallback_ptsz(
        driver_stream(stream), reinterpret_cast<CUstreamCallback>(callback), userData, flags));
  }
  RUNTIME_END;
}
cudaError_t cudaStreamIsCapturing_ptsz(cudaStream_t stream, cudaStreamCaptureStatus* pCaptureStatus) {
  RUNTIME_CALL(cudaStreamIsCapturing_ptsz, v10000, kContext, stream, pCaptureStatus) {
    return from_driver(drv::cuStreamIsCapturing_ptsz(
        driver_stream(stream), reinterpret_cast<CUstreamCaptureStatus*>(pCaptureStatus)));
  }
  RUNTIME_END;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  RUNTIME_CALL(cudaEventCreate, v3020, kContext, event) {
    return from_driver(drv::cuEventCreate(event, CU_EVENT_DEFAULT));
  }
  RUNTIME_END;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  RUNTIME_CALL(cudaEventCreateWithFlags, v3020, kContext, event, flags) {
    return from_driver(drv::cuEventCreate(event, flags));
  }
  RUNTIME_END;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  RUNTIME_CALL(cudaEventRecord, v3020, kContext, event, stream) {
    return from_driver(drv::cuEventRecord(event, driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaEventRecord_ptsz(cudaEvent_t event, cudaStream_t stream) {
  RUNTIME_CALL(cudaEventRecord_ptsz, v7000, kContext, event, stream) {
    return from_driver(drv::cuEventRecord_ptsz(event, driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int) {
  RUNTIME_CALL_PLAIN(cudaEventRecordWithFlags, kContext) {
    return from_driver(drv::cuEventRecord(event, driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaEventRecordWithFlags_ptsz(cudaEvent_t event, cudaStream_t stream, unsigned int) {
  RUNTIME_CALL_PLAIN(cudaEventRecordWithFlags_ptsz, kContext) {
    return from_driver(drv::cuEventRecord_ptsz(event, driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  RUNTIME_CALL(cudaEventQuery, v3020, kContext, event) {
    return from_driver(drv::cuEventQuery(event));
  }
  RUNTIME_END;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  RUNTIME_CALL(cudaEventSynchronize, v3020, kContext, event) {
    return from_driver(drv::cuEventSynchronize(event));
  }
  RUNTIME_END;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  RUNTIME_CALL(cudaEventElapsedTime, v12080, kContext, ms, start, end) {
    return from_driver(drv::cuEventElapsedTime_v2(ms, start, end));
  }
  RUNTIME_END;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  RUNTIME_CALL(cudaEventDestroy, v3020, kContext, event) {
    return from_driver(drv::cuEventDestroy_v2(event));
  }
  RUNTIME_END;
}

cudaError_t cudaGraphCreate(cudaGraph_t* pGraph, unsigned int flags) {
  RUNTIME_CALL(cudaGraphCreate, v10000, kContext, pGraph, flags) {
    return from_driver(drv::cuGraphCreate(pGraph, flags));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  RUNTIME_CALL(cudaGraphDestroy, v10000, kContext, graph) {
    return from_driver(drv::cuGraphDestroy(graph));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphClone(cudaGraph_t* pGraphClone, cudaGraph_t originalGraph) {
  RUNTIME_CALL(cudaGraphClone, v10000, kContext, pGraphClone, originalGraph) {
    return from_driver(drv::cuGraphClone(pGraphClone, originalGraph));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* numNodes) {
  RUNTIME_CALL(cudaGraphGetNodes, v10000, kContext, graph, nodes, numNodes) {
    return from_driver(drv::cuGraphGetNodes(graph, nodes, numNodes));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                   const cudaKernelNodeParams* pNodeParams) {
  RUNTIME_CALL(cudaGraphAddKernelNode, v10000, kContext, pGraphNode, graph, pDependencies, numDependencies,
               pNodeParams) {
    Kernel* kernel = find_kernel(pNodeParams->func);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    CUDA_KERNEL_NODE_PARAMS node{};
    node.func = reinterpret_cast<CUfunction>(kernel);
    node.gridDimX = pNodeParams->gridDim.x;
    node.gridDimY = pNodeParams->gridDim.y;
    node.gridDimZ = pNodeParams->gridDim.z;
    node.blockDimX = pNodeParams->blockDim.x;
    node.blockDimY = pNodeParams->blockDim.y;
    node.blockDimZ = pNodeParams->blockDim.z;
    node.sharedMemBytes = pNodeParams->sharedMemBytes;
    return from_driver(
        drv::cuGraphAddKernelNode_v2(pGraphNode, graph, pDependencies, numDependencies, &node));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                   const cudaMemsetParams* pMemsetParams) {
  RUNTIME_CALL(cudaGraphAddMemsetNode, v10000, kContext, pGraphNode, graph, pDependencies, numDependencies,
               pMemsetParams) {
    CUDA_MEMSET_NODE_PARAMS node{};
    node.dst = address(pMemsetParams->dst);
    node.pitch = pMemsetParams->pitch;
    node.value = pMemsetParams->value;
    node.elementSize = pMemsetParams->elementSize;
    node.width = pMemsetParams->width;
    node.height = pMemsetParams->height;
    return from_driver(drv::cuGraphAddMemsetNode(pGraphNode, graph, pDependencies, numDependencies, &node,
                                                 current_context_handle()));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                  const cudaGraphNode_t* pDependencies, size_t numDependencies) {
  RUNTIME_CALL(cudaGraphAddEmptyNode, v10000, kContext, pGraphNode, graph, pDependencies, numDependencies) {
    return from_driver(drv::cuGraphAddEmptyNode(pGraphNode, graph, pDependencies, numDependencies));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                   const cudaMemcpy3DParms* pCopyParams) {
  RUNTIME_CALL(cudaGraphAddMemcpyNode, v10000, kContext, pGraphNode, graph, pDependencies, numDependencies,
               pCopyParams) {
    CUDA_MEMCPY3D copy = copy_3d(*pCopyParams);
    return from_driver(drv::cuGraphAddMemcpyNode(pGraphNode, graph, pDependencies, numDependencies, &copy,
                                                 current_context_handle()));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                     const cudaGraphNode_t* pDependencies, size_t numDependencies, void* dst,
                                     const void* src, size_t count, cudaMemcpyKind) {
  RUNTIME_CALL_PLAIN(cudaGraphAddMemcpyNode1D, kContext) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.srcDevice = address(src);
    copy.dstDevice = address(dst);
    copy.WidthInBytes = count;
    copy.Height = copy.Depth = 1;
    return from_driver(drv::cuGraphAddMemcpyNode(pGraphNode, graph, pDependencies, numDependencies, &copy,
                                                 current_context_handle()));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                 const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                 const cudaHostNodeParams* pNodeParams) {
  RUNTIME_CALL(cudaGraphAddHostNode, v10000, kContext, pGraphNode, graph, pDependencies, numDependencies,
               pNodeParams) {
    CUDA_HOST_NODE_PARAMS node{};
    node.fn = pNodeParams->fn;
    node.userData = pNodeParams->userData;
    return from_driver(drv::cuGraphAddHostNode(pGraphNode, graph, pDependencies, numDependencies, &node));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                       const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                       cudaGraph_t childGraph) {
  RUNTIME_CALL(cudaGraphAddChildGraphNode, v10000, kContext, pGraphNode, graph, pDependencies,
               numDependencies, childGraph) {
    return from_driver(
        drv::cuGraphAddChildGraphNode(pGraphNode, graph, pDependencies, numDependencies, childGraph));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* pType) {
  RUNTIME_CALL(cudaGraphNodeGetType, v10000, kContext, node, pType) {
    return from_driver(drv::cuGraphNodeGetType(node, reinterpret_cast<CUgraphNodeType*>(pType)));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode,
                                    unsigned int isEnabled) {
  RUNTIME_CALL(cudaGraphNodeSetEnabled, v11060, kContext, hGraphExec, hNode, isEnabled) {
    return from_driver(drv::cuGraphNodeSetEnabled(hGraphExec, hNode, isEnabled));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph, unsigned long long flags) {
  RUNTIME_CALL_PLAIN(cudaGraphInstantiate, kContext) {
    return from_driver(drv::cuGraphInstantiateWithFlags(pGraphExec, graph, flags));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                          unsigned long long flags) {
  RUNTIME_CALL(cudaGraphInstantiateWithFlags, v11040, kContext, pGraphExec, graph, flags) {
    return from_driver(drv::cuGraphInstantiateWithFlags(pGraphExec, graph, flags));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  RUNTIME_CALL(cudaGraphExecDestroy, v10000, kContext, graphExec) {
    return from_driver(drv::cuGraphExecDestroy(graphExec));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
                                cudaGraphExecUpdateResultInfo* resultInfo) {
  RUNTIME_CALL_PLAIN(cudaGraphExecUpdate, kContext) {
    return from_driver(drv::cuGraphExecUpdate_v2(hGraphExec, hGraph,
                                                 reinterpret_cast<CUgraphExecUpdateResultInfo*>(resultInfo)));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream) {
  RUNTIME_CALL_PLAIN(cudaGraphUpload, kContext) {
    return from_driver(drv::cuGraphUpload(graphExec, driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  RUNTIME_CALL(cudaGraphLaunch, v10000, kContext, graphExec, stream) {
    return from_driver(drv::cuGraphLaunch(graphExec, driver_stream(stream)));
  }
  RUNTIME_END;
}
cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t graphExec, cudaStream_t stream) {
  RUNTIME_CALL(cudaGraphLaunch_ptsz, v10000, kContext, graphExec, stream) {
    return from_driver(drv::cuGraphLaunch_ptsz(graphExec, driver_stream(stream)));
  }
  RUNTIME_END;
}

cudaError_t cudaGetDeviceCount(int* count) {
  RUNTIME_CALL(cudaGetDeviceCount, v3020, kDriver, count) {
    return from_driver(drv::cuDeviceGetCount(count));
  }
  RUNTIME_END;
}
cudaError_t cudaSetDevice(int device) {
  RUNTIME_CALL(cudaSetDevice, v3020, kDriver, device) {
    if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
    this_thread().device = device;
    set_current_context(primary_context(device));
    return cudaSuccess;
  }
  RUNTIME_END;
}
cudaError_t cudaInitDevice(int device, unsigned int, unsigned int) {
  RUNTIME_CALL_PLAIN(cudaInitDevice, kDriver) {
    if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
    primary_context(device);
    return cudaSuccess;
  }
  RUNTIME_END;
}
cudaError_t cudaGetDevice(int* device) {
  RUNTIME_CALL(cudaGetDevice, v3020, kDriver, device) {
    Context* context = current_context();
    *device = context != nullptr ? context->device : this_thread().device;
    return cudaSuccess;
  }
  RUNTIME_END;
}
cudaError_t cudaDeviceSynchronize(void) {
  RUNTIME_CALL_PLAIN(cudaDeviceSynchronize, kContext) {
    return from_driver(drv::cuCtxSynchronize());
  }
  RUNTIME_END;
}
cudaError_t cudaDeviceReset(void) {
  RUNTIME_CALL_PLAIN(cudaDeviceReset, kDriver) {
    return from_driver(drv::cuDevicePrimaryCtxReset_v2(this_thread().device));
  }
  RUNTIME_END;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  RUNTIME_CALL_PLAIN(cudaDeviceGetAttribute, kDriver) {
    return from_driver(drv::cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attr), device));
  }
  RUNTIME_END;
}
#if SIM_CUDART_MAJOR >= 13
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  RUNTIME_CALL_PLAIN(cudaGetDeviceProperties, kDriver) {
    if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
    *prop = {};
    fill_properties(*prop, device);
    prop->pciBusID = device + 1;
    prop->concurrentKernels = prop->unifiedAddressing = prop->managedMemory = 1;
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->maxBlocksPerMultiProcessor = 32;
    prop->regsPerMultiprocessor = 65536;
    prop->sharedMemPerMultiprocessor = 228 << 10;
    prop->sharedMemPerBlockOptin = 227 << 10;
    prop->l2CacheSize = 50 << 20;
    prop->memoryBusWidth = 5120;
    prop->asyncEngineCount = 3;
    return cudaSuccess;
  }
  RUNTIME_END;
}
#else
// The head of CUDA 12's structure, which has a clock rate where 13's has none.
struct cudaDeviceProp12 {
  char name[256];
  cudaUUID_t uuid;
  char luid[8];
  unsigned int luidDeviceNodeMask;
  size_t totalGlobalMem;
  size_t sharedMemPerBlock;
  int regsPerBlock;
  int warpSize;
  size_t memPitch;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int clockRate;
  size_t totalConstMem;
  int major;
  int minor;
  size_t textureAlignment;
  size_t texturePitchAlignment;
  int deviceOverlap;
  int multiProcessorCount;
};
cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp12* prop, int device) {
  RUNTIME_CALL_PLAIN(cudaGetDeviceProperties_v2, kDriver) {
    if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
    *prop = {};
    fill_properties(*prop, device);
    return cudaSuccess;
  }
  RUNTIME_END;
}
#endif
cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  RUNTIME_CALL_PLAIN(cudaDeviceGetPCIBusId, kDriver) {
    return from_driver(drv::cuDeviceGetPCIBusId(pciBusId, len, device));
  }
  RUNTIME_END;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  RUNTIME_CALL_PLAIN(cudaDeviceGetStreamPriorityRange, kContext) {
    return from_driver(drv::cuCtxGetStreamPriorityRange(leastPriority, greatestPriority));
  }
  RUNTIME_END;
}
cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  RUNTIME_CALL(cudaDeviceCanAccessPeer, v4000, kDriver, canAccessPeer, device, peerDevice) {
    return from_driver(drv::cuDeviceCanAccessPeer(canAccessPeer, device, peerDevice));
  }
  RUNTIME_END;
}
cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
  RUNTIME_CALL(cudaDeviceEnablePeerAccess, v4000, kContext, peerDevice, flags) {
    if (peerDevice < 0 || peerDevice >= settings().devices) return cudaErrorInvalidDevice;
    return from_driver(drv::cuCtxEnablePeerAccess(primary_context(peerDevice)->handle(), flags));
  }
  RUNTIME_END;
}
cudaError_t cudaDriverGetVersion(int* driverVersion) {
  RUNTIME_CALL(cudaDriverGetVersion, v3020, kNothing, driverVersion) {
    return from_driver(drv::cuDriverGetVersion(driverVersion));
  }
  RUNTIME_END;
}
cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  RUNTIME_CALL(cudaRuntimeGetVersion, v3020, kNothing, runtimeVersion) {
    *runtimeVersion = SIM_CUDART_MAJOR * 1000 + (SIM_CUDART_MAJOR == 12 ? 60 : 0);
    return cudaSuccess;
  }
  RUNTIME_END;
}

cudaError_t cudaGetLastError(void) {
  RUNTIME_FUNCTION(cudaGetLastError);
  function.enter();
  cudaError_t error = this_thread().last_error;
  this_thread().last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError(void) {
  RUNTIME_FUNCTION(cudaPeekAtLastError);
  function.enter();
  return this_thread().last_error;
}
const char* cudaGetErrorString(cudaError_t error) {
  RUNTIME_FUNCTION(cudaGetErrorString);
  function.enter();
  const char* text = nullptr;
  drv::cuGetErrorString(static_cast<CUresult>(error), &text);
  return text;
}
const char* cudaGetErrorName(cudaError_t error) {
  RUNTIME_FUNCTION(cudaGetErrorName);
  function.enter();
  const char* text = nullptr;
  drv::cuGetErrorName(static_cast<CUresult>(error), &text);
  return text;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attr, const void* func) {
  RUNTIME_CALL(cudaFuncGetAttributes, v3020, kContext, attr, func) {
    if (find_kernel(func) == nullptr) return cudaErrorInvalidDeviceFunction;
    *attr = {};
    attr->maxThreadsPerBlock = 1024;
    attr->numRegs = 32;
    attr->binaryVersion = attr->ptxVersion = 90;
    return cudaSuccess;
  }
  RUNTIME_END;
}
cudaError_t cudaFuncGetName(const char** name, const void* func) {
  RUNTIME_CALL_PLAIN(cudaFuncGetName, kContext) {
    Kernel* kernel = find_kernel(func);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    *name = kernel->name;
    return cudaSuccess;
  }
  RUNTIME_END;
}
cudaError_t cudaGetKernel(cudaKernel_t* kernelPtr, const void* entryFuncAddr) {
  RUNTIME_CALL_PLAIN(cudaGetKernel, kContext) {
    Kernel* kernel = find_kernel(entryFuncAddr);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    *kernelPtr = reinterpret_cast<cudaKernel_t>(kernel);
    return cudaSuccess;
  }
  RUNTIME_END;
}
cudaError_t cudaGetFuncBySymbol(cudaFunction_t* functionPtr, const void* symbolPtr) {
  RUNTIME_CALL_PLAIN(cudaGetFuncBySymbol, kContext) {
    Kernel* kernel = find_kernel(symbolPtr);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    *functionPtr = reinterpret_cast<cudaFunction_t>(kernel);
    return cudaSuccess;
  }
  RUNTIME_END;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, const void*, int blockSize,
                                                          size_t dynamicSMemSize) {
  RUNTIME_CALL_PLAIN(cudaOccupancyMaxActiveBlocksPerMultiprocessor, kContext) {
    if (blockSize <= 0) return cudaErrorInvalidValue;
    *numBlocks = resident_blocks(blockSize, dynamicSMemSize);
    return cudaSuccess;
  }
  RUNTIME_END;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, const void*, int blockSize,
                                                                   size_t dynamicSMemSize, unsigned int) {
  RUNTIME_CALL_PLAIN(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, kContext) {
    if (blockSize <= 0) return cudaErrorInvalidValue;
    *numBlocks = resident_blocks(blockSize, dynamicSMemSize);
    return cudaSuccess;
  }
  RUNTIME_END;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** funcPtr, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* driverStatus) {
  RUNTIME_CALL_PLAIN(cudaGetDriverEntryPointByVersion, kDriver) {
    *funcPtr = nullptr;
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver != nullptr) {
      for (const char* version : {"_v4", "_v3", "_v2", ""})
        if ((*funcPtr = dlsym(driver, (std::string(symbol) + version).c_str())) != nullptr) break;
      dlclose(driver);
    }
    if (driverStatus != nullptr)
      *driverStatus = *funcPtr != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
  }
  RUNTIME_END;
}
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** funcPtr, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* driverStatus) {
  return cudaGetDriverEntryPointByVersion(symbol, funcPtr, CUDART_VERSION, flags, driverStatus);
}
cudaError_t cudaGetExportTable(const void** ppExportTable, const cudaUUID_t*) {
  *ppExportTable = nullptr;
  return keep(cudaErrorUnknown);
}
cudaError_t cudaProfilerStart(void) {
  RUNTIME_CALL_PLAIN(cudaProfilerStart, kContext) {
    return from_driver(drv::cuProfilerStart());
  }
  RUNTIME_END;
}
cudaError_t cudaProfilerStop(void) {
  RUNTIME_CALL_PLAIN(cudaProfilerStop, kContext) {
    return from_driver(drv::cuProfilerStop());
  }
  RUNTIME_END;
}
}
