// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Notifies other parts of the library of certain calls, whether a window is open or not. A
// specialisation of Observer has `static void before()`, `static void after(int status)` or both, or the same
// with what the call is about: `before(arguments...)`, `after(void* real, int status, arguments...)`, or who
// makes it: `called_from(const void* caller)`, before it is made. They run outside the call's frame and don't
// throw. With a member kUnrecorded the call has no frame.
#pragma once

#include <cstdint>

#include "libinject/model/functions.h"
#include "libinject/model/records.h"
#include "libinject/record/iteration_watch.h"

namespace inject {

/// The program calls cudaProfilerStart or cudaProfilerStop: the call is about to be made, or has returned
/// `status`.
void on_profiler_starting() noexcept;
void on_profiler_start(int status) noexcept;
void on_profiler_stopping() noexcept;
void on_profiler_stop(int status) noexcept;

/// CUDA is initialised, and nobody counts allocations: makes the session where the driver has called another
/// tool's library in our place, the first time. True if it has.
bool on_uncounted_allocation() noexcept;

/// What the program is about to take of CUPTI's (foreign_cupti.h). `caller`: the address that the call
/// returns to.
enum class ForeignCall : std::uint8_t {
  kSubscribe,
  kRegisterBuffers,
  kRegisterClock,
  kEnableActivity,
  kFinalize,
};
void on_foreign_cupti(ForeignCall call, const void* caller) noexcept;

/// It has finalized CUPTI, for everybody, or failed.
void on_foreign_cupti_finalized(int status) noexcept;

/// It has released something; `for_good`: everything that it had.
void on_foreign_cupti_left(bool for_good) noexcept;

/// The program is about to initialise CUPTI's profiler, or to end that.
void on_foreign_cupti_profiler(bool initialize) noexcept;

template <FunctionId function>
struct Observer {};

template <>
struct Observer<kFn_cudaProfilerStart> {
  // Where the call is made, and so has an end.
  static void called_from(const void*) noexcept { on_profiler_starting(); }
  static void after(int status) noexcept { on_profiler_start(status); }
};

/// What is captured does not run, and may be a whole iteration.
struct CaptureBegins {
  static void after(int status) noexcept {
    if (status == 0) note_capture(true);
  }
};
template <>
struct Observer<kFn_cudaStreamBeginCapture> : CaptureBegins {};
template <>
struct Observer<kFn_cudaStreamBeginCapture_ptsz> : CaptureBegins {};
template <>
struct Observer<kFn_cudaStreamBeginCaptureToGraph> : CaptureBegins {};
template <>
struct Observer<kFn_cudaStreamBeginCaptureToGraph_ptsz> : CaptureBegins {};

struct CaptureEnds {
  static void after(int) noexcept { note_capture(false); }
};
template <>
struct Observer<kFn_cudaStreamEndCapture> : CaptureEnds {};
template <>
struct Observer<kFn_cudaStreamEndCapture_ptsz> : CaptureEnds {};

template <>
struct Observer<kFn_cudaProfilerStop> {
  static void called_from(const void*) noexcept { on_profiler_stopping(); }
  static void after(int status) noexcept { on_profiler_stop(status); }
};

}  // namespace inject
