// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>

#include "libinject/base/time.h"
#include "libinject/model/functions.h"
#include "libinject/model/records.h"
#include "libinject/record/block_pool.h"
#include "libinject/record/control.h"

namespace inject {

/// What is known about a hooked call in progress, and what the driver's callbacks add to it.
struct OpenCall {
  Nanoseconds begin = 0;
  CallChain chain = 0;
  std::uint64_t stream = 0;
  std::uintptr_t stack = 0;  ///< where its frame begins: for comparison, never dereferenced
  std::uint32_t correlation = 0;
  std::uint32_t call = 0;
  std::uint32_t owner = 0;
  std::uint32_t window = 0;
  std::uint32_t shape = 0;
  std::uint32_t code_place = 0;  ///< of its launch, while launches are named
  FunctionId function = 0;
  std::uint16_t generation = 0;
  std::uint16_t graph = 0;  ///< with kCallGraph
  std::uint8_t flags = 0;
  std::uint8_t level = 0;  ///< number of calls around it

  /// True if it gets a record at its end. A library call always does: its kernels are the library's, whether
  /// API statistics are wanted or not.
  bool has_record() const noexcept {
    return correlation != 0 || (window != 0 && (record_plain_calls.load(std::memory_order_relaxed) ||
                                                function_group(function) != FunctionGroup::kCudart));
  }
};

/// A thread's hooked calls in progress, outermost first. They are kept here rather than in the stack frames
/// of the calls, because a call may end without its frame being left: by siglongjmp out of a signal handler,
/// or by a switch to another stack. Writing to them here can't damage the program's memory. A call that was
/// left by siglongjmp is forgotten by the next one that begins at its place in the stack or further out;
/// until then, calls that begin further in count as inside it.
class OpenCalls {
 public:
  /// Library calls nest four or five deep. If there is no room, calls have been left by siglongjmp.
  static constexpr std::uint32_t kMaxDepth = 16;

  /// No call is in progress, and none left by siglongjmp is still remembered.
  bool empty() const noexcept { return depth_ == 0 && short_call_ == 0; }

  /// Enters a call of which only the beginning of its frame is kept. Calls that begin during it are not
  /// inside it: only a signal handler makes any.
  void enter_short_call(std::uintptr_t stack) noexcept { short_call_ = stack; }
  /// False if it is not in progress: it has been forgotten, or belonged to another thread.
  bool leave_short_call(std::uintptr_t stack) noexcept {
    if (short_call_ != stack) return false;
    short_call_ = 0;
    return true;
  }
  /// True if code whose frame begins at `stack` is inside it.
  bool in_short_call(std::uintptr_t stack) const noexcept { return stack < short_call_; }

  /// The call around code whose frame begins at `stack`; nullptr if there is none.
  OpenCall* around(std::uintptr_t stack) noexcept {
    if (short_call_ != 0) [[unlikely]]
      forget_short_call(stack);
    if (depth_ == 0) return nullptr;
    OpenCall& top = calls_[depth_ - 1];
    if (top.stack <= stack) [[unlikely]]
      return look_further(stack);
    return top.call == 0 ? nullptr : &top;  // 0: a signal handler interrupted its making
  }
  /// The call around this one.
  const OpenCall* around(const OpenCall& call) const noexcept {
    return call.level == 0 ? nullptr : &calls_[call.level - 1];
  }

  /// Enters a call. Its `level` is the number of calls around it.
  std::uint32_t enter(OpenCall& call, bool nested) noexcept {
    if (depth_ == kMaxDepth) [[unlikely]]
      forget(0);
    const std::uint32_t place = depth_;
    call.level = nested ? static_cast<std::uint8_t>(place) : 0;
    // A signal handler may make calls at any point in this function.
    calls_[place].call = 0;
    calls_[place].stack = call.stack;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    depth_ = place + 1;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    calls_[place] = call;
    return place;
  }

  /// The call that was entered at `place` with this number, unless it has been forgotten.
  OpenCall* at(std::uint32_t place, std::uint32_t call) noexcept {
    return place < depth_ && calls_[place].call == call ? &calls_[place] : nullptr;
  }
  /// The call has ended, and with it all that were entered after it.
  void leave(std::uint32_t place) noexcept {
    if (depth_ != place + 1) [[unlikely]]
      forget(place + 1);
    depth_ = place;
  }

  /// Another thread gets this state. Forgotten calls of windows are counted in `queue` if they would have had
  /// a record.
  void reset(RecordQueue& queue) noexcept {
    depth_ = 0;
    short_call_ = 0;
    queue_ = &queue;
  }

 private:
  OpenCall* look_further(std::uintptr_t stack) noexcept;
  void forget_short_call(std::uintptr_t stack) noexcept;
  void forget(std::uint32_t first) noexcept;

  std::uint32_t depth_ = 0;
  std::uintptr_t short_call_ = 0;  // where its frame begins, 0: none
  RecordQueue* queue_ = nullptr;
  OpenCall calls_[kMaxDepth];
};

}  // namespace inject
