// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Notifies other parts of the library of certain calls, whether a window is open or not. A specialisation of
// Observer has `static void before()`, `static void after(int status)` or both, or the same with the call's
// arguments: `before(arguments...)`, `after(void* real, int status, arguments...)`, or with the caller,
// before the call: `called_from(const void* caller)`. They run outside the call's frame and don't throw. With
// a member kUnrecorded the call has no frame.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "libinject/capture/graph_capture.h"
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

/// CUDA is initialised, but allocations are not counted: the first time, creates the session if the driver
/// has called another tool's library in our place. True if it has.
bool on_uncounted_allocation() noexcept;

/// The part of CUPTI that the program is about to claim (foreign_cupti.h). `caller`: the call's return
/// address.
enum class ForeignCall : std::uint8_t {
  kSubscribe,
  kRegisterBuffers,
  kRegisterClock,
  kEnableActivity,
  kFinalize,
};
void on_foreign_cupti(ForeignCall call, const void* caller) noexcept;

/// The program has finalized CUPTI, for all clients, or failed.
void on_foreign_cupti_finalized(int status) noexcept;

/// The program has released part of CUPTI; `for_good`: everything that it had.
void on_foreign_cupti_left(bool for_good) noexcept;

/// The program is about to initialise CUPTI's profiler, or to deinitialise it.
void on_foreign_cupti_profiler(bool initialize) noexcept;

template <FunctionId function>
struct Observer {};

template <>
struct Observer<kFn_cudaProfilerStart> {
  // Only if the call will be made, and so will end.
  static void called_from(const void*) noexcept { on_profiler_starting(); }
  static void after(int status) noexcept { on_profiler_start(status); }
};

/// What is captured does not run, and may be a whole iteration. The places where a graph's kernels were
/// captured are kept (capture/graph_capture.h).
template <bool per_thread>
struct CaptureBegins {
  template <typename... A>
  static void after(void* /*real*/, int status, CUstream stream, A... /*more*/) noexcept {
    if (status != 0) return;
    note_capture(true);
    capture_began(per_thread && stream == nullptr ? CU_STREAM_PER_THREAD : stream);
  }
};
template <>
struct Observer<kFn_cudaStreamBeginCapture> : CaptureBegins<false> {};
template <>
struct Observer<kFn_cudaStreamBeginCapture_ptsz> : CaptureBegins<true> {};
template <>
struct Observer<kFn_cudaStreamBeginCaptureToGraph> : CaptureBegins<false> {};
template <>
struct Observer<kFn_cudaStreamBeginCaptureToGraph_ptsz> : CaptureBegins<true> {};

template <bool per_thread>
struct CaptureEnds {
  /// `graph` may be null: a program that captures into its own graph need not request it.
  static void after(void* /*real*/, int status, CUstream stream, const CUgraph* graph) noexcept {
    // Any other error leaves the stream as it was.
    if (status != CUDA_SUCCESS && status != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED &&
        status != CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
      return;
    note_capture(false);
    capture_ended(per_thread && stream == nullptr ? CU_STREAM_PER_THREAD : stream, status == CUDA_SUCCESS,
                  status == CUDA_SUCCESS && graph != nullptr ? *graph : nullptr);
  }
};
template <>
struct Observer<kFn_cudaStreamEndCapture> : CaptureEnds<false> {};
template <>
struct Observer<kFn_cudaStreamEndCapture_ptsz> : CaptureEnds<true> {};

template <>
struct Observer<kFn_cudaStreamDestroy> {
  static void before(CUstream stream) noexcept { stream_destroyed(stream); }
};

template <>
struct Observer<kFn_cudaGraphCreate> {
  static void after(void* /*real*/, int status, const CUgraph* graph, unsigned /*flags*/) noexcept {
    if (status == 0 && graph != nullptr)
      graph_destroyed(*graph);  // an earlier graph had this handle, and is gone
  }
};
template <>
struct Observer<kFn_cudaGraphClone> {
  static void after(void* /*real*/, int status, const CUgraph* graph, CUgraph original) noexcept {
    if (status == 0 && graph != nullptr) graph_copied(*graph, original);
  }
};
template <>
struct Observer<kFn_cudaGraphDestroy> {
  static void before(CUgraph graph) noexcept { graph_destroyed(graph); }
};

struct Instantiates {
  template <typename... A>
  static void after(void* /*real*/, int status, const CUgraphExec* executable, CUgraph graph,
                    A... /*more*/) noexcept {
    if (status == 0 && executable != nullptr) graph_instantiated(*executable, graph);
  }
};
template <>
struct Observer<kFn_cudaGraphInstantiate> : Instantiates {};
template <>
struct Observer<kFn_cudaGraphInstantiateWithFlags> : Instantiates {};
template <>
struct Observer<kFn_cudaGraphInstantiateWithParams> : Instantiates {};
template <>
struct Observer<kFn_cudaGraphInstantiateWithParams_ptsz> : Instantiates {};
template <>
struct Observer<kFn_cudaGraphExecUpdate> {
  template <typename... A>
  static void after(void* /*real*/, int status, CUgraphExec executable, CUgraph graph,
                    A... /*more*/) noexcept {
    if (status == 0) graph_instantiated(executable, graph);
  }
};
template <>
struct Observer<kFn_cudaGraphExecDestroy> {
  static void before(CUgraphExec executable) noexcept { executable_destroyed(executable); }
};

template <>
struct Observer<kFn_cudaProfilerStop> {
  static void called_from(const void*) noexcept { on_profiler_stopping(); }
  static void after(int status) noexcept { on_profiler_stop(status); }
};

}  // namespace inject
