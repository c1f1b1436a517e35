// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The simulation's side of CUPTI: the subscriber and its callbacks, activity records and their buffers.
// libcupti.so exports this under the vendor's names; the driver and runtime layers report to it.
#pragma once

#include <cupti.h>

#include <array>
#include <cstddef>
#include <memory>

#include "tests/sim/core/base.h"
#include "tests/sim/core/timeline.h"

namespace inject::sim::trace {

/// The API call that this thread is in. Reports enter and exit to the subscriber; the outermost call's
/// correlation id is that of everything inside it.
class ApiCall {
 public:
  ApiCall(const Function& function, const void* params, void* result, const char* symbol = nullptr);
  ~ApiCall();
  ApiCall(const ApiCall&) = delete;
  ApiCall& operator=(const ApiCall&) = delete;

 private:
  void fire(CUpti_ApiCallbackSite site);

  const Function& function_;
  const void* params_;
  void* result_;
  const char* symbol_;
  std::uint64_t data_ = 0;
  Nanoseconds begin_ = 0;
};

/// Correlation id of the outermost API call of this thread; 0 outside any call.
std::uint32_t current_correlation();

bool recording_kernels();

void fire_resource(CUpti_CallbackIdResource cbid, CUcontext context, CUstream stream, void* descriptor);

/// An activity record under construction. Its place in the launching thread's buffer is taken before the work
/// is submitted, its content is known after.
struct Activity {
  CUpti_ActivityKind kind = CUPTI_ACTIVITY_KIND_INVALID;
  std::size_t size = 0;
  std::size_t time_offset = 0;  ///< of `start`; `end` follows it
  alignas(8) std::array<std::byte, 256> bytes{};
  OpRef op;  ///< null: complete as it is
  bool committed = false;
  bool zero_time = false;
  bool repeated = false;
  bool overwritten = false;  ///< its end is to be `end_of`'s
  OpRef end_of;
  bool gone = false;  ///< its buffer was handed back before the record was committed
};
using ActivityRef = std::shared_ptr<Activity>;

/// Null if records of that kind are not wanted or there is no room.
ActivityRef reserve(CUpti_ActivityKind kind);

template <class Record>
void commit(const ActivityRef& activity, const Record& record, OpRef op) {
  static_assert(sizeof(Record) <= sizeof(Activity::bytes));
  void commit_bytes(const ActivityRef&, const void*, std::size_t, std::size_t, OpRef);
  commit_bytes(activity, &record, sizeof record, offsetof(Record, start), std::move(op));
}

/// That record's end is the end of `op`.
void overwrite_end(const ActivityRef& activity, OpRef op);

// What libcupti.so exports. `sizes` are those of the library's own record layouts.
struct RecordSizes {
  std::size_t kernel;
  std::size_t memcpy;
  std::size_t memcpy_peer;
  std::size_t memset;
};

CUptiResult subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* user,
                      CUpti_SubscriberParams* params);
CUptiResult unsubscribe(CUpti_SubscriberHandle handle);
CUptiResult enable_callback(bool enable, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain,
                            CUpti_CallbackId cbid);
CUptiResult enable_domain(bool enable, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain);
CUptiResult callback_state(std::uint32_t* enabled, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain,
                           CUpti_CallbackId cbid);
CUptiResult register_buffers(CUpti_BuffersCallbackRequestFunc requested,
                             CUpti_BuffersCallbackCompleteFunc completed);
CUptiResult register_timestamp(CUpti_TimestampCallbackFunc callback);
CUptiResult enable_activity(CUpti_ActivityKind kind, const RecordSizes& sizes);
CUptiResult disable_activity(CUpti_ActivityKind kind);
CUptiResult flush_all(std::uint32_t flag);
CUptiResult flush_period(std::uint32_t milliseconds);
CUptiResult dropped_records(std::size_t* dropped);
CUptiResult attribute(CUpti_ActivityAttribute name, std::size_t* size, void* value, bool set);
CUptiResult finalize(bool by_client);
Nanoseconds timestamp();
/// By how much the clock of the samples of hardware counters is ahead of ours now.
Nanoseconds sample_clock_ahead();
/// Counts a call that CUPTI forbids in callbacks, if it is made in one.
void note_client_call();

std::uint64_t records_delivered();
std::uint64_t records_pending();
/// API calls made from inside a callback of the client's, which CUPTI forbids.
std::uint64_t calls_in_callbacks();
/// Calls of CUPTI's that harm the program, for what its other threads are doing.
std::uint64_t misuse();
/// The driver is called as the real one must not be.
void note_misuse();
/// While it lives the driver or NVML is being initialised, on this thread.
struct Initialisation {
  Initialisation();
  ~Initialisation();
  Initialisation(const Initialisation&) = delete;
  Initialisation& operator=(const Initialisation&) = delete;
};
/// While it lives a context is being created.
struct ContextCreation {
  ContextCreation();
  ~ContextCreation();
  ContextCreation(const ContextCreation&) = delete;
  ContextCreation& operator=(const ContextCreation&) = delete;
};

}  // namespace inject::sim::trace
