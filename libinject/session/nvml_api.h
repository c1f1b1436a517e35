// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The part of NVML's binary interface that is used here. Declared by hand, against the rule: the library
// comes with the driver, but its header is in a package of its own that most toolkits lack, and these few
// functions have not changed since CUDA 11.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <optional>

namespace inject::nvml {

using Status = int;  ///< nvmlReturn_t; 0 is success
inline constexpr Status kNotSupported = 3;
inline constexpr Status kNoPermission = 4;
inline constexpr Status kFunctionNotFound = 13;
inline constexpr Status kVersionMismatch = 25;  // NVML_ERROR_ARGUMENT_VERSION_MISMATCH
using Device = struct DeviceHandle*;

/// nvmlMemory_t, of nvmlDeviceGetMemoryInfo: `used` includes what the driver reserves for itself.
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

/// nvmlMemory_v2_t: what the driver reserves for itself is `reserved`, and neither used nor free.
struct Memory2 {
  unsigned version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};
inline constexpr unsigned kMemory2Version = sizeof(Memory2) | 2u << 24;
static_assert(sizeof(Memory) == 24 && sizeof(Memory2) == 40);

using Init = Status();                                      // nvmlInit_v2
using GetHandle = Status(const char* pci_bus_id, Device*);  // nvmlDeviceGetHandleByPciBusId_v2
using GetMemory = Status(Device, Memory*);                  // nvmlDeviceGetMemoryInfo
using GetMemory2 = Status(Device, Memory2*);                // nvmlDeviceGetMemoryInfo_v2
/// nvmlDeviceGet{Curr,Max}PcieLink{Generation,Width}, nvmlDeviceGetPowerUsage and
/// nvmlDeviceGetEnforcedPowerLimit (mW)
using GetNumber = Status(Device, unsigned*);
/// nvmlDeviceGetTotalEnergyConsumption (mJ since the driver was loaded),
/// nvmlDeviceGetCurrentClocksEventReasons
using GetLongNumber = Status(Device, unsigned long long*);
/// nvmlDeviceGetClockInfo, nvmlDeviceGetMaxClockInfo (MHz), nvmlDeviceGetTemperature (°C)
using GetNumberOf = Status(Device, int what, unsigned*);

/// nullptr if the library has no such function.
template <typename Function>
void find(void* library, Function*& function, const char* name) noexcept {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

/// Memory in use on a device, by all processes.
struct MemoryFunctions {
  GetMemory* get = nullptr;
  GetMemory2* get2 = nullptr;

  bool exist() const { return get != nullptr || get2 != nullptr; }
  /// `status`: of the last call made.
  std::optional<std::uint64_t> used(Device device, Status& status) const {
    if (get2 != nullptr) {
      Memory2 memory{};
      memory.version = kMemory2Version;
      status = get2(device, &memory);
      if (status == 0) return memory.used;
      // The older call includes what the driver reserves, so it is used only if this one is not supported.
      if (status != kVersionMismatch && status != kNotSupported && status != kFunctionNotFound)
        return std::nullopt;
    }
    if (get != nullptr) {
      Memory memory{};
      status = get(device, &memory);
      if (status == 0) return memory.used;
    }
    return std::nullopt;
  }
};

inline constexpr int kSmClock = 1;         // NVML_CLOCK_SM
inline constexpr int kMemoryClock = 2;     // NVML_CLOCK_MEM
inline constexpr int kGpuTemperature = 0;  // NVML_TEMPERATURE_GPU

// nvmlClocksEventReasons, older name nvmlClocksThrottleReasons.
inline constexpr unsigned long long kSwPowerCap = 0x4;
inline constexpr unsigned long long kHwSlowdown = 0x8;
inline constexpr unsigned long long kSwThermalSlowdown = 0x20;
inline constexpr unsigned long long kHwThermalSlowdown = 0x40;
inline constexpr unsigned long long kHwPowerBrake = 0x80;

}  // namespace inject::nvml
