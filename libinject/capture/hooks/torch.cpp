// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// PyTorch's caching allocator calls c10::reportMemoryUsageToProfiler() with each allocation and free, with a
// profiler or without, from another library than the one that defines it (c10/cuda/CUDACachingAllocator.cpp,
// c10/core/Allocator.h): the call can be hooked like any other. It reports how much is allocated and reserved
// on the device, as signed numbers in PyTorch 1.13 and as unsigned ones in 2.11, so that the function has two
// symbol names.
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "libinject/capture/hooks/real_symbol.h"
#include "libinject/capture/hooks/shim.h"
#include "libinject/record/torch_memory.h"

namespace {

// c10::Device.
struct Device {
  std::int8_t type;
  std::int8_t index;
};
constexpr std::int8_t kCuda = 1;  // c10::DeviceType::CUDA

using Report = void (*)(void* address, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                        Device device);

/// Resolves the real function.
class RealReport {
 public:
  constexpr explicit RealReport(const char* name) noexcept : name_(name) {}
  Report get() noexcept {
    const std::uint32_t unloads = inject::unloads_so_far() + 1;
    if (found_after_.load(std::memory_order_acquire) != unloads) {
      real_.store(reinterpret_cast<Report>(inject::symbol_after_ours(name_)), std::memory_order_relaxed);
      found_after_.store(unloads, std::memory_order_release);
    }
    return real_.load(std::memory_order_relaxed);
  }

 private:
  const char* name_;
  std::atomic<Report> real_{nullptr};
  std::atomic<std::uint32_t> found_after_{0};  // the unload count at that time, plus 1
};

constexpr const char* kSignedName = "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE";
constexpr const char* kUnsignedName = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
constinit RealReport real_signed(kSignedName);
constinit RealReport real_unsigned(kUnsignedName);

void note(std::size_t allocated, std::size_t reserved, Device device) noexcept {
  if (device.type == kCuda)
    inject::torch_memory.note(static_cast<std::uint8_t>(device.index), allocated, reserved);
}

}  // namespace

extern "C" {

INJECT_EXPORT void inject_report_memory_signed(
    void* address, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
    Device device) asm("_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE");
INJECT_EXPORT void inject_report_memory(
    void* address, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
    Device device) asm("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

void inject_report_memory_signed(void* address, std::int64_t bytes, std::size_t allocated,
                                 std::size_t reserved, Device device) {
  note(allocated, reserved, device);
  if (const Report real = real_signed.get(); real != nullptr)
    real(address, bytes, allocated, reserved, device);
}

void inject_report_memory(void* address, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                          Device device) {
  note(allocated, reserved, device);
  if (const Report real = real_unsigned.get(); real != nullptr)
    real(address, bytes, allocated, reserved, device);
}

}  // extern "C"
