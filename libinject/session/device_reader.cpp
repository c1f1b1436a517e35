// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/device_reader.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/dynamic_loader_guard.h"
#include "libinject/base/log.h"
#include "libinject/capture/cupti/tracer.h"
#include "libinject/capture/driver.h"
#include "libinject/record/internal_thread.h"

namespace inject {

namespace {

// How long the thread waits for the next edge.
constexpr Nanoseconds kLinger = kSecond;
// If a program brackets every iteration, there is an edge every few milliseconds: after a reading comes a
// pause this many times as long, and edges that arrive in between share the next one.
constexpr std::uint64_t kPauseByReading = 20;
constexpr Nanoseconds kMaxPause = 100 * kMillisecond;
// While CUDA is being initialised the driver shows no device yet.
constexpr Nanoseconds kNoDeviceYet = 2 * kMillisecond;
// After this long it never will: CUDA was not initialised, or failed.
constexpr Nanoseconds kNoDeviceAtAll = 10'000 * kMillisecond;
constexpr Nanoseconds kMaxReading = 200 * kMillisecond;
// An idle link runs below its full speed: take the maximum of a few readings, and of more until it has been
// seen at the speed that device and slot support.
constexpr int kLinkReadings = 4;

constexpr const char* kLinkFunctions[] = {
    "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth"};

}  // namespace

void DeviceReader::read_edges() noexcept {
  const MutexLock lock(mutex_);
  if (unusable_ || stopped_) return;
  energy_.expect_window(now());
  wanted_ = true;
  if (running_) {
    wake_.notify_one();
  } else {
    running_ = start_internal_thread(&entry, this) == 0;
  }
}

void DeviceReader::wait(Nanoseconds most) noexcept {
  if (windows_.lacks_memory()) read_edges();
  MutexLock lock(mutex_);
  // The energy is read after the memory.
  lock.wait_for(changed_, most, [this]() INJECT_REQUIRES(mutex_) {
    return !running_ || unusable_ || no_device_ || (!asking_ && !windows_.lacks_memory());
  });
}

void DeviceReader::stop() noexcept {
  MutexLock lock(mutex_);
  stopped_ = true;
  wake_.notify_one();
  lock.wait_for(changed_, kMaxReading, [this]() INJECT_REQUIRES(mutex_) { return !asking_; });
}

void* DeviceReader::entry(void* reader) noexcept {
  enter_internal_thread();
  auto* self = static_cast<DeviceReader*>(reader);
  try {
    self->run();
  } catch (...) {
    // Out of memory: no further readings.
    const MutexLock lock(self->mutex_);
    self->unusable_ = true;
    self->running_ = self->asking_ = false;
    self->changed_.notify_all();
  }
  return nullptr;
}

void DeviceReader::run() {
  MutexLock lock(mutex_);
  const Nanoseconds start = now();
  Nanoseconds memory_due = 0;
  Nanoseconds cpu = thread_cpu_time();
  while (!stopped_) {
    wanted_ = false;
    const Nanoseconds time = now();
    const bool edges = !loaded_ || windows_.lacks_memory();
    const Nanoseconds energy_due = energy_.next(time);
    if ((!edges || time < memory_due) && time < energy_due) {
      changed_.notify_all();
      // An edge wakes it; until then, only the time matters.
      const Nanoseconds due = edges ? std::min(memory_due, energy_due) : energy_due;
      const bool woken =
          lock.wait_for(wake_, due == EnergyReader::kNever ? kLinger : due - time,
                        [this, edges]() INJECT_REQUIRES(mutex_) { return stopped_ || (wanted_ && !edges); });
      if (!woken && due == EnergyReader::kNever) break;
      continue;
    }
    const bool memory = edges && time >= memory_due;
    asking_ = true;
    lock.unlock();
    std::string problem;
    bool usable = true;
    bool any = true;
    // NVML has its own locks; a fork in the middle of a call would leave them locked in the child for ever.
    if (memory) {
      // Taken before forks are held: whoever attaches CUPTI calls the loader.
      std::unique_lock<std::mutex> alone;
      if (!loaded_) alone = Tracer::no_switch();
      const DynamicLoaderGuard no_fork;
      const bool may_load = loaded_ || alone.owns_lock();
      usable = !may_load || load(problem);
      if (alone.owns_lock()) alone.unlock();
      any = may_load && usable && find_devices();
      if (any && windows_.lacks_memory()) read();
      cpu = thread_cpu_time();
    }
    if (any) {
      cpu += energy_.find_used(now());
      const DynamicLoaderGuard no_fork;
      cpu = energy_.read(now(), cpu);
    }
    const Nanoseconds took = now() - time;
    if (usable && !any && now() - start >= kNoDeviceAtAll) {
      usable = false;
      problem = "the driver shows no device";
    }
    if (!usable) Log::debug("energy, clocks and memory in use are not read: " + problem);
    lock.lock();
    asking_ = false;
    time_ += took;
    if (memory) {
      no_device_ = !any;
      memory_due = time + took + (any ? std::min(kPauseByReading * took, kMaxPause) : kNoDeviceYet);
    }
    if (!usable) {
      unusable_ = true;
      break;
    }
    changed_.notify_all();
  }
  running_ = false;
  changed_.notify_all();
}

bool DeviceReader::load(std::string& problem) {
  if (loaded_) return true;
  nvml::Init* init = nullptr;
  {
    const DynamicLoaderGuard guard;
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* error = dlerror();
      problem = error != nullptr ? error : "libnvidia-ml.so.1 can't be loaded";
      return false;
    }
    nvml::find(library, init, "nvmlInit_v2");
    nvml::find(library, get_handle_, "nvmlDeviceGetHandleByPciBusId_v2");
    nvml::find(library, memory_.get, "nvmlDeviceGetMemoryInfo");
    nvml::find(library, memory_.get2, "nvmlDeviceGetMemoryInfo_v2");
    for (std::size_t i = 0; i < std::size(get_link_); ++i)
      nvml::find(library, get_link_[i], kLinkFunctions[i]);
    energy_.load(library, memory_);
  }
  if (init == nullptr || get_handle_ == nullptr || !memory_.exist()) {
    problem = "libnvidia-ml.so.1 lacks a function";
    return false;
  }
  // Never shut down: other parts of the process may use NVML, and at exit there is nothing to give back.
  if (const nvml::Status status = init(); status != 0) {
    problem = "nvmlInit_v2 failed (" + std::to_string(status) + ")";
    return false;
  }
  loaded_ = true;
  return true;
}

bool DeviceReader::find_devices() {
  if (!devices_.empty()) return true;
  for (const DeviceInfo& info : inject::devices()) {
    Reading reading;
    reading.device = info.id;
    const nvml::Status status = get_handle_(info.pci_bus.c_str(), &reading.handle);
    if (status != 0) {
      Log::debug("NVML does not know device " + std::to_string(info.id) + " at " + info.pci_bus + " (" +
                 std::to_string(status) + ")");
      reading.handle = nullptr;
    }
    if (reading.handle != nullptr) energy_.add(info.id, reading.handle);
    devices_.push_back(reading);
  }
  return !devices_.empty();
}

void DeviceReader::read() {
  const Nanoseconds time = now();
  WindowLog::MemoryUsed used;
  for (const Reading& device : devices_) {
    if (device.handle == nullptr) continue;
    nvml::Status status = 0;
    const std::optional<std::uint64_t> bytes = memory_.used(device.handle, status);
    if (!bytes) continue;
    used.emplace_back(device.device, *bytes);
    energy_.note_memory(device.device, *bytes);
  }
  windows_.note_memory(time, now(), used);
  const auto idles = [](const Reading& device) {
    return device.handle != nullptr && device.link.pcie_generation < device.link.pcie_max_generation;
  };
  if (link_readings_ == kLinkReadings && std::none_of(devices_.begin(), devices_.end(), idles)) return;
  link_readings_ = std::min(link_readings_ + 1, kLinkReadings);
  std::vector<DeviceInfo> links;
  for (Reading& device : devices_) {
    if (device.handle == nullptr) continue;
    int* const members[] = {&device.link.pcie_generation, &device.link.pcie_width,
                            &device.link.pcie_max_generation, &device.link.pcie_max_width};
    for (std::size_t i = 0; i < std::size(get_link_); ++i) {
      unsigned number = 0;
      if (get_link_[i] != nullptr && get_link_[i](device.handle, &number) == 0)
        *members[i] = std::max(*members[i], static_cast<int>(number));
    }
    device.link.id = device.device;
    links.push_back(device.link);
  }
  const MutexLock lock(mutex_);
  links_ = std::move(links);
}

void DeviceReader::add_links(std::vector<DeviceInfo>& devices) const {
  const MutexLock lock(mutex_);
  for (DeviceInfo& device : devices) {
    for (const DeviceInfo& link : links_) {
      if (link.id != device.id) continue;
      device.pcie_generation = link.pcie_generation;
      device.pcie_width = link.pcie_width;
      device.pcie_max_generation = link.pcie_max_generation;
      device.pcie_max_width = link.pcie_max_width;
    }
  }
}

Nanoseconds DeviceReader::time() const noexcept {
  const MutexLock lock(mutex_);
  return time_;
}

}  // namespace inject
