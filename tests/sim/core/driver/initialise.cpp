// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Initialisation, which loads the injection library.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "tests/sim/core/driver/call.h"

namespace inject::sim::drv {
namespace {

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

void sleep_for(std::uint32_t ms) {
  if (ms != 0) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
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

}  // namespace

bool impl::is_initialised() {
  return initialised;
}

CUresult initialise() {
  if (in_forked_child()) return CUDA_ERROR_NOT_INITIALIZED;
  Initialising& shared = initialising();
  std::unique_lock lock(shared.mutex);
  shared.over.wait(lock, [&] { return !shared.under_way || shared.thread == std::this_thread::get_id(); });
  if (initialised) return CUDA_SUCCESS;
  if (settings().devices == 0) return CUDA_ERROR_NO_DEVICE;
  initialised = true;
  mark_initialised();
  shared.under_way = true;
  shared.thread = std::this_thread::get_id();
  lock.unlock();
  {
    const trace::Initialisation initialisation;
    load_injection();
    sleep_for(faults().init_ms);
  }
  lock.lock();
  shared.under_way = false;
  shared.over.notify_all();
  return CUDA_SUCCESS;
}

int initialise_nvml(int (*entered)()) {
  sleep_for(faults().nvml_wait_ms);
  Initialising& shared = initialising();
  std::unique_lock lock(shared.mutex);
  shared.over.wait(lock, [&] { return !shared.under_way; });
  shared.under_way = true;
  shared.thread = std::this_thread::get_id();
  lock.unlock();
  int fault = 0;
  {
    const trace::Initialisation initialisation;
    fault = entered();
    sleep_for(faults().nvml_ms);
  }
  lock.lock();
  shared.under_way = false;
  shared.over.notify_all();
  return fault;
}

CUresult cuInit(unsigned int Flags) {
  DRIVER_FUNCTION(cuInit);
  const cuInit_params params{Flags};
  return impl::call(function, &params, nullptr, false,
                    [&] { return Flags == 0 ? initialise() : CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuDriverGetVersion(int* version) {
  DRIVER_FUNCTION(cuDriverGetVersion);
  const cuDriverGetVersion_params params{version};
  return impl::call(function, &params, nullptr, false, [&] {
    *version = kDriverVersion;
    return CUDA_SUCCESS;
  });
}

}  // namespace inject::sim::drv
