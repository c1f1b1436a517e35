// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/frame.h"

#include <algorithm>

#include "libinject/base/clock.h"
#include "libinject/base/ticks.h"
#include "libinject/capture/gate.h"
#include "libinject/capture/launch_place.h"
#include "libinject/capture/nvtx/injection.h"
#include "libinject/model/code_place.h"
#include "libinject/model/functions.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"
#include "libinject/record/processor_time.h"
#include "libinject/record/thread_registry.h"

namespace inject {

namespace {

// Calls that submit device work wait while CUPTI is attached or detached; other calls don't hinder it.
bool held_at_gate(FunctionId function) noexcept {
  const FunctionGroup group = function_group(function);
  if (group == FunctionGroup::kCudart) {
    switch (function_category(function)) {
      case Category::kLaunch:
      case Category::kCopy:
      case Category::kMemset:
      case Category::kGraph:
        return true;
      default:
        return false;
    }
  }
  return group == FunctionGroup::kCublas || group == FunctionGroup::kCublasLt ||
         group == FunctionGroup::kCudnn;
}

// True if the outermost call has to record when its thread was not just computing (model/records.h,
// kShortCall).
bool is_apart(const ThreadState& thread, const OpenCall& call) noexcept {
  return thread.kept_window != call.window || call.begin - thread.kept_end >= kProcessorTimeApart;
}

// Notes the end of an outermost call whose record has its times.
void keep(ThreadState& thread, std::uint32_t window, Nanoseconds end) noexcept {
  thread.kept_window = window;
  thread.kept_end = end;
  thread.kept_end_ticks = ticks();
}

}  // namespace

CallFrame::CallFrame(FunctionId function, const void* stack) noexcept {
  std::uint32_t control = control_word.load(std::memory_order_acquire);
  if (ThreadRegistry::this_thread_is_ignored()) return;
  ThreadState* thread = ThreadRegistry::current_if_any();
  const auto frame = reinterpret_cast<std::uintptr_t>(stack);
  if ((control & kControlGate) != 0 && (thread == nullptr || thread->open_calls.around(frame) == nullptr) &&
      held_at_gate(function)) {
    LaunchGate::wait();
    control = control_word.load(std::memory_order_acquire);
  }
  if ((control & kControlRecord) == 0) return;
  const FunctionGroup group = function_group(function);
  if ((recorded_groups.load(std::memory_order_relaxed) >> static_cast<unsigned>(group) & 1u) == 0) return;
  if (thread == nullptr) thread = ThreadRegistry::current();
  if (thread == nullptr) return;

  OpenCall call;
  call.stack = frame;
  call.function = function;
  const OpenCall* outer = thread->open_calls.around(frame);
  if (outer != nullptr) {
    call.chain = chain_push(outer->chain, outer->function);
    call.owner = owner_inside(*outer);
    call.shape = outer->shape;
  }
  call.call = ++thread->calls;
  call.window = current_window.load(std::memory_order_acquire);
  call.begin = now();
  if (outer == nullptr && call.window != 0)
    call.begin = outermost_call_begins(*thread, call.window, call.begin);
  if (is_naming(call.window) && function_category(function) == Category::kSync)
    call.code_place = launch_place(*thread);
  thread_ = thread;
  call_ = call.call;
  window_ = call.window;
  shape_told_ = call.shape != 0;
  place_ = thread->open_calls.enter(call, outer != nullptr);
}

OpenCall* CallFrame::open() const noexcept {
  // Another thread's by now, if the program moves stacks between threads.
  if (thread_ == nullptr || thread_ != ThreadRegistry::current_if_any()) return nullptr;
  return thread_->open_calls.at(place_, call_);
}

std::uint32_t owner_inside(const OpenCall& call) noexcept {
  if ((call.flags & kCallOwnsShape) != 0) return call.call;
  if (call.owner != 0) return call.owner;
  return function_group(call.function) == FunctionGroup::kCudart ? 0 : call.call;
}

void CallFrame::shape(const CallShape& shape, std::uint64_t shared) noexcept {
  Core* core = Core::get_if_any();
  if (core != nullptr && shape.kind() != ShapeKind::kNone) this->shape(core->shapes.intern(shape), shared);
}

void CallFrame::shape(std::uint32_t id, std::uint64_t shared) noexcept {
  if (id == 0) return;
  shape_told_ = true;
  OpenCall* call = open();
  if (call == nullptr) return;
  call->shape = id;
  call->flags |= kCallOwnsShape;
  if (shared != 0 && thread_->last_shape == id && thread_->last_operand == shared) call->flags |= kCallShared;
  thread_->last_shape = id;
  thread_->last_operand = shared;
}

void CallFrame::captured() noexcept {
  if (OpenCall* call = open(); call != nullptr) call->flags |= kCallCaptured;
}

CallFrame::~CallFrame() {
  if (thread_ == nullptr) return;
  const Nanoseconds end = now();
  const OpenCall* open = this->open();
  if (open == nullptr) return;
  const OpenCall call = *open;
  ThreadState& thread = *thread_;
  thread.open_calls.leave(place_);
  if (call.level == 0 && call.window != 0) outermost_call_ended(thread, call.window, call.begin, end);
  if (!call.has_record()) return;
  const bool brief = end - call.begin < kShortCall && is_bookkeeping(call.function);
  const bool outermost = call.chain == 0;
  if (brief && call.correlation == 0 && call.flags == 0 && !(outermost && is_apart(thread, call)) &&
      short_calls_together.load(std::memory_order_relaxed)) {
    ThreadRegistry::add_short_call(thread, call.window,
                                   {call.function, static_cast<std::uint16_t>(end - call.begin)});
    return;
  }
  if (outermost) keep(thread, call.window, end);
  CallRecord record;
  record.flags = call.flags;
  record.function = call.function;
  record.correlation = call.correlation;
  record.begin = call.begin;
  record.end = end;
  record.chain = call.chain;
  record.stream = call.stream;
  record.owner = call.owner;
  record.call = call.call;
  record.range = is_naming(call.window) ? call.code_place : nvtx_current(thread);
  record.window = call.window;
  record.shape = call.shape;
  record.status = status_;
  if ((call.flags & kCallGraph) != 0) {
    if (status_ == 0) {
      record.status = static_cast<std::int16_t>(call.graph);
    } else {
      record.flags &= static_cast<std::uint8_t>(~kCallGraph);
    }
  }
  record.generation = call.generation;
  ThreadRegistry::push(thread, record);
}

ShortCallFrame::Start ShortCallFrame::begin(std::uintptr_t stack) noexcept {
  ThreadState* const thread = ThreadRegistry::current_if_any();
  if (thread == nullptr || !short_calls_together.load(std::memory_order_relaxed) ||
      !thread->open_calls.empty()) {
    return {};
  }
  const std::uint32_t window = current_window.load(std::memory_order_acquire);
  if (window == 0 || thread->kept_window != window || !tick_period.known()) return {};
  thread->queue.expect_short_call();
  const std::uint64_t time = ticks();
  if (tick_period.between(thread->kept_end_ticks, time) >= kProcessorTimeApart) return {};
  thread->open_calls.enter_short_call(stack);
  return {time, window};
}

void ShortCallFrame::end(std::uintptr_t stack, Start start, FunctionId function,
                         std::int16_t status) noexcept {
  const std::uint64_t time = ticks();
  // Another thread's by now, if the program moves stacks between threads.
  ThreadState* const thread = ThreadRegistry::current_if_any();
  if (thread == nullptr || !thread->open_calls.leave_short_call(stack)) return;
  const Nanoseconds duration = tick_period.between(start.ticks, time);
  if (duration < kShortCall) [[likely]] {
    thread->last_short_end = time;
    ThreadRegistry::add_short_call(*thread, start.window, {function, static_cast<std::uint16_t>(duration)});
    return;
  }
  end_long(*thread, start.window, duration, function, status);
}

// A separate function, so that short calls need not save registers for it.
[[gnu::noinline]] void ShortCallFrame::end_long(ThreadState& thread, std::uint32_t window,
                                                Nanoseconds duration, FunctionId function,
                                                std::int16_t status) noexcept {
  CallRecord record;
  record.function = function;
  record.end = now();
  record.begin = record.end - std::min(duration, record.end);
  record.call = ++thread.calls;
  record.range = nvtx_current(thread);
  record.window = window;
  record.status = status;
  outermost_call_ended(thread, record.window, record.begin, record.end);
  keep(thread, record.window, record.end);
  ThreadRegistry::push(thread, record);
}

}  // namespace inject
