// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What other parts of the library want to know of certain calls, whether a window is open or not. A
// specialisation of Observer has `static void before()`, `static void after(int status)` or both, or the same
// with what the call is about: `before(arguments...)`, `after(void* real, int status, arguments...)`. They
// run outside the call's frame and don't throw. With a member kUnrecorded the call has no frame.
#pragma once

#include "libinject/hooks/functions.h"
#include "libinject/record/records.h"

namespace inject {

/// The program called cudaProfilerStart (the real call has returned `status`) or cudaProfilerStop (it is
/// about to be made).
void on_profiler_start(int status) noexcept;
void on_profiler_stop() noexcept;

/// The program is about to subscribe to CUPTI, or to take its activity buffers.
void on_foreign_cupti_subscribe() noexcept;
void on_foreign_cupti_buffers() noexcept;

/// The program is about to finalize CUPTI, for everybody; it has done so, or failed.
void on_foreign_cupti_finalize() noexcept;
void on_foreign_cupti_finalized(int status) noexcept;

/// The program is about to initialise CUPTI's profiler, or to end that.
void on_foreign_cupti_profiler(bool initialize) noexcept;

template <FunctionId function>
struct Observer {};

template <>
struct Observer<kFn_cudaProfilerStart> {
  static void after(int status) noexcept { on_profiler_start(status); }
};

template <>
struct Observer<kFn_cudaProfilerStop> {
  static void before() noexcept { on_profiler_stop(); }
};

template <>
struct Observer<kFn_cuptiSubscribe> {
  static void before() noexcept { on_foreign_cupti_subscribe(); }
};

template <>
struct Observer<kFn_cuptiSubscribe_v2> : Observer<kFn_cuptiSubscribe> {};

template <>
struct Observer<kFn_cuptiActivityRegisterCallbacks> {
  static void before() noexcept { on_foreign_cupti_buffers(); }
};

template <>
struct Observer<kFn_cuptiFinalize> {
  static void before() noexcept { on_foreign_cupti_finalize(); }
  static void after(int status) noexcept { on_foreign_cupti_finalized(status); }
};

template <>
struct Observer<kFn_cuptiProfilerInitialize> {
  static void before() noexcept { on_foreign_cupti_profiler(true); }
};

template <>
struct Observer<kFn_cuptiProfilerDeInitialize> {
  static void before() noexcept { on_foreign_cupti_profiler(false); }
};

}  // namespace inject
