// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the search for training iterations sees of a program: its launches, copies and synchronizations in
// order, each a sign of a few hashes. No arguments, no data.
#pragma once

#include <cstdint>

#include "libinject/base/mapping.h"
#include "libinject/model/records.h"

namespace inject {

enum class SignKind : std::uint8_t {
  kKernel = 0,
  kGraph,  ///< one launch of a CUDA graph
  kCopyToDevice,
  kCopyToHost,
  kCopy,  ///< any other direction, or one that the call does not specify
  kMemset,
  kSync,
  kCall,      ///< a library call (cuBLAS, cuDNN, NCCL) whose launches bypass our hooks
  kStep,      ///< an optimizer's step has ended, as reported by the program's framework (capture/torch)
  kMark,      ///< an NVTX mark: for readers of the recording, not used by the search
  kName,      ///< the name of `function`; not an event
  kBoundary,  ///< the watch (record/iteration_watch.h) fired here
  kUnits,     ///< how many units of work follow; not an event
};

/// True if the sign is of something that computes.
constexpr bool is_work(SignKind kind) {
  return kind == SignKind::kKernel || kind == SignKind::kGraph || kind == SignKind::kCall;
}

/// True if the sign is of something that the program does; the others describe what follows.
constexpr bool is_event(SignKind kind) {
  return kind != SignKind::kMark && kind != SignKind::kName && kind != SignKind::kBoundary &&
         kind != SignKind::kUnits;
}

/// True if the sign gives a GPU something to do with which an iteration may begin: fetching results belongs
/// to what came before.
constexpr bool may_begin(SignKind kind) {
  return is_work(kind) || kind == SignKind::kCopyToDevice || kind == SignKind::kCopy ||
         kind == SignKind::kMemset;
}

/// How near an iteration is to its end, by the marks of a lock (record/iteration_watch.h).
enum class Anchored : std::uint8_t {
  kNo,
  kBeforeStep,  ///< its optimizer's last step is still to come, unless it is skipped: no event inside the
                ///< step begins the next iteration
  kBegun,       ///< the next iteration has begun: the step, if it still comes, belongs to the previous one
  kYes,
};

constexpr bool is_near_end(Anchored anchored) {
  return anchored == Anchored::kBeforeStep || anchored == Anchored::kYes;
}
/// The state after an event that is the anchor, or the other one.
constexpr Anchored after_anchor(Anchored before) {
  return before == Anchored::kBegun ? Anchored::kNo : Anchored::kYes;
}
constexpr Anchored after_other_anchor(Anchored before) {
  return before == Anchored::kYes ? before : Anchored::kBeforeStep;
}
/// The state after the beginning of an iteration, for which may_follow() is true.
constexpr Anchored after_begin(Anchored before) {
  return before == Anchored::kBeforeStep ? Anchored::kBegun : Anchored::kNo;
}
constexpr bool may_follow(Anchored before, bool in_step) {
  return before == Anchored::kYes || (before == Anchored::kBeforeStep && !in_step);
}

/// One event. `function` identifies what was called (the kernel, or the API with its direction), `shape`
/// identifies it together with its launch shape or size. Equal values mean equal things within one process.
/// For a step, `function` is the optimizer's class, `shape` the class together with what its thread launched
/// in the step, and `stream` the number of those signs.
struct LaunchSign {
  SignKind kind = SignKind::kKernel;
  std::uint32_t thread = 0;
  std::uint64_t function = 0;
  std::uint64_t shape = 0;
  std::uint64_t stream = 0;
  Nanoseconds time = 0;
  bool timed = true;            ///< has its own time, rather than one between its neighbours'
  bool in_step = false;         ///< inside an optimizer step that the program reports
  bool captured = false;        ///< kStep: into a CUDA graph
  std::uint32_t optimizer = 0;  ///< kStep: identifies the object, as a hash of its address; 0: not known
};

/// The mark of that optimizer's steps (record/iteration_watch.h).
constexpr std::uint64_t optimizer_mark(std::uint32_t optimizer) {
  return hash_mix((std::uint64_t{optimizer} << 32 | 1) * kHashSeed);
}

/// Valid numbers of units of work, such that everything computed from them is finite, and not too small to be
/// shown.
constexpr bool is_units(double units) {
  return units == 0 || (units >= 1e-12 && units <= 1e12);
}

/// A LaunchSign on its way through its thread's queue.
struct alignas(64) SignRecord {
  RecordKind kind = RecordKind::kSign;
  SignKind sign = SignKind::kKernel;
  bool in_step = false;
  bool captured = false;
  /// kName and kMark: id of the text; kStep: LaunchSign::optimizer; kBoundary: the watch's count, low 32
  /// bits; kUnits: 1 if others were reported while no signs were emitted, and so before the first one after
  /// that.
  std::uint32_t name = 0;
  std::uint64_t ticks = 0;     ///< base/ticks.h; 0: not read, between the neighbours' times
  std::uint64_t function = 0;  ///< kUnits: the number, as the bits of a double
  std::uint64_t shape = 0;     ///< kBoundary: its time; kUnits: IterationWatch::dropped_units just before it
  std::uint64_t stream = 0;    ///< kUnits: IterationWatch::dropped_units just after it
  Nanoseconds begin = 0;       ///< when the surrounding hooked call began; if none, use `ticks`
  std::uint64_t sequence = 0;  ///< its position among the signs of all threads; a boundary has its sign's
};

static_assert(sizeof(SignRecord) == 64 && std::is_trivially_copyable_v<SignRecord>);

}  // namespace inject
