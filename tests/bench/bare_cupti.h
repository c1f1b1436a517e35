// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The least that a kernel profiler can do: CONCURRENT_KERNEL activity alone, buffers walked as they complete.
// What our windows are measured against.
#pragma once

#include <cupti.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace bench {

class BareCupti {
 public:
  /// `beside`: an address inside a CUDA library; libcupti is also looked for next to that library.
  bool load(const void* beside) {
    void* handle = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
    if (handle == nullptr) handle = dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
    Dl_info info{};
    if (handle == nullptr && dladdr(beside, &info) != 0 && info.dli_fname != nullptr) {
      const std::string file = info.dli_fname;
      const std::string folder = file.substr(0, file.rfind('/') + 1);
      for (const char* where : {"", "../extras/CUPTI/lib64/", "../../cuda_cupti/lib/"}) {
        handle = dlopen((folder + where + "libcupti.so.13").c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle != nullptr) break;
      }
    }
    if (handle == nullptr) {
      std::fprintf(stderr, "no libcupti.so.13: %s\n", dlerror());
      return false;
    }
    return find(handle, "cuptiActivityRegisterCallbacks", register_) &&
           find(handle, "cuptiActivityEnable", enable_) && find(handle, "cuptiActivityDisable", disable_) &&
           find(handle, "cuptiActivityFlushAll", flush_) &&
           find(handle, "cuptiActivityGetNextRecord", next_) && find(handle, "cuptiFinalize", finalize_);
  }

  bool open() {
    instance_ = this;
    kernels_ = 0;
    return register_(&requested, &completed) == CUPTI_SUCCESS &&
           enable_(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS;
  }

  /// The device must be idle. `finalize` false at process exit.
  void close(bool finalize) {
    disable_(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    flush_(0);
    if (finalize) finalize_();
  }

  std::uint64_t kernels() const { return kernels_; }
  std::uint64_t total_ns() const { return total_ns_; }

 private:
  static constexpr std::size_t kBufferBytes = 8u << 20;

  template <class Function>
  static bool find(void* handle, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr) std::fprintf(stderr, "libcupti lacks %s\n", name);
    return function != nullptr;
  }

  static void CUPTIAPI requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
    BareCupti& self = *instance_;
    const std::lock_guard lock(self.mutex_);
    if (self.free_.empty()) {
      *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(64, kBufferBytes));
    } else {
      *buffer = self.free_.back();
      self.free_.pop_back();
    }
    *size = kBufferBytes;
    *max_records = 0;
  }

  static void CUPTIAPI completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                                 std::size_t valid) {
    BareCupti& self = *instance_;
    CUpti_Activity* record = nullptr;
    std::uint64_t kernels = 0, total = 0;
    while (self.next_(buffer, valid, &record) == CUPTI_SUCCESS) {
      if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
      const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
      ++kernels;
      total += kernel->end - kernel->start;
    }
    self.kernels_ += kernels;
    self.total_ns_ += total;
    const std::lock_guard lock(self.mutex_);
    self.free_.push_back(buffer);
  }

  static inline BareCupti* instance_ = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_ = nullptr;
  decltype(&cuptiActivityEnable) enable_ = nullptr;
  decltype(&cuptiActivityDisable) disable_ = nullptr;
  decltype(&cuptiActivityFlushAll) flush_ = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_ = nullptr;
  decltype(&cuptiFinalize) finalize_ = nullptr;
  std::mutex mutex_;
  std::vector<std::uint8_t*> free_;
  std::atomic<std::uint64_t> kernels_{0};
  std::atomic<std::uint64_t> total_ns_{0};
};

}  // namespace bench
