// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What every simulated library shares: the clock, the settings, the list of functions with their call counts.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace inject::sim {

using Nanoseconds = std::uint64_t;

/// End of work that is not known yet (it waits for a flag or for a host function) or never comes.
inline constexpr Nanoseconds kUnknown = ~Nanoseconds{0};

inline Nanoseconds clock_ns(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<Nanoseconds>(time.tv_sec) * 1'000'000'000u + static_cast<Nanoseconds>(time.tv_nsec);
}
inline Nanoseconds now_ns() {
  return clock_ns(CLOCK_MONOTONIC);
}

enum class Domain : std::uint8_t { kNone, kDriver, kRuntime, kCupti };

/// An API function of a simulated library. Registered once, when it is first called; never freed.
struct Function {
  std::string library;  ///< soname
  std::string name;
  Domain domain = Domain::kNone;
  std::uint32_t cbid = 0;           ///< CUPTI callback id, 0 if CUPTI knows none
  const char* cbid_name = nullptr;  ///< as cuptiGetCallbackName gives it
  std::atomic<std::uint64_t> calls{0};

  /// Counts the call; the status that a fault wants it to return, 0 to go on.
  int enter();
};

Function& register_function(const char* library, const char* name, Domain domain);

/// Where a call keeps its function, in a static variable. Without a guard: a child of a fork would wait for
/// ever for a thread that it hasn't got.
class FunctionSlot {
 public:
  Function& get(const char* library, const char* name, Domain domain) {
    Function* known = function_.load(std::memory_order_acquire);
    if (known == nullptr) {
      known = &register_function(library, name, domain);  // the same, whichever thread asks
      function_.store(known, std::memory_order_release);
    }
    return *known;
  }

 private:
  std::atomic<Function*> function_{nullptr};
};

/// Callback names and ids from the vendor's headers.
std::uint32_t find_cbid(Domain domain, std::string_view name, const char** full_name);
const char* cbid_name(Domain domain, std::uint32_t cbid);

enum class Rate { kHostToDevice, kDeviceToHost, kDeviceToDevice, kPeer, kMemset };

/// In milliwatts, MHz, degrees and times; what each is, and its default, is in cudasim.h.
struct PowerSettings {
  Nanoseconds step = 0;  ///< 0: the devices tell nothing of their power
  std::uint64_t idle = 100'000;
  std::uint64_t busy = 500'000;
  std::uint64_t limit = 700'000;
  std::uint64_t sm_clock = 1'755;
  std::uint64_t max_sm_clock = 1'980;
  std::uint64_t memory_clock = 2'619;
  std::uint64_t celsius = 45;
  Nanoseconds energy_cost = 0;
};

struct Settings {
  int devices = 2;
  Nanoseconds launch_latency = 2000;
  Nanoseconds kernel_duration = 10000;
  std::string report_path;
  PowerSettings power;
};

/// Read from the environment at first use. The functions below are thread-safe.
const Settings& settings();
Nanoseconds transfer_duration(Rate rate, std::uint64_t bytes);
void set_kernel_duration(std::string_view name_part, Nanoseconds duration);

/// Faults: state that a test changes while the program runs.
struct Faults {
  std::atomic<std::uint64_t> late_ns{0};
  std::atomic<std::int64_t> drop{0};
  std::atomic<std::int64_t> repeat{0};
  std::atomic<std::int64_t> zero_time{0};
  std::atomic<std::int64_t> overwritten_end{0};
  std::atomic<bool> out_of_order{false};
  std::atomic<bool> no_attach_wait{false};
  std::atomic<bool> finalize_keeps_nothing{false};
  std::atomic<bool> subscriber_taken{false};
  std::atomic<const char*> holder{nullptr};  ///< who has it, as CUPTI tells others; null: no name
  std::atomic<bool> fatal_error{false};
  std::atomic<std::uint32_t> attach_ms{0};
  std::atomic<std::uint32_t> detach_ms{0};
  std::atomic<std::uint32_t> enable_ms{0};
  std::atomic<std::uint32_t> init_ms{0};
  std::atomic<std::uint32_t> nvml_ms{0};
  std::atomic<std::uint32_t> nvml_wait_ms{0};
  std::atomic<std::uint32_t> finalize_ms{0};
  std::atomic<std::uint32_t> profiler_stop_ms{0};
  std::atomic<std::uint32_t> context_ms{0};
  std::atomic<std::uint32_t> cupti_version{0};
  std::atomic<std::uint32_t> pm_enable_ms{0};
  std::atomic<std::uint32_t> pm_decode_ms{0};
  std::atomic<std::uint32_t> pm_load_ms{0};
  std::atomic<std::int64_t> pm_buffer{0};
  std::atomic<bool> pm_overflow_flag{false};
  std::atomic<bool> pm_overflow_silent{false};
  std::atomic<bool> pm_wall_clock{false};
  std::atomic<bool> pm_no_timer{false};
  std::atomic<std::int64_t> pm_contrary{0};
  std::atomic<std::int64_t> pm_retimed{0};
  std::atomic<bool> pm_no_pcie{false};
  std::atomic<bool> pm_silent_pcie{false};
  std::atomic<std::uint32_t> pm_unsupported{0};
  std::atomic<std::uint64_t> energy_resets{0};
  std::atomic<std::uint32_t> clock_reasons{0};
  std::atomic<std::uint32_t> sm_clock{0};  ///< 0: as it is set

  /// Takes one from a counting fault; false when it is used up.
  static bool take(std::atomic<std::int64_t>& counter);
};
Faults& faults();
bool set_fault(std::string_view name, std::string_view value);

/// How a kernel so named behaves under the present settings.
struct KernelBehaviour {
  Nanoseconds duration = 0;
  bool hangs = false;
  int waits_for = -1;     ///< flag that ends it, -1: none
  std::vector<int> sets;  ///< flags that its start sets
};
KernelBehaviour kernel_behaviour(std::string_view name);
/// Changes whenever kernel_behaviour() may answer differently.
std::uint32_t settings_generation();

/// Text that lives as long as the process: records and callbacks hand out plain pointers.
const char* intern(std::string_view text);

void for_each_function(const std::function<void(const Function&)>& visit);

/// True in a child forked after the driver was initialised: nothing works there, as with the real driver.
bool in_forked_child();
void mark_initialised();

}  // namespace inject::sim
