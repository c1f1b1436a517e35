// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cupti.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace inject {

/// CUPTI and a device, as far as the session uses them. In a program that links this, load_cupti() finds this
/// CUPTI or none.
class FakeCupti {
 public:
  static FakeCupti& get();

  /// Whether load_cupti() finds it.
  std::atomic<bool> present{false};
  /// Kernels do not end: a flush does not wait for them, and a forced flush returns their records without
  /// times.
  std::atomic<bool> running{false};

  /// The next `times` calls of the function (named without "cupti") return `result`.
  void answer(const std::string& function, CUptiResult result, int times = 1);
  /// Blocks calls of the function until another one is held; an empty name releases all.
  void hold(const std::string& function);
  /// Whether a call is blocked.
  bool holds() const;
  /// Another client subscribes, or tries to.
  CUptiResult other_subscribes();
  void other_unsubscribes();
  /// How often the function has been called, excluding calls answered by answer().
  int count(const std::string& function) const;
  /// Subscriptions, excluding those made only to be the sole subscriber while it finalizes.
  int attachments() const { return count("Subscribe") - count("Finalize"); }
  bool subscribed() const;
  bool records_kernels() const;

  // What the program does, on one thread.
  void launch(std::uintptr_t function = 1, const char* name = "_Z4stepv");
  void launch_graph();
  void profiler_start();
  void profiler_stop();
  /// cuptiFinalize, called without passing a hook.
  void finalize();
  /// CUPTI stops with a fatal error.
  void fail();

  // CUPTI's own functions.
  bool enter(const char* function, CUptiResult& result);
  CUptiResult subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* data);
  CUptiResult unsubscribe(CUpti_SubscriberHandle subscriber);
  CUptiResult enable_callback(bool on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                              CUpti_CallbackId id);
  CUptiResult enable_activity(CUpti_ActivityKind kind, bool on);
  CUptiResult register_buffers(CUpti_BuffersCallbackRequestFunc request,
                               CUpti_BuffersCallbackCompleteFunc complete);
  CUptiResult flush(bool force);
  std::size_t take_dropped();

 private:
  struct Buffer {
    std::uint8_t* data = nullptr;
    std::size_t size = 0;
    std::size_t used = 0;
  };

  /// Calls back on entry and exit, if callbacks are enabled.
  template <typename Parameters, typename Meanwhile>
  void driver_call(CUpti_CallbackId id, const char* name, const Parameters& parameters, Meanwhile meanwhile);
  void record_kernel(std::uint32_t correlation, const char* name);

  mutable std::mutex mutex_;  // not held in callbacks
  std::map<std::string, int> counts_;
  std::map<std::string, std::pair<CUptiResult, int>> answers_;
  std::string held_;
  int waiting_ = 0;
  std::condition_variable released_;
  bool other_ = false;
  std::uintptr_t subscriptions_ = 0;
  std::uintptr_t subscriber_ = 0;  // 0: not subscribed by us
  CUpti_CallbackFunc callback_ = nullptr;
  void* callback_data_ = nullptr;
  std::set<std::pair<int, std::uint32_t>> callbacks_;
  std::set<int> activities_;
  CUpti_BuffersCallbackRequestFunc request_ = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete_ = nullptr;
  Buffer buffer_;
  std::size_t dropped_ = 0;
  std::uint32_t correlation_ = 0;
};

}  // namespace inject
