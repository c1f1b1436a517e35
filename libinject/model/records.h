// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the host side of a run writes into the ring: plain data of one cache line each, without pointers, with
// names by id, so that another process can read a ring after its writer has died.
#pragma once

#include <cstdint>
#include <type_traits>

#include "libinject/base/time.h"

namespace inject {

/// A hooked function (model/functions.h), or, with kDriverFunction set, a CUPTI driver callback id.
using FunctionId = std::uint16_t;
inline constexpr FunctionId kNoFunction = 0;
inline constexpr FunctionId kDriverFunction = 0x8000;

/// Up to four nested calls, the outermost in the lowest 16 bits; deeper nesting keeps the three outermost
/// calls and the innermost one.
using CallChain = std::uint64_t;

inline constexpr FunctionId chain_at(CallChain chain, unsigned level) {
  return static_cast<FunctionId>(chain >> (16u * level));
}

/// Number of calls in the chain, 0 … 4.
inline constexpr unsigned chain_depth(CallChain chain) {
  unsigned depth = 0;
  while (depth < 4 && chain_at(chain, depth) != kNoFunction) ++depth;
  return depth;
}

/// `chain` with `function` nested inside it.
inline constexpr CallChain chain_push(CallChain chain, FunctionId function) {
  unsigned level = chain_depth(chain);
  if (level == 4) {
    level = 3;
    chain &= 0x0000'FFFF'FFFF'FFFFu;
  }
  return chain | (static_cast<CallChain>(function) << (16u * level));
}

enum class RecordKind : std::uint8_t {
  kNone = 0,
  kCall = 1,
  kRange = 2,
  kSign = 3,
  kProcessorTime = 4,
  kShortCalls = 5,
  kFetch = 6
};
inline constexpr unsigned kRecordKinds = 4;

/// Index of a record kind in separate counts: calls, ranges, signs, processor times. Short calls are counted
/// as calls, and fetches with processor times: both describe what a thread did between its calls.
inline constexpr unsigned kind_index(RecordKind kind) {
  if (kind == RecordKind::kFetch) return kind_index(RecordKind::kProcessorTime);
  return kind == RecordKind::kNone || kind == RecordKind::kShortCalls ? 0 : static_cast<unsigned>(kind) - 1;
}

/// One API call, as seen by a hook or by a driver callback. `correlation` is the CUPTI correlation id of the
/// device work that the call submitted, 0 if it submitted none. A hooked runtime call and the driver launch
/// inside it are one record; a driver launch inside a library call (which carries its own runtime) is a
/// record of its own whose chain names the library call.
struct alignas(64) CallRecord {
  RecordKind kind = RecordKind::kCall;
  std::uint8_t flags = 0;
  FunctionId function = kNoFunction;
  std::uint32_t correlation = 0;
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  CallChain chain = 0;       ///< the hooked calls around this one, excluding itself
  std::uint64_t stream = 0;  ///< cudaStream_t / CUstream value, 0 where unknown or default; in a window that
                             ///< is_naming(), the launch's OperatorCall (model/code_place.h), packed
  std::uint32_t owner = 0;   ///< `call` of the library call around this one that has its work: the one that
                             ///< `shape` is of, else the outermost one; 0 if none
  std::uint32_t call = 0;    ///< number of this call on its thread
  std::uint32_t range =
      0;  ///< NVTX context: node of the range tree (record/range_tree.h), 0 if no range is open; in a
          ///< window that is_naming(), the launch's place in the program (record/code_places.h)
  std::uint32_t window = 0;      ///< number of the window the call began in, 0 if none was open
  std::uint32_t shape = 0;       ///< in Core::shapes: what the outermost call computes, of this one and those
                                 ///< around it, whose arguments are read; 0 if there is none
  std::int16_t status = 0;       ///< the API's own status code; with kCallGraph and status 0, a number that
                                 ///< distinguishes graphs (record/captured_graphs.h)
  std::uint16_t generation = 0;  ///< counts CUPTI attachments: correlation ids are unique within one
};

/// CallRecord::flags
enum CallFlags : std::uint8_t {
  kCallCaptured = 1,   ///< the launch was captured into a graph: no device work follows
  kCallOwnsShape = 2,  ///< `shape` is this call's own
  kCallShared = 4,     ///< one operand is the same as in the thread's previous call, which has the same shape
  kCallNoWork = 8,     ///< its sizes are 0: no device work follows
  kCallGraph = 16,     ///< a graph was launched successfully: whether work follows depends on its nodes
};

/// A call of the runtime that is_bookkeeping() and shorter than this is part of its thread's computing:
/// frameworks make ten of them per launch. Unless it is a thread's first in a window, or begins
/// kProcessorTimeApart after the last call that was not, only its duration is kept.
inline constexpr Nanoseconds kShortCall = kMicrosecond;

/// Short calls of one thread in one window, in order. The thread appends to it until it has another record to
/// write. `count` is set when it is complete; until then Block::published has the number of calls.
struct alignas(64) ShortCallsRecord {
  struct Call {
    FunctionId function;
    std::uint16_t duration;  ///< ns
  };
  static constexpr std::uint32_t kMost = 14;

  RecordKind kind = RecordKind::kShortCalls;
  std::uint8_t count = 0;
  std::uint16_t reserved = 0;
  std::uint32_t window = 0;
  Call calls[kMost];
};

enum class RangeEdge : std::uint8_t { kPush = 1, kPop = 2, kStart = 3, kEnd = 4 };

/// An NVTX range opened or closed while a window was open. `node` is the range's own node in the range tree.
/// A start/end range has a number, and may end on a thread other than its owner, which started it.
struct alignas(64) RangeRecord {
  RecordKind kind = RecordKind::kRange;
  RangeEdge edge = RangeEdge::kPush;
  std::uint16_t reserved = 0;
  std::uint32_t node = 0;
  Nanoseconds time = 0;
  std::uint32_t window = 0;
  std::uint32_t serial = 0;
  std::uint32_t owner = 0;
  std::uint32_t reserved2[9] = {};
};

/// Between two calls, or in one, a thread may have computed or waited: from this duration on, its CPU time is
/// queried.
inline constexpr Nanoseconds kProcessorTimeApart = 100 * kMicrosecond;

/// CPU time used by a thread until some time in an open window (record/processor_time.h).
struct alignas(64) ProcessorTimeRecord {
  RecordKind kind = RecordKind::kProcessorTime;
  std::uint8_t reserved[3] = {};
  std::uint32_t window = 0;
  Nanoseconds time = 0;
  Nanoseconds processor = 0;
  std::uint64_t waits = 0;  ///< voluntary context switches until then
  std::uint32_t reserved2[8] = {};
};

/// What a thread that requests a batch from a PyTorch DataLoader spends its time on.
enum class FetchKind : std::uint8_t {
  kWaiting,     ///< waiting for the loader's worker processes
  kProcessing,  ///< making the batch itself, as there are no workers
};
inline constexpr std::size_t kFetchKinds = 2;

/// Whether a fetch's thread is known to be one that trains.
enum class FetchThread : std::uint8_t {
  kAny,    ///< no thread has made an optimizer step so far
  kSteps,  ///< this one has
  kOther,  ///< others have
};

/// A fetch from a DataLoader that began in an open window (`end` is 0 then) or ended in one.
struct alignas(64) FetchRecord {
  RecordKind kind = RecordKind::kFetch;
  FetchKind fetch = FetchKind::kWaiting;
  FetchThread by = FetchThread::kAny;
  std::uint8_t reserved = 0;
  std::uint32_t window = 0;
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  std::uint32_t reserved2[10] = {};
};

static_assert(sizeof(FetchRecord) == 64 && std::is_trivially_copyable_v<FetchRecord>);
static_assert(sizeof(ShortCallsRecord) == 64 && std::is_trivially_copyable_v<ShortCallsRecord>);
static_assert(sizeof(CallRecord) == 64 && sizeof(RangeRecord) == 64 && sizeof(ProcessorTimeRecord) == 64);
static_assert(std::is_trivially_copyable_v<CallRecord> && std::is_trivially_copyable_v<RangeRecord> &&
              std::is_trivially_copyable_v<ProcessorTimeRecord>);

}  // namespace inject
