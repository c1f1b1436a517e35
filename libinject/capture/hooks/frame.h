// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/model/call_shape.h"
#include "libinject/model/records.h"

namespace inject {

/// One hooked call in progress, on the slow path (control_word != 0). The constructor holds the call at the
/// launch gate if it must, enters the call into the thread's chain and reads the clock; the destructor reads
/// the clock, leaves the chain and publishes the record. Nothing here throws, allocates on the heap (but for
/// a thread's first frame), locks or makes a system call (but where a pause or call was long:
/// record/processor_time.h). The destructor also runs when the real call is
/// unwound (pthread_cancel).
class CallFrame {
 public:
  explicit CallFrame(FunctionId function) noexcept;
  ~CallFrame();
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;

  /// Whether what the call computes is to be told: a window is open, and no call around it has told.
  bool wants_shape() const noexcept { return entered_ && window_ != 0 && shape_ == 0; }
  std::uint32_t window() const noexcept { return window_; }
  /// `shared` tells an operand that several products may have in common; 0: none.
  void shape(const CallShape& shape, std::uint64_t shared = 0) noexcept;
  void shape(std::uint32_t id, std::uint64_t shared = 0) noexcept;

  /// The kernels of the call become nodes of a CUDA graph: none of them runs now.
  void captured() noexcept { flags_ |= kCallCaptured; }

  /// The status that the real call returned.
  void status(int code) noexcept { status_ = static_cast<std::int16_t>(code); }

 private:
  /// `owner` of the calls inside a frame.
  static std::uint32_t owner_inside(const CallFrame& frame) noexcept;

  friend class LaunchObserver;  // cupti/: gives the innermost frame the correlation id of its driver launch
  Nanoseconds begin_ = 0;
  CallFrame* outer_ = nullptr;
  CallChain chain_ = 0;
  std::uint64_t stream_ = 0;
  std::uint32_t correlation_ = 0;
  std::uint32_t call_ = 0;
  std::uint32_t owner_ = 0;
  std::uint32_t window_ = 0;
  std::uint32_t shape_ = 0;
  FunctionId function_;
  std::int16_t status_ = 0;
  std::uint16_t generation_ = 0;
  std::uint16_t graph_ = 0;  // with kCallGraph
  std::uint8_t flags_ = 0;
  bool entered_ = false;
};

}  // namespace inject
