// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Devices, which of them the thread has, and versions.
#include <cstring>

#include "tests/sim/cudart/arguments.h"
#include "tests/sim/cudart/call.h"
#include "tests/sim/cudart/impl.h"

namespace inject::sim::rt::impl {
namespace {

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

cudaError_t cudaGetDeviceCount(int* count) {
  return from_driver(drv::cuDeviceGetCount(count));
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
  this_thread().device = device;
  set_current_context(retained_primary_context(device));
  return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned int, unsigned int) {
  if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
  retained_primary_context(device);
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  Context* context = current_context();
  *device = context != nullptr ? context->device : this_thread().device;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return from_driver(drv::cuCtxSynchronize());
}

cudaError_t cudaDeviceReset() {
  return from_driver(drv::cuDevicePrimaryCtxReset_v2(this_thread().device));
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return from_driver(drv::cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attr), device));
}

#if SIM_CUDART_MAJOR >= 13
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
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
#else
cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp12* prop, int device) {
  if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
  *prop = {};
  fill_properties(*prop, device);
  return cudaSuccess;
}
#endif

cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  return from_driver(drv::cuDeviceGetPCIBusId(pciBusId, len, device));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return from_driver(drv::cuCtxGetStreamPriorityRange(leastPriority, greatestPriority));
}

cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  return from_driver(drv::cuDeviceCanAccessPeer(canAccessPeer, device, peerDevice));
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
  if (peerDevice < 0 || peerDevice >= settings().devices) return cudaErrorInvalidDevice;
  return from_driver(drv::cuCtxEnablePeerAccess(primary_context(peerDevice)->handle(), flags));
}

cudaError_t cudaDriverGetVersion(int* driverVersion) {
  return from_driver(drv::cuDriverGetVersion(driverVersion));
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  *runtimeVersion = SIM_CUDART_MAJOR * 1000 + (SIM_CUDART_MAJOR == 12 ? 60 : 0);
  return cudaSuccess;
}

}  // namespace inject::sim::rt::impl
