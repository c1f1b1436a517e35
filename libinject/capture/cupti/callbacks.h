// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// CUPTI's subscriber callbacks, which run on the program's threads, inside its driver calls.
#pragma once

#include <cupti.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "libinject/capture/cupti/driver_functions.h"

namespace inject {

/// Called from callbacks on the program's threads: the program called the profiler API, bypassing all hooks.
struct ProfilerEvents {
  void (*profiler_start)() noexcept = nullptr;
  void (*profiler_stop)() noexcept = nullptr;
};

/// The callback's settings, and what it has observed. Initialised at compile time and never destroyed.
struct CallbackState {
  static constexpr std::uint32_t kMaxFunctions = 2048;

  /// By callback id, filled from CUPTI's own names when it is first attached: one binary serves driver
  /// versions that number functions which its headers don't have.
  std::array<DriverFunction, kMaxFunctions> functions{};
  ProfilerEvents profiler;
  /// CUPTI's function; null if it has none.
  std::atomic<decltype(&::cuptiGetGraphNodeId)> get_graph_node_id{nullptr};
  /// One bit per DriverCall whose activity CUPTI does not record: no record is waited for.
  std::atomic<std::uint32_t> unrecorded_calls{0};

  /// The program has launched or copied something, successfully or not.
  std::atomic<bool> saw_work{false};
  /// Callbacks are enabled for all driver functions: INJECT_API=full.
  std::atomic<bool> all_calls{false};

  /// Threads inside cuProfilerStart or cuProfilerStop, since CUPTI was attached.
  std::atomic<std::uint32_t> profiler_calls{0};

  /// CUPTI has given up with a fatal error since it was attached; how often it has done so in this process.
  std::atomic<bool> failed{false};
  std::atomic<std::uint32_t> failures{0};
  /// The program launched or instantiated CUDA graphs.
  std::atomic<bool> saw_graphs{false};
};
extern CallbackState callback_state;

/// Throws nothing and allocates nothing: plain stores into memory that is already there.
[[gnu::hot]] void CUPTIAPI on_cupti_callback(void*, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                                             const void* data);

}  // namespace inject
