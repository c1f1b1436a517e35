// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/cupti/launch_observer.h"

#include "libinject/base/clock.h"
#include "libinject/capture/hooks/frame.h"
#include "libinject/capture/launch_place.h"
#include "libinject/capture/nvtx/injection.h"
#include "libinject/model/functions.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"
#include "libinject/record/processor_time.h"
#include "libinject/record/thread_registry.h"

namespace inject {

namespace {

// In CUPTI's slot: the hooked call around the launch has taken its correlation id.
constexpr std::uint64_t kGivenToCall = 1;

// Has an effect only if no later window has opened on another thread. The hooks go on recording: switching
// them off here could follow the next window's switching them on (LaunchControl::step).
void leave_window(std::uint32_t window) noexcept {
  current_window.compare_exchange_strong(window, 0, std::memory_order_seq_cst);
}

// The window of a kernel launch: by its number if the trigger counts launches, else the open one.
std::uint32_t window_of_launch() noexcept {
  LaunchTrigger& trigger = launch_trigger;
  if (!trigger.counting.load(std::memory_order_acquire))
    return current_window.load(std::memory_order_acquire);
  const LaunchTrigger::Launch launch = trigger.next([] { return now(); });
  if (launch.closes != 0) {
    if (ThreadState* thread = ThreadRegistry::current_if_any(); thread != nullptr)
      publish_processor_time(*thread, launch.closes, launch.time);
    leave_window(launch.closes);
  }
  if (launch.opens != 0) {
    // Another thread may have opened a later window in the meantime.
    std::uint32_t open = current_window.load(std::memory_order_seq_cst);
    while (open < launch.opens && !current_window.compare_exchange_weak(open, launch.opens)) {
    }
    control_word.fetch_or(kControlRecord, std::memory_order_seq_cst);
    // Or another thread has closed this one before it was open.
    if (trigger.window_over(launch.opens)) leave_window(launch.opens);
  }
  return launch.window;
}

/// True if the call takes the correlation id of a launch inside it: a runtime call's first one. Not calls
/// that only wait: what is launched inside one of these comes from a signal handler, or follows a jump out of
/// the call.
bool takes_launch(const OpenCall& call) noexcept {
  return call.correlation == 0 && function_group(call.function) == FunctionGroup::kCudart &&
         function_category(call.function) != Category::kSync;
}

/// The hooked call around a callback whose frame begins at `stack`.
OpenCall* call_around(ThreadState& thread, const void* stack) noexcept {
  return thread.open_calls.around(reinterpret_cast<std::uintptr_t>(stack));
}

CallChain chain_inside(const OpenCall* call) noexcept {
  return call == nullptr ? 0 : chain_push(call->chain, call->function);
}

}  // namespace

Nanoseconds LaunchObserver::call_begin() noexcept {
  ThreadState* thread = ThreadRegistry::current_if_any();
  const OpenCall* around = thread == nullptr ? nullptr : call_around(*thread, __builtin_dwarf_cfa());
  return around != nullptr && takes_launch(*around) ? around->begin : 0;
}

void LaunchObserver::enter(DriverCall call, std::uint32_t correlation, std::uint64_t stream,
                           std::uint64_t* correlation_data) noexcept {
  *correlation_data = 0;
  ThreadState* thread = ThreadRegistry::current();
  if (thread == nullptr) return;
  // Set before the window is read. No fence: it would wait for CUPTI's stores into cold buffers, 0.2 us per
  // launch; the reader (ThreadRegistry::any_launching) executes a fence in all threads instead.
  thread->launching.store(1, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const bool kernel = call == DriverCall::kLaunch || call == DriverCall::kGraphLaunch;
  const std::uint32_t window = kernel ? window_of_launch() : current_window.load(std::memory_order_acquire);
  if (window == 0) thread->launching.store(0, std::memory_order_relaxed);
  thread->launch_window = window;
  thread->launch_place = is_naming(window) ? inject::launch_place(*thread) : 0;
  thread->launch_call = is_naming(window) ? launch_operator_call(*thread) : 0;
  thread->graph_nodes_at_enter = thread->graph_nodes;
  thread->launching_kernel = call == DriverCall::kLaunch && window != 0 ? 1 : 0;
  OpenCall* around = call_around(*thread, __builtin_dwarf_cfa());
  if (around != nullptr && takes_launch(*around)) {
    around->correlation = correlation;
    around->generation = current_generation.load(std::memory_order_relaxed);
    around->stream = is_naming(window) ? thread->launch_call : stream;
    // The hooked call began before the launch: if the window opened in between, the launch decides.
    around->window = window;
    around->code_place = thread->launch_place;
    *correlation_data = kGivenToCall;
    return;
  }
  if (window == 0 && !collecting_activity.load(std::memory_order_acquire)) return;
  *correlation_data = now();
  if (around == nullptr && window != 0)
    *correlation_data = outermost_call_begins(*thread, window, *correlation_data);
}

void LaunchObserver::leave(Work work, std::uint32_t cbid, std::uint32_t correlation, std::uint64_t stream,
                           int status, const std::uint64_t* correlation_data) noexcept {
  ThreadState* thread = ThreadRegistry::current_if_any();
  if (thread == nullptr || *correlation_data == 0) return;
  thread->launching.store(0, std::memory_order_release);
  thread->launching_kernel = 0;
  OpenCall* around = call_around(*thread, __builtin_dwarf_cfa());
  const bool captured = thread->graph_nodes != thread->graph_nodes_at_enter;
  if (status != 0) work = {};
  if (*correlation_data == kGivenToCall) {
    if (around == nullptr || around->correlation != correlation) return;
    if (captured) around->flags |= kCallCaptured;
    around->flags |= work.flags;
    around->graph = work.graph;
    return;
  }
  CallRecord record;
  record.begin = *correlation_data;
  record.end = now();
  record.function = static_cast<FunctionId>(kDriverFunction | cbid);
  record.correlation = correlation;
  record.chain = chain_inside(around);
  if (around != nullptr) {
    record.owner = owner_inside(*around);
    record.shape = around->shape;
  }
  record.call = ++thread->calls;
  record.window = thread->launch_window;
  record.range = is_naming(record.window) ? thread->launch_place : nvtx_current(*thread);
  record.stream = is_naming(record.window) ? thread->launch_call : stream;
  record.flags = work.flags;
  record.status = static_cast<std::int16_t>((work.flags & kCallGraph) != 0 ? work.graph : status);
  record.generation = current_generation.load(std::memory_order_relaxed);
  if (captured) record.flags |= kCallCaptured;
  ThreadRegistry::push(*thread, record);
  if (around == nullptr && record.window != 0)
    outermost_call_ended(*thread, record.window, record.begin, record.end);
}

void LaunchObserver::enter_plain(std::uint64_t* correlation_data) noexcept {
  *correlation_data = 0;
  const std::uint32_t window = current_window.load(std::memory_order_acquire);
  if (window == 0 || !record_plain_calls.load(std::memory_order_relaxed)) return;
  ThreadState* thread = ThreadRegistry::current();
  if (thread == nullptr) return;
  const auto stack = reinterpret_cast<std::uintptr_t>(__builtin_dwarf_cfa());
  const OpenCall* around = thread->open_calls.around(stack);
  const bool in_runtime_call =
      thread->open_calls.in_short_call(stack) ||
      (around != nullptr && function_group(around->function) == FunctionGroup::kCudart);
  if (in_runtime_call && !record_inner_calls.load(std::memory_order_relaxed)) return;
  thread->plain_window = window;
  *correlation_data = now();
  if (around == nullptr) *correlation_data = outermost_call_begins(*thread, window, *correlation_data);
}

void LaunchObserver::leave_plain(std::uint32_t cbid, int status,
                                 const std::uint64_t* correlation_data) noexcept {
  ThreadState* thread = ThreadRegistry::current_if_any();
  if (thread == nullptr || *correlation_data == 0 || thread->plain_window == 0) return;
  const std::uint32_t window = thread->plain_window;
  const OpenCall* around = call_around(*thread, __builtin_dwarf_cfa());
  CallRecord record;
  record.begin = *correlation_data;
  record.end = now();
  record.function = static_cast<FunctionId>(kDriverFunction | cbid);
  record.chain = chain_inside(around);
  record.call = ++thread->calls;
  record.range = nvtx_current(*thread);
  record.window = window;
  record.status = static_cast<std::int16_t>(status);
  ThreadRegistry::push(*thread, record);
  if (around == nullptr) outermost_call_ended(*thread, window, record.begin, record.end);
}

void LaunchObserver::graph_node_created() noexcept {
  ThreadState* thread = ThreadRegistry::current_if_any();
  if (thread != nullptr) ++thread->graph_nodes;
}

bool LaunchObserver::captures_kernel() noexcept {
  ThreadState* thread = ThreadRegistry::current_if_any();
  if (thread == nullptr) return false;
  if (thread->launching_kernel != 0) return true;
  // A library call that creates nodes itself.
  const OpenCall* call = call_around(*thread, __builtin_dwarf_cfa());
  while (call != nullptr && (call->flags & kCallCaptured) == 0) call = thread->open_calls.around(*call);
  return call != nullptr && call->window != 0;
}

void LaunchObserver::kernel_captured(std::uint64_t node) noexcept {
  ThreadState* thread = ThreadRegistry::current_if_any();
  Core* core = Core::get_if_any();
  if (thread == nullptr || core == nullptr) return;
  CapturedCall call;
  call.thread = thread->index;
  if (const OpenCall* around = call_around(*thread, __builtin_dwarf_cfa()); around != nullptr) {
    call.chain = chain_inside(around);
    call.owner = owner_inside(*around);
    call.shape = around->shape;
    for (; around != nullptr; around = thread->open_calls.around(*around)) {
      if ((around->flags & kCallOwnsShape) != 0) call.function = around->function;
    }
  }
  core->graph_nodes.add(node, call);
}

void LaunchObserver::graph_node_cloned(std::uint64_t node, std::uint64_t original) noexcept {
  if (Core* core = Core::get_if_any(); core != nullptr) core->graph_nodes.add_clone(node, original);
}

}  // namespace inject
