// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the statistics consume: activity and calls, decoded and joined. All times are nanoseconds on
// CLOCK_MONOTONIC, all sizes bytes, all names ids of one NameTable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "libinject/model/records.h"

namespace inject {

/// Who submitted a piece of device work. `known` is false if the launch was not seen (its record was
/// dropped): the window is then determined by the activity's start time, and all other fields are zero.
struct Attribution {
  bool known = false;
  FunctionId function = kNoFunction;  ///< the API call that submitted it
  std::uint32_t window = 0;
  std::uint32_t thread = 0;  ///< index into the run's thread list
  std::uint32_t range = 0;   ///< NVTX context node; a CodePlace while launches are named
  std::uint16_t graph = 0;   ///< number in Core::captured_graphs of the launched graph, if it was captured
  std::uint32_t owner =
      0;  ///< number on its thread of the library call that `shape` describes, else of the outermost one
  std::uint32_t shape = 0;          ///< in Core::shapes: what that call computes, 0 if unknown
  CallChain chain = 0;              ///< hooked calls around `function`
  std::uint64_t stream_handle = 0;  ///< while launches are named, a packed OperatorCall
  Nanoseconds host_begin = 0;
  Nanoseconds host_end = 0;
};

/// The library call during which a CUDA graph's kernel was captured; `launch.shape` is then that call's.
struct ReplayedCall {
  FunctionId function = kNoFunction;
  std::uint32_t thread = 0;
  std::uint32_t call = 0;  ///< its number on that thread; 0: none
};

struct KernelEvent {
  Attribution launch;
  ReplayedCall replayed;
  Nanoseconds start = 0;
  Nanoseconds end = 0;
  std::uint32_t name = 0;  ///< demangled, in full
  std::uint32_t device = 0;
  std::uint32_t context = 0;
  std::uint32_t stream = 0;
  std::uint32_t correlation = 0;
  std::array<std::int32_t, 3> grid{};
  std::array<std::int32_t, 3> block{};
  std::uint32_t registers_per_thread = 0;
  std::uint32_t static_shared_bytes = 0;
  std::uint32_t dynamic_shared_bytes = 0;
  std::uint32_t local_bytes_per_thread = 0;
  std::uint32_t graph = 0;  ///< 0: not part of a CUDA graph
  std::uint64_t graph_node = 0;
};

/// Copies and memsets. Kinds are CUPTI's CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind values.
struct TransferEvent {
  Attribution launch;
  Nanoseconds start = 0;
  Nanoseconds end = 0;
  std::uint64_t bytes = 0;
  std::uint32_t device = 0;
  std::uint32_t context = 0;
  std::uint32_t stream = 0;
  std::uint32_t correlation = 0;
  std::uint32_t source_device = 0;  ///< of a peer copy, like the next member
  std::uint32_t target_device = 0;
  bool memset = false;
  bool peer = false;
  std::uint8_t copy_kind = 0;  ///< CUpti_ActivityMemcpyKind; 0 for a memset
  std::uint8_t source_memory = 0;
  std::uint8_t target_memory = 0;  ///< for a memset, the memory set
};

/// One host API call inside a window, possibly nested (then `chain` is not empty).
struct CallEvent {
  FunctionId function = kNoFunction;
  std::int16_t status = 0;
  bool captured = false;    ///< the work went into a graph rather than a stream
  bool owns_shape = false;  ///< `shape` is this call's own, not that of a call around it
  bool shared = false;      ///< has an operand in common with the thread's previous call, which has the same
                            ///< shape
  std::uint32_t shape = 0;  ///< in Core::shapes
  std::uint32_t owner = 0;  ///< the call on the same thread that `shape` belongs to, if it is not this one
  std::uint32_t call = 0;   ///< its number on its thread
  std::uint32_t window = 0;
  std::uint32_t thread = 0;
  std::uint32_t range = 0;
  std::uint32_t correlation = 0;
  CallChain chain = 0;
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
};

/// CPU time used by a thread until some time.
struct ProcessorTimeEvent {
  std::uint32_t window = 0;
  std::uint32_t thread = 0;
  Nanoseconds time = 0;
  Nanoseconds processor = 0;
  std::uint64_t waits = 0;  ///< voluntary context switches until then
};

/// A fetch from a data loader.
struct FetchEvent {
  std::uint32_t window = 0;
  std::uint32_t thread = 0;
  FetchKind kind = FetchKind::kWaiting;
  FetchThread by = FetchThread::kAny;
  Nanoseconds begin = 0;
  Nanoseconds end = 0;  ///< 0: still in progress
};

/// One NVTX range, or the part of it that lies in the window (`clipped`: it began before or ended after).
struct RangeEvent {
  std::uint32_t node = 0;  ///< in the range tree; gives domain, name and style
  std::uint32_t window = 0;
  std::uint32_t thread = 0;
  std::uint32_t instance = 0;
  bool clipped = false;
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
};

/// Where the number of units of work (samples, tokens, seconds of audio) in an iteration comes from.
enum class UnitSource : std::uint8_t {
  kCalled,   ///< the program: inject_units()
  kStated,   ///< the user, the same for all iterations: INJECT_BATCH=N
  kPayload,  ///< payloads of NVTX ranges and marks: INJECT_BATCH=nvtx:NAME
  kLoader,   ///< the batches that PyTorch's DataLoader returns: INJECT_BATCH=auto
};
inline constexpr std::size_t kUnitSources = 4;

enum class IterationLabel : std::uint8_t { kIteration, kValidation, kCheckpoint };

/// An iteration, or something else that lasts until the next boundary, begins with a launch or a copy: its
/// first call.
struct IterationBoundary {
  std::uint64_t number = 0;  ///< of the iteration; meaningless for other labels
  /// Host time: not later than that call, and after the preceding call.
  Nanoseconds begin = 0;
  std::uint32_t window = 0;         ///< window that the call belongs to, 0 if none
  std::uint32_t window_before = 0;  ///< window of the preceding call, the last one of what ends here
  IterationLabel label = IterationLabel::kIteration;
  bool followed = true;  ///< false: from here on, iterations are unknown
  /// What ends here is a whole iteration that ran without CUPTI, as did what came before it.
  bool unprofiled_before = false;
  /// Iterations are recognised by different signs from here on: earlier ones may have been parts of an
  /// iteration.
  bool anew = false;
  /// Units of work reported for what ends here; empty if none were reported, or not all are known.
  std::optional<double> units_before = {};
};

}  // namespace inject
