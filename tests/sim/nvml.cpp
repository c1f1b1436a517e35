// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// libnvidia-ml.so.1: what the profiler asks of NVML. A device's memory in use is what is allocated on it, by
// the process, and kBase. Power, energy and clocks are told where CUDASIM_POWER is given.
#include <cstdlib>
#include <string>

#include "libinject/session/nvml_api.h"
#include "tests/sim/core/device.h"
#include "tests/sim/core/driver.h"
#include "tests/sim/core/power.h"

using namespace inject::sim;
namespace nvml = inject::nvml;

namespace {

constexpr nvml::Status kUninitialized = 1;
constexpr nvml::Status kInvalidArgument = 2;
constexpr nvml::Status kNotFound = 6;
constexpr nvml::Status kWrongVersion = 25;

constexpr unsigned long long kBase = 500'000'000;
constexpr unsigned long long kReserved = 600'000'000;

std::atomic<bool> initialised{false};

#define NVML_FUNCTION(name)                                                 \
  static constinit FunctionSlot slot;                                       \
  Function& function = slot.get("libnvidia-ml.so.1", #name, Domain::kNone); \
  if (int fault = function.enter()) return fault;                           \
  if (!initialised) return kUninitialized

int device_of(nvml::Device device) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(device)) - 1;
}

bool valid(nvml::Device device) {
  return device_of(device) >= 0 && device_of(device) < settings().devices;
}

template <typename Number>
nvml::Status tell(nvml::Device device, Number* number, std::uint64_t (*value)(int device)) {
  if (!valid(device) || number == nullptr) return kInvalidArgument;
  if (!power::simulated()) return nvml::kNotSupported;
  *number = static_cast<Number>(value(device_of(device)));
  return 0;
}

nvml::Status give(nvml::Device device, unsigned* number, unsigned value) {
  if (!valid(device) || number == nullptr) return kInvalidArgument;
  *number = value;
  return 0;
}

}  // namespace

extern "C" {

nvml::Status nvmlInit_v2() {
  const int fault = drv::initialise_nvml([] {
    static constinit FunctionSlot slot;
    return slot.get("libnvidia-ml.so.1", "nvmlInit_v2", Domain::kNone).enter();
  });
  if (fault == 0) initialised = true;
  return fault;
}

nvml::Status nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvml::Device* device) {
  NVML_FUNCTION(nvmlDeviceGetHandleByPciBusId_v2);
  // As cuDeviceGetPCIBusId has it: 0000:BUS:00.0, the bus being the device's number and one.
  const std::string text = id == nullptr ? "" : id;
  if (text.size() < 7 || device == nullptr) return kInvalidArgument;
  const auto bus = static_cast<std::uintptr_t>(std::strtoul(text.substr(5, 2).c_str(), nullptr, 16));
  *device = reinterpret_cast<nvml::Device>(bus);
  return valid(*device) ? 0 : kNotFound;
}

nvml::Status nvmlDeviceGetMemoryInfo(nvml::Device device, nvml::Memory* memory) {
  NVML_FUNCTION(nvmlDeviceGetMemoryInfo);
  if (!valid(device) || memory == nullptr) return kInvalidArgument;
  memory->total = kDeviceMemory + kReserved;
  memory->used = used_bytes(device_of(device)) + kBase + kReserved;
  memory->free = memory->total - memory->used;
  return 0;
}

nvml::Status nvmlDeviceGetMemoryInfo_v2(nvml::Device device, nvml::Memory2* memory) {
  NVML_FUNCTION(nvmlDeviceGetMemoryInfo_v2);
  if (!valid(device) || memory == nullptr) return kInvalidArgument;
  if (memory->version != nvml::kMemory2Version) return kWrongVersion;
  memory->total = kDeviceMemory + kReserved;
  memory->reserved = kReserved;
  memory->used = used_bytes(device_of(device)) + kBase;
  memory->free = memory->total - memory->reserved - memory->used;
  return 0;
}

nvml::Status nvmlDeviceGetCurrPcieLinkGeneration(nvml::Device device, unsigned* generation) {
  NVML_FUNCTION(nvmlDeviceGetCurrPcieLinkGeneration);
  return give(device, generation, 4);
}
nvml::Status nvmlDeviceGetCurrPcieLinkWidth(nvml::Device device, unsigned* width) {
  NVML_FUNCTION(nvmlDeviceGetCurrPcieLinkWidth);
  return give(device, width, 8);
}
nvml::Status nvmlDeviceGetMaxPcieLinkGeneration(nvml::Device device, unsigned* generation) {
  NVML_FUNCTION(nvmlDeviceGetMaxPcieLinkGeneration);
  return give(device, generation, 4);
}
nvml::Status nvmlDeviceGetMaxPcieLinkWidth(nvml::Device device, unsigned* width) {
  NVML_FUNCTION(nvmlDeviceGetMaxPcieLinkWidth);
  return give(device, width, 16);
}

nvml::Status nvmlDeviceGetTotalEnergyConsumption(nvml::Device device, unsigned long long* energy) {
  NVML_FUNCTION(nvmlDeviceGetTotalEnergyConsumption);
  return tell(device, energy, &power::counter);
}
nvml::Status nvmlDeviceGetPowerUsage(nvml::Device device, unsigned* milliwatts) {
  NVML_FUNCTION(nvmlDeviceGetPowerUsage);
  return tell(device, milliwatts, &power::present);
}
nvml::Status nvmlDeviceGetEnforcedPowerLimit(nvml::Device device, unsigned* milliwatts) {
  NVML_FUNCTION(nvmlDeviceGetEnforcedPowerLimit);
  return tell(device, milliwatts, [](int) { return settings().power.limit; });
}
nvml::Status nvmlDeviceGetClockInfo(nvml::Device device, int clock, unsigned* mhz) {
  NVML_FUNCTION(nvmlDeviceGetClockInfo);
  if (clock == nvml::kMemoryClock)
    return tell(device, mhz, [](int) { return settings().power.memory_clock; });
  if (clock != nvml::kSmClock) return kInvalidArgument;
  return tell(device, mhz, [](int) {
    const std::uint64_t held = faults().sm_clock;
    return held != 0 ? held : settings().power.sm_clock;
  });
}
nvml::Status nvmlDeviceGetMaxClockInfo(nvml::Device device, int clock, unsigned* mhz) {
  NVML_FUNCTION(nvmlDeviceGetMaxClockInfo);
  if (clock != nvml::kSmClock) return kInvalidArgument;
  return tell(device, mhz, [](int) { return settings().power.max_sm_clock; });
}
nvml::Status nvmlDeviceGetTemperature(nvml::Device device, int sensor, unsigned* celsius) {
  NVML_FUNCTION(nvmlDeviceGetTemperature);
  if (sensor != nvml::kGpuTemperature) return kInvalidArgument;
  return tell(device, celsius, [](int) { return settings().power.celsius; });
}
nvml::Status nvmlDeviceGetCurrentClocksEventReasons(nvml::Device device, unsigned long long* reasons) {
  NVML_FUNCTION(nvmlDeviceGetCurrentClocksEventReasons);
  return tell(device, reasons, [](int) -> std::uint64_t { return faults().clock_reasons; });
}
}
