// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/cupti/tracer.h"

#include <cuda.h>

#include <array>
#include <cstddef>

#include "libinject/base/clock.h"
#include "libinject/base/format.h"
#include "libinject/base/grace_period.h"
#include "libinject/base/lock_within.h"
#include "libinject/capture/cupti/buffer_callbacks.h"
#include "libinject/capture/cupti/callbacks.h"
#include "libinject/capture/cupti/context_creation.h"
#include "libinject/capture/cupti/foreign_client.h"
#include "libinject/capture/cupti/holder.h"
#include "libinject/capture/driver.h"
#include "libinject/model/functions.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"

namespace inject {

namespace {

constexpr std::array kActivityKinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                       CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET};

constinit std::mutex use_mutex;
constinit std::mutex switch_mutex;

// How far CUPTI's clock is ahead of ours, if it does not accept ours.
constinit std::atomic<Nanoseconds> clock_ahead{0};

std::uint64_t timestamp() {
  return now();
}

}  // namespace

Tracer::Tracer(ActivityBuffers& buffers, Events events) noexcept : buffers_(buffers) {
  callback_state.profiler = events;
}

Nanoseconds Tracer::to_our_clock(Nanoseconds time) noexcept {
  return time == 0 ? 0 : time - clock_ahead.load(std::memory_order_relaxed);
}

Nanoseconds Tracer::clock_ahead_of_ours() noexcept {
  return clock_ahead.load(std::memory_order_relaxed);
}

Nanoseconds Tracer::buffer_callback_time() noexcept {
  return buffer_callback_state.time.load(std::memory_order_relaxed);
}
std::uint64_t Tracer::dropped_records() noexcept {
  return buffer_callback_state.dropped.load(std::memory_order_relaxed);
}
bool Tracer::saw_work() noexcept {
  return callback_state.saw_work.load(std::memory_order_relaxed);
}
bool Tracer::saw_graphs() noexcept {
  return callback_state.saw_graphs.load(std::memory_order_relaxed);
}
bool Tracer::failed() noexcept {
  return callback_state.failed.load(std::memory_order_acquire);
}

bool Tracer::thread_inside() noexcept {
  return inside_cupti.load(std::memory_order_acquire) != 0 ||
         callback_state.profiler_calls.load(std::memory_order_acquire) != 0;
}

std::uint32_t Tracer::failures() noexcept {
  return callback_state.failures.load(std::memory_order_acquire);
}

// False if CUPTI has no name for a launch function: kernels launched by it would be taken for work submitted
// before the window opened.
bool Tracer::look_up_driver_functions(std::string& error) {
  auto& functions = callback_state.functions;
  for (std::uint32_t cbid = 1; cbid < CallbackState::kMaxFunctions; ++cbid) {
    const char* name = nullptr;
    if (api_.GetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, cbid, &name) != CUPTI_SUCCESS || name == nullptr)
      continue;
    functions[cbid] = DriverFunction::named(name);
    set_driver_function_name(static_cast<FunctionId>(kDriverFunction | cbid), name);
  }
  for (const auto cbid :
       {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz}) {
    if (functions[cbid].call != DriverCall::kOther) continue;
    error =
        str_format("CUPTI has no name for the launch function of callback {}", static_cast<unsigned>(cbid));
    return false;
  }
  return true;
}

bool Tracer::attach(std::string& error, ContextWait contexts) {
  if (!loaded_) {
    if (!load_cupti(api_, error)) return false;
    buffer_callback_state.get_dropped.store(api_.ActivityGetNumDroppedRecords, std::memory_order_release);
    callback_state.get_graph_node_id.store(api_.GetGraphNodeId, std::memory_order_release);
    if (!look_up_driver_functions(error)) return false;
    loaded_ = true;
  }
  // Again, because loading it has taken time.
  if (contexts == ContextWait::kMay) ContextHold::wait_for_creations();
  const CUptiResult result = api_.Subscribe(&subscriber_, &on_cupti_callback, nullptr);
  if (result != CUPTI_SUCCESS) {
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
      const std::string subscriber = subscriber_name(api_);
      error = str_format("another profiler is attached to this process{}{} ({})",
                         subscriber.empty() ? "" : ": ", subscriber, api_.describe(result));
    } else {
      error = "cuptiSubscribe failed: " + api_.describe(result);
    }
    subscriber_ = nullptr;
    return false;
  }
  callback_state.failed.store(false, std::memory_order_release);
  callback_state.profiler_calls.store(0, std::memory_order_relaxed);
  current_generation.fetch_add(1, std::memory_order_release);
  buffer_callback_state.buffers.store(&buffers_, std::memory_order_release);
  for (const auto cbid : {CUPTI_DRIVER_TRACE_CBID_cuProfilerStart, CUPTI_DRIVER_TRACE_CBID_cuProfilerStop}) {
    api_.EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, static_cast<CUpti_CallbackId>(cbid));
  }
  ContextHold::begin_callbacks();
  api_.EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR);
  level_ = TracerLevel::kProfilerCalls;
  return true;
}

bool Tracer::enable_launch_callbacks(bool all_driver_calls, std::string& error) {
  for (std::uint32_t cbid = 1; cbid < CallbackState::kMaxFunctions; ++cbid) {
    const DriverCall call = callback_state.functions[cbid].call;
    if (call == DriverCall::kOther) continue;
    const CUptiResult result = api_.EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, cbid);
    if (result != CUPTI_SUCCESS && call == DriverCall::kLaunch) {
      error = "launch callbacks can't be enabled: " + api_.describe(result);
      return false;
    }
  }
  callback_state.all_calls.store(all_driver_calls, std::memory_order_relaxed);
  if (all_driver_calls) api_.EnableDomain(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API);
  for (const auto cbid : {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
                          CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED}) {
    api_.EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, static_cast<CUpti_CallbackId>(cbid));
  }
  level_ = TracerLevel::kLaunches;
  return true;
}

void Tracer::watch_creations() noexcept {
  for (std::uint32_t cbid = 1; cbid < CallbackState::kMaxFunctions; ++cbid) {
    if (callback_state.functions[cbid].creates_context)
      api_.EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, cbid);
  }
}

bool Tracer::enable_activity(std::string& error) {
  // We pass zeroed buffers, so that CUPTI does not zero them on the launching thread. A CUPTI that doesn't
  // know the attribute zeroes them again, which does no harm.
  std::uint8_t zeroed = 1;
  std::size_t size = sizeof zeroed;
  api_.ActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &zeroed);
  CUptiResult result = api_.ActivityRegisterCallbacks(&on_buffer_requested, &on_buffer_completed);
  if (result != CUPTI_SUCCESS) {
    error = "activity buffers can't be registered: " + api_.describe(result);
    return false;
  }
  // CLOCK_MONOTONIC instead of CUPTI's default, CLOCK_REALTIME, which can step. Once after each finalize.
  const bool ours = api_.ActivityRegisterTimestampCallback != nullptr &&
                    api_.ActivityRegisterTimestampCallback(&timestamp) == CUPTI_SUCCESS;
  clock_ahead.store(ours ? 0 : realtime_ahead(), std::memory_order_relaxed);
  collecting_activity.store(true, std::memory_order_release);
  std::uint32_t unrecorded = 0;
  for (const CUpti_ActivityKind kind : kActivityKinds) {
    result = api_.ActivityEnable(kind);
    if (result == CUPTI_SUCCESS) continue;
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      error = "kernel activity can't be enabled: " + api_.describe(result);
      return false;
    }
    error = "copies or memsets are missing: " + api_.describe(result);
    if (kind == CUPTI_ACTIVITY_KIND_MEMCPY) unrecorded |= 1u << static_cast<unsigned>(DriverCall::kCopy);
    if (kind == CUPTI_ACTIVITY_KIND_MEMSET) unrecorded |= 1u << static_cast<unsigned>(DriverCall::kMemset);
  }
  callback_state.unrecorded_calls.store(unrecorded, std::memory_order_relaxed);
  activity_on_ = true;
  level_ = TracerLevel::kActivity;
  return true;
}

bool Tracer::raise_to(TracerLevel level, bool all_driver_calls, std::string& error, ContextWait contexts) {
  const auto alone = contexts == ContextWait::kMay ? no_switch() : std::unique_lock<std::mutex>();
  if (level_ == TracerLevel::kDetached && !attach(error, contexts)) return false;
  if (level >= TracerLevel::kLaunches && level_ < TracerLevel::kLaunches &&
      !enable_launch_callbacks(all_driver_calls, error)) {
    return false;
  }
  if (level < TracerLevel::kActivity || level_ >= TracerLevel::kActivity) return true;
  watch_creations();
  // A thread may just have passed the point where the driver checks for callbacks.
  constexpr Nanoseconds kUnseen = 300 * kMicrosecond;
  if (contexts == ContextWait::kMay) sleep_for(kUnseen);
  // Last, because loading CUPTI and subscribing may take as long as creating a context.
  const ContextHold hold(contexts);
  return enable_activity(error);
}

bool Tracer::raise(TracerLevel level, bool all_driver_calls, std::string& error, ContextWait contexts) {
  const bool was_attached = level_ != TracerLevel::kDetached;
  if (raise_to(level, all_driver_calls, error, contexts)) return true;
  detach(!foreign_client.minds_finalize());
  if (!was_attached) return false;
  // Our subscription may be invalid, because a cuptiFinalize by the program ends all of them: try again with
  // a new one.
  error.clear();
  if (raise_to(level, all_driver_calls, error, contexts)) return true;
  detach(!foreign_client.minds_finalize());
  return false;
}

void Tracer::stop_activity(ContextWait contexts) noexcept {
  if (!activity_on_) return;
  const ContextHold hold(contexts);
  for (const CUpti_ActivityKind kind : kActivityKinds) api_.ActivityDisable(kind);
  collecting_activity.store(false, std::memory_order_release);
  activity_on_ = false;
}

void Tracer::resume_activity() noexcept {
  if (level_ < TracerLevel::kActivity || activity_on_) return;
  const ContextHold hold(ContextWait::kNo);
  collecting_activity.store(true, std::memory_order_release);
  for (const CUpti_ActivityKind kind : kActivityKinds) api_.ActivityEnable(kind);
  activity_on_ = true;
}

void Tracer::keep_launches() noexcept {
  stop_activity();
  if (level_ == TracerLevel::kActivity) level_ = TracerLevel::kLaunches;
}

std::unique_lock<std::mutex> Tracer::use() noexcept {
  return lock_within(use_mutex, kMaxUse);
}

std::unique_lock<std::mutex> Tracer::no_switch(Nanoseconds most) noexcept {
  return lock_within(switch_mutex, most);
}

void Tracer::flush(bool force) noexcept {
  const std::unique_lock use = Tracer::use();
  if (!use.owns_lock() || level_ < TracerLevel::kActivity) return;
  api_.ActivityFlushAll(force ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : CUPTI_ACTIVITY_FLAG_NONE);
  // Also if no buffer comes back: CUPTI may have had none to fill.
  count_dropped_records(nullptr, 0);
}

// cuptiFinalize frees CUPTI's per-thread data, also that of a thread which is inside CUPTI at that moment, in
// a program call, and goes on using it: heaps of programs were corrupted (CUDA 13.0). Once we have
// unsubscribed, with no activity on, threads leave CUPTI within microseconds, unless they sleep there: in
// cuProfilerStart and cuProfilerStop, in which it does more, in callbacks that wait for us, and where a
// context is created. So the driver is queried about contexts last: a creation may have begun since the
// collector queried it. If the query had to wait, start over.
GracePeriod Tracer::wait_until_left(ContextWait contexts) noexcept {
  constexpr Nanoseconds kMost = 300 * kMillisecond;
  constexpr int kMostCreations = 16;  // devices are set up one after the other
  for (int i = 0; i < kMostCreations; ++i) {
    if (thread_inside()) return GracePeriod::kTooLong;
    if (const GracePeriod period = wait_grace_period(kMost); period != GracePeriod::kOver) return period;
    if (thread_inside()) return GracePeriod::kTooLong;
    if (contexts == ContextWait::kNo || !ContextHold::wait_for_creations()) return GracePeriod::kOver;
  }
  return GracePeriod::kTooLong;
}

void Tracer::detach(bool finalize, ContextWait contexts) noexcept {
  if (level_ == TracerLevel::kDetached) return;
  if (contexts == ContextWait::kMay) ContextHold::wait_for_creations();
  const std::unique_lock use = Tracer::use();
  stop_activity(contexts);
  collecting_activity.store(false, std::memory_order_release);
  if (subscriber_ != nullptr) api_.Unsubscribe(subscriber_);
  subscriber_ = nullptr;
  ContextHold::end_callbacks();
  finalize = finalize && use.owns_lock() && !failed() && !saw_graphs();
  threads_left_ = finalize ? wait_until_left(contexts) : GracePeriod::kOver;
  finalize = finalize && threads_left_ == GracePeriod::kOver;
  // If CUPTI keeps a buffer for kernels launched after the window, it would add the next attachment's records
  // to it, whose correlation ids mean other launches.
  if (!finalize && level_ == TracerLevel::kActivity && use.owns_lock() && !failed() &&
      buffers_.outstanding() != 0) {
    api_.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  }
  // CUPTI leaves data of its own in every graph that it has traced. After cuptiFinalize the next attachment,
  // or the next update of such a graph, made the program fail with CUDA_ERROR_LAUNCH_FAILED (CUDA 13.0 on an
  // H200: JAX's command buffers, torch.cuda.CUDAGraph; a synchronization before or a pause of 400 ms did not
  // help). So programs with graphs keep CUPTI, with nothing enabled and no subscriber. After a fatal error it
  // has finalized itself. cuptiFinalize ends every client, also one whose calls bypass our hooks and that has
  // arrived since we unsubscribed. Subscribing once more, with no callback enabled, keeps others out until
  // CUPTI is finalized, and fails if one is there. From CUDA 13.3 on several may be subscribed side by side,
  // but only if all of them use cuptiSubscribe_v2 and agree to it.
  CUpti_SubscriberHandle guard = nullptr;
  finalized_ = finalize && api_.Subscribe(&guard, &on_cupti_callback, nullptr) == CUPTI_SUCCESS;
  if (finalized_) {
    if (api_.Finalize() != CUPTI_SUCCESS) api_.Unsubscribe(guard);
    // Remaining nodes are of graphs that were captured but never instantiated: the next attachment renumbers
    // nodes.
    if (Core* core = Core::get_if_any(); core != nullptr) core->graph_nodes.clear();
  }
  level_ = TracerLevel::kDetached;
}

bool Tracer::holds() noexcept {
  // Tests with a callback that is enabled already.
  return level_ != TracerLevel::kDetached &&
         api_.EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API,
                             CUPTI_DRIVER_TRACE_CBID_cuProfilerStart) == CUPTI_SUCCESS;
}

void Tracer::forget() noexcept {
  if (level_ == TracerLevel::kDetached) return;
  collecting_activity.store(false, std::memory_order_release);
  activity_on_ = false;
  subscriber_ = nullptr;
  ContextHold::end_callbacks();
  finalized_ = true;
  if (Core* core = Core::get_if_any(); core != nullptr) core->graph_nodes.clear();
  level_ = TracerLevel::kDetached;
}

}  // namespace inject
