// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/frame.h"

#include "libinject/base/clock.h"
#include "libinject/capture/gate.h"
#include "libinject/capture/nvtx/injection.h"
#include "libinject/model/functions.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"
#include "libinject/record/processor_time.h"
#include "libinject/record/thread_registry.h"

namespace inject {

namespace {

// Calls that submit device work wait while CUPTI is attached or detached; the others don't hinder it.
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

}  // namespace

CallFrame::CallFrame(FunctionId function) noexcept : function_(function) {
  std::uint32_t control = control_word.load(std::memory_order_acquire);
  if (ThreadRegistry::this_thread_is_ignored()) return;
  ThreadState* thread = ThreadRegistry::current_if_any();
  if ((control & kControlGate) != 0 && (thread == nullptr || thread->innermost == nullptr) &&
      held_at_gate(function)) {
    LaunchGate::wait();
    control = control_word.load(std::memory_order_acquire);
  }
  if ((control & kControlRecord) == 0) return;
  const FunctionGroup group = function_group(function);
  if ((recorded_groups.load(std::memory_order_relaxed) >> static_cast<unsigned>(group) & 1u) == 0) return;
  if (thread == nullptr) thread = ThreadRegistry::current();
  if (thread == nullptr) return;

  outer_ = thread->innermost;
  if (outer_ != nullptr) {
    chain_ = chain_push(outer_->chain_, outer_->function_);
    owner_ = owner_inside(*outer_);
    shape_ = outer_->shape_;
  }
  call_ = ++thread->calls;
  window_ = current_window.load(std::memory_order_acquire);
  thread->innermost = this;
  entered_ = true;
  begin_ = now();
  if (outer_ == nullptr && window_ != 0) begin_ = outermost_call_begins(*thread, window_, begin_);
}

std::uint32_t CallFrame::owner_inside(const CallFrame& frame) noexcept {
  if ((frame.flags_ & kCallOwnsShape) != 0) return frame.call_;
  if (frame.owner_ != 0) return frame.owner_;
  return function_group(frame.function_) == FunctionGroup::kCudart ? 0 : frame.call_;
}

void CallFrame::shape(const CallShape& shape, std::uint64_t shared) noexcept {
  Core* core = Core::get_if_any();
  if (core != nullptr && shape.kind() != ShapeKind::kNone) this->shape(core->shapes.intern(shape), shared);
}

void CallFrame::shape(std::uint32_t id, std::uint64_t shared) noexcept {
  if (id == 0) return;
  shape_ = id;
  flags_ |= kCallOwnsShape;
  ThreadState* thread = ThreadRegistry::current_if_any();
  if (thread == nullptr) return;
  if (shared != 0 && thread->last_shape == id && thread->last_operand == shared) flags_ |= kCallShared;
  thread->last_shape = id;
  thread->last_operand = shared;
}

CallFrame::~CallFrame() {
  if (!entered_) return;
  const Nanoseconds end = now();
  ThreadState* thread = ThreadRegistry::current_if_any();
  if (thread == nullptr) return;
  thread->innermost = outer_;
  if (outer_ == nullptr && window_ != 0) outermost_call_ended(*thread, window_, begin_, end);
  if (correlation_ == 0) {
    if (window_ == 0) return;
    // Library calls are always counted: their kernels are theirs whether API statistics are wanted or not.
    if (!record_plain_calls.load(std::memory_order_relaxed) &&
        function_group(function_) == FunctionGroup::kCudart) {
      return;
    }
  }
  CallRecord record;
  record.flags = flags_;
  record.function = function_;
  record.correlation = correlation_;
  record.begin = begin_;
  record.end = end;
  record.chain = chain_;
  record.stream = stream_;
  record.owner = owner_;
  record.call = call_;
  record.range = nvtx_current(*thread);
  record.window = window_;
  record.shape = shape_;
  record.status = status_;
  if ((flags_ & kCallGraph) != 0) {
    if (status_ == 0) {
      record.status = static_cast<std::int16_t>(graph_);
    } else {
      record.flags &= static_cast<std::uint8_t>(~kCallGraph);
    }
  }
  record.generation = generation_;
  ThreadRegistry::push(*thread, record);
}

}  // namespace inject
