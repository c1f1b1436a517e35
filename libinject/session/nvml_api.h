// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The part of NVML's binary interface that is used here. Declared by hand, against the rule: the library
// comes with the driver, but its header is in a package of its own that most toolkits lack, and these few
// functions have not changed since CUDA 11.
#pragma once

#include <cstdint>

namespace inject::nvml {

using Status = int;  ///< nvmlReturn_t; 0 is success
using Device = struct DeviceHandle*;

/// nvmlMemory_t, of nvmlDeviceGetMemoryInfo: `used` has what the driver keeps for itself.
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

/// nvmlMemory_v2_t: what the driver keeps for itself is `reserved`, and neither used nor free.
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
using GetNumber = Status(Device, unsigned*);  // nvmlDeviceGet{Curr,Max}PcieLink{Generation,Width}

}  // namespace inject::nvml
