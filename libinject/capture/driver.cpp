// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/driver.h"

#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <type_traits>
#include <utility>

#include "libinject/base/dynamic_loader_guard.h"
#include "libinject/base/format.h"
#include "libinject/capture/graph_capture.h"
#include "libinject/capture/hooks/real_symbol.h"
#include "libinject/record/memory_use.h"
#include "libinject/record/thread_registry.h"

namespace inject {

namespace {

constinit std::atomic<decltype(&cuCtxGetDevice)> context_device{nullptr};
constinit std::atomic<bool> initialization_begun{false};

template <typename Function>
Function* driver_function(const char* name) {
  static constinit std::atomic<void*> found{nullptr};
  const DynamicLoaderGuard guard;
  void* driver = found.load(std::memory_order_acquire);
  if (driver == nullptr) {
    // It may be loaded later: a window can be open before CUDA is there.
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    found.store(driver, std::memory_order_release);
  }
  return driver == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(driver, name));
}

// Functions that are called repeatedly, also where time matters: each dlsym waits for a library that another
// thread is loading.
constinit std::atomic<decltype(&cuInit)> initialize{nullptr};
constinit std::atomic<decltype(&cuDeviceGetCount)> device_count{nullptr};
constinit std::atomic<decltype(&cuDeviceGet)> device_at{nullptr};
constinit std::atomic<decltype(&cuDevicePrimaryCtxGetState)> context_state{nullptr};

template <typename Function>
Function* kept(std::atomic<Function*>& function, const char* name) {
  Function* known = function.load(std::memory_order_acquire);
  if (known == nullptr) {
    known = driver_function<Function>(name);
    function.store(known, std::memory_order_release);
  }
  return known;
}

}  // namespace

std::string driver_version() {
  int version = 0;
  auto* get = driver_function<decltype(cuDriverGetVersion)>("cuDriverGetVersion");
  if (get == nullptr || get(&version) != CUDA_SUCCESS) return {};
  return str_format("{}.{}", version / 1000, version % 1000 / 10);
}

void find_driver_functions() noexcept {
  find_graph_functions();
  if (context_device.load(std::memory_order_relaxed) != nullptr) return;
  context_device.store(reinterpret_cast<decltype(&cuCtxGetDevice)>(next_symbol("cuCtxGetDevice")),
                       std::memory_order_release);
}

std::uint32_t current_device() noexcept {
  auto* ask = context_device.load(std::memory_order_acquire);
  if (ask == nullptr) return MemoryUse::kUnknownDevice;
  const int saved_errno = errno;
  // Not recorded, because it is not one of the program's calls.
  const UnrecordedScope unrecorded;
  CUdevice device = -1;
  const bool current = ask(&device) == CUDA_SUCCESS && device >= 0;
  errno = saved_errno;
  if (!current) return MemoryUse::kUnknownDevice;
  const auto number = static_cast<std::uint32_t>(device);
  return number < MemoryUse::kDevices ? number : MemoryUse::kOtherDevice;
}

std::vector<std::uint32_t> devices_in_use() {
  auto* const count_of = kept(device_count, "cuDeviceGetCount");
  if (count_of == nullptr) return {};
  auto* const device_of = kept(device_at, "cuDeviceGet");
  auto* const state_of = kept(context_state, "cuDevicePrimaryCtxGetState");
  std::vector<std::uint32_t> used;
  int count = 0;
  if (device_of == nullptr || state_of == nullptr || count_of(&count) != CUDA_SUCCESS) return used;
  for (int i = 0; i < count; ++i) {
    CUdevice device;
    unsigned flags = 0;
    int active = 0;
    if (device_of(&device, i) == CUDA_SUCCESS && state_of(device, &flags, &active) == CUDA_SUCCESS &&
        active != 0) {
      used.push_back(static_cast<std::uint32_t>(i));
    }
  }
  return used;
}

void note_initialization() noexcept {
  initialization_begun.store(true, std::memory_order_relaxed);
}

void find_device_functions() noexcept {
  kept(initialize, "cuInit");
  kept(device_count, "cuDeviceGetCount");
  kept(device_at, "cuDeviceGet");
  kept(context_state, "cuDevicePrimaryCtxGetState");
}

// The first cuInit holds one of the driver's locks until it ends, and so does nvmlInit; once the driver is
// initialised, cuInit only takes that lock.
void wait_for_driver() noexcept {
  auto* const init = kept(initialize, "cuInit");
  auto* const count_of = kept(device_count, "cuDeviceGetCount");
  int count = 0;
  const bool begun = initialization_begun.load(std::memory_order_relaxed) ||
                     (count_of != nullptr && count_of(&count) == CUDA_SUCCESS);
  // If it has failed, calling it again would try again.
  if (begun && init != nullptr && init(0) != CUDA_SUCCESS)
    initialization_begun.store(false, std::memory_order_relaxed);
  try {
    devices_in_use();
  } catch (...) {
    // No memory for the result, but the call has waited.
  }
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> list;
  auto* count_of = driver_function<decltype(cuDeviceGetCount)>("cuDeviceGetCount");
  auto* device_of = driver_function<decltype(cuDeviceGet)>("cuDeviceGet");
  auto* name_of = driver_function<decltype(cuDeviceGetName)>("cuDeviceGetName");
  auto* attribute_of = driver_function<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  auto* memory_of =
      driver_function<std::remove_pointer_t<decltype(&cuDeviceTotalMem)>>("cuDeviceTotalMem_v2");
  auto* bus_of = driver_function<decltype(cuDeviceGetPCIBusId)>("cuDeviceGetPCIBusId");
  auto* uuid_of = driver_function<std::remove_pointer_t<decltype(&cuDeviceGetUuid)>>("cuDeviceGetUuid_v2");
  int count = 0;
  if (count_of == nullptr || device_of == nullptr || count_of(&count) != CUDA_SUCCESS) return list;
  for (int i = 0; i < count; ++i) {
    CUdevice device;
    if (device_of(&device, i) != CUDA_SUCCESS) continue;
    DeviceInfo info;
    info.id = static_cast<std::uint32_t>(i);
    std::array<char, 256> text{};
    if (name_of != nullptr &&
        name_of(text.data(), static_cast<int>(text.size()) - 1, device) == CUDA_SUCCESS) {
      info.name = text.data();
    }
    if (bus_of != nullptr && bus_of(text.data(), static_cast<int>(text.size()) - 1, device) == CUDA_SUCCESS) {
      info.pci_bus = text.data();
    }
    CUuuid uuid;
    if (uuid_of != nullptr && uuid_of(&uuid, device) == CUDA_SUCCESS) {
      info.uuid = "GPU-";
      for (std::size_t byte = 0; byte < sizeof uuid.bytes; ++byte) {
        info.uuid += str_format("{:02x}", static_cast<unsigned char>(uuid.bytes[byte]));
        if (byte == 3 || byte == 5 || byte == 7 || byte == 9) info.uuid += '-';
      }
    }
    std::size_t bytes = 0;
    if (memory_of != nullptr && memory_of(&bytes, device) == CUDA_SUCCESS) info.memory_bytes = bytes;
    const auto attribute = [&](CUdevice_attribute which, int& value) {
      if (attribute_of != nullptr) attribute_of(&value, which, device);
    };
    attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, info.compute_major);
    attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, info.compute_minor);
    attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, info.multiprocessors);
    attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, info.clock_khz);
    attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, info.memory_clock_khz);
    attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, info.memory_bus_bits);
    attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE, info.warp_size);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, info.threads_per_block);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, info.threads_per_multiprocessor);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, info.blocks_per_multiprocessor);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, info.registers_per_block);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, info.registers_per_multiprocessor);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, info.shared_per_block);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, info.shared_per_block_optin);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, info.shared_per_multiprocessor);
    attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, info.reserved_shared_per_block);
    list.push_back(std::move(info));
  }
  return list;
}

}  // namespace inject
