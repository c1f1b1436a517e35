// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/base/clock.h"
#include "libinject/model/call_shape.h"
#include "libinject/model/functions.h"
#include "libinject/model/records.h"
#include "libinject/record/control.h"
#include "libinject/record/thread_registry.h"

namespace inject {

/// One hooked call in progress, on the slow path (control_word != 0). The constructor holds the call at the
/// launch gate if necessary, enters the call among its thread's open calls and reads the clock; the
/// destructor reads the clock, removes the call and publishes the record. Nothing here throws, allocates on
/// the heap (except for a thread's first frame), locks or makes a system call (except after a long pause or
/// call: record/processor_time.h). The destructor also runs when the real call is unwound (pthread_cancel).
/// If it does not run, as after siglongjmp, nothing refers to this object: what others read and write of the
/// call is in record/open_calls.h.
class CallFrame {
 public:
  /// `stack`: where the frame of the constructing function begins.
  [[gnu::hot]] explicit CallFrame(FunctionId function, const void* stack = __builtin_dwarf_cfa()) noexcept;
  [[gnu::hot]] ~CallFrame();
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;

  /// True if the call's shape is to be recorded: a window is open, and no enclosing call has recorded one.
  bool wants_shape() const noexcept { return thread_ != nullptr && window_ != 0 && !shape_told_; }
  std::uint32_t window() const noexcept { return window_; }
  /// `shared` identifies an operand that several products may have in common; 0: none.
  void shape(const CallShape& shape, std::uint64_t shared = 0) noexcept;
  void shape(std::uint32_t id, std::uint64_t shared = 0) noexcept;

  /// The kernels of the call become nodes of a CUDA graph: none of them runs now.
  void captured() noexcept;

  /// The status that the real call returned.
  void status(int code) noexcept { status_ = static_cast<std::int16_t>(code); }

 private:
  /// The call's entry on its thread; nullptr if it is not recorded, or was mistaken for a call left by
  /// siglongjmp.
  [[gnu::hot]] OpenCall* open() const noexcept;

  ThreadState* thread_ = nullptr;
  std::uint32_t place_ = 0;
  std::uint32_t call_ = 0;
  std::uint32_t window_ = 0;
  std::int16_t status_ = 0;
  bool shape_told_ = false;
};

/// The same for an outermost call of the runtime for which is_bookkeeping(): a short one leaves only its
/// duration (model/records.h, kShortCall). Frameworks make ten of them per launch. Therefore the CPU's
/// counter times them, which takes half as long as the clock, and all hooks share the code, so that it stays
/// in the caches.
class ShortCallFrame {
 public:
  [[gnu::always_inline]] explicit ShortCallFrame(FunctionId function,
                                                 const void* stack = __builtin_dwarf_cfa()) noexcept
      : stack_(reinterpret_cast<std::uintptr_t>(stack)), start_(begin(stack_)), function_(function) {}
  [[gnu::always_inline]] ~ShortCallFrame() {
    if (begun()) end(stack_, start_, function_, status_);
  }
  ShortCallFrame(const ShortCallFrame&) = delete;
  ShortCallFrame& operator=(const ShortCallFrame&) = delete;

  /// False if a CallFrame is needed.
  bool begun() const noexcept { return start_.window != 0; }
  void status(int code) noexcept { status_ = static_cast<std::int16_t>(code); }

 private:
  struct Start {
    std::uint64_t ticks;
    std::uint32_t window;
  };
  [[gnu::hot]] static Start begin(std::uintptr_t stack) noexcept;
  [[gnu::hot]] static void end(std::uintptr_t stack, Start start, FunctionId function,
                               std::int16_t status) noexcept;
  static void end_long(ThreadState& thread, std::uint32_t window, Nanoseconds duration, FunctionId function,
                       std::int16_t status) noexcept;

  std::uintptr_t stack_;
  Start start_;
  FunctionId function_;
  std::int16_t status_ = 0;
};

/// The `owner` of calls inside a call.
std::uint32_t owner_inside(const OpenCall& call) noexcept;

}  // namespace inject
