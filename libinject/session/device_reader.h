// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <condition_variable>
#include <cstdint>
#include <string>
#include <vector>

#include "libinject/base/mutex.h"
#include "libinject/model/run_info.h"
#include "libinject/pipeline/window_log.h"
#include "libinject/session/energy_reader.h"
#include "libinject/session/nvml_api.h"

namespace inject {

/// What the driver reports about the devices through NVML: at the windows' edges the memory in use, by all
/// processes, and the PCIe link; while windows are open, energy, clocks and memory (EnergyReader). It needs
/// no context, and no program thread waits for it: NVML is loaded and called on a thread of its own (its
/// initialisation may take longer than the rings can hold records), which exists only while windows come and
/// go. If NVML can't be used, nothing is read.
class DeviceReader {
 public:
  explicit DeviceReader(WindowLog& windows) noexcept : windows_(windows), energy_(windows) {}

  /// Windows have opened or ended: has their edges read. Before the first one: has NVML loaded, which takes
  /// locks of the loader and the driver that the program's launches may wait for. Returns at once.
  void read_edges() noexcept;
  /// Waits until that is done, at most `most`.
  void wait(Nanoseconds most) noexcept;
  /// Starts no further reading and waits for the one in progress, unless it takes long: the process is
  /// exiting, and NVML's destructors come next.
  void stop() noexcept;

  void add_links(std::vector<DeviceInfo>& devices) const;
  EnergyInfo energy() const { return energy_.copy(); }
  /// Time spent in NVML, including its initialisation.
  Nanoseconds time() const noexcept;

 private:
  struct Reading {
    std::uint32_t device = 0;
    nvml::Device handle = nullptr;
    DeviceInfo link;  // only its pcie_ members
  };

  static void* entry(void* reader) noexcept;
  void run();
  bool load(std::string& problem);
  bool find_devices();
  void read();

  WindowLog& windows_;
  EnergyReader energy_;
  mutable Mutex mutex_;  // lock before the energy reader's and the window log's
  std::condition_variable wake_;
  std::condition_variable changed_;
  bool running_ INJECT_GUARDED_BY(mutex_) = false;
  bool wanted_ INJECT_GUARDED_BY(mutex_) = false;
  bool unusable_ INJECT_GUARDED_BY(mutex_) = false;
  bool stopped_ INJECT_GUARDED_BY(mutex_) = false;
  bool asking_ INJECT_GUARDED_BY(mutex_) = false;     // the thread is inside NVML
  bool no_device_ INJECT_GUARDED_BY(mutex_) = false;  // the driver has not shown any so far
  Nanoseconds time_ INJECT_GUARDED_BY(mutex_) = 0;
  std::vector<DeviceInfo> links_ INJECT_GUARDED_BY(mutex_);

  // Used only by the reading thread.
  bool loaded_ = false;
  int link_readings_ = 0;
  std::vector<Reading> devices_;
  nvml::GetHandle* get_handle_ = nullptr;
  nvml::MemoryFunctions memory_;
  nvml::GetNumber* get_link_[4] = {};
};

}  // namespace inject
