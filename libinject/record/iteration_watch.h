// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// How hooks and callbacks recognise where a training iteration begins, once the search has found its marks.
#pragma once

#include <atomic>
#include <cstdint>

#include "libinject/model/events.h"
#include "libinject/model/records.h"
#include "libinject/record/launch_sign.h"

namespace inject {

/// What marks an iteration: `anchor` occurs once in each, near its end; the first `begin` (or `other_begin`)
/// after it is the first event of the next one. Each is a LaunchSign's `function` or `shape`.
struct IterationMarks {
  /// A value for `begin`: anything that may begin an iteration (may_begin()).
  static constexpr std::uint64_t kAnyWork = ~std::uint64_t{0};

  std::uint64_t anchor = 0;
  std::uint64_t begin = 0;
  std::uint64_t other_begin = 0;
  /// If `anchor` is the optimizer's step, which may be skipped: what comes shortly before it. 0: nothing.
  std::uint64_t other_anchor = 0;

  bool operator==(const IterationMarks&) const = default;
};

/// Which side emits signs.
enum class SignSource : std::uint8_t { kNone, kHooks, kCallbacks };

struct IterationWatch {
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  std::atomic<SignSource> source{SignSource::kNone};
  /// Counts the passes of the search.
  std::atomic<std::uint32_t> pass{0};
  /// Marks and names are kept for a recording.
  std::atomic<bool> recording{false};
  /// The program's framework reports every optimizer step (SignKind::kStep).
  std::atomic<bool> steps_told{false};
  /// Steps were missed for a while, because the program had cleared the callback.
  std::atomic<bool> steps_missed{false};
  /// Number of kUnits for which there was no room. Their neighbours show between which signs they were.
  std::atomic<std::uint32_t> dropped_units{0};
  /// Some thread has stepped an optimizer (ThreadState::has_stepped).
  std::atomic<bool> stepped{false};

  std::atomic<bool> armed{false};
  std::atomic<std::uint64_t> anchor{0};
  std::atomic<std::uint64_t> begin{0};
  std::atomic<std::uint64_t> other_begin{0};
  std::atomic<std::uint64_t> other_anchor{0};
  std::atomic<Anchored> anchored{Anchored::kNo};
  /// Boundaries seen since the watch was armed for the first time.
  std::atomic<std::uint64_t> count{0};
  /// The next value of `count` at which `on_stop` is called, kNever if none.
  std::atomic<std::uint64_t> next_stop{kNever};
  /// Called on the thread that has reached this boundary, before its call is made.
  using OnStop = void (*)(std::uint64_t count, Nanoseconds time, bool in_callback) noexcept;
  std::atomic<OnStop> on_stop{nullptr};

  void arm(const IterationMarks& marks) noexcept {
    armed.store(false, std::memory_order_release);
    anchor.store(marks.anchor, std::memory_order_relaxed);
    begin.store(marks.begin, std::memory_order_relaxed);
    other_begin.store(marks.other_begin, std::memory_order_relaxed);
    other_anchor.store(marks.other_anchor != 0 ? marks.other_anchor : marks.anchor,
                       std::memory_order_relaxed);
    anchored.store(Anchored::kNo, std::memory_order_relaxed);
    armed.store(true, std::memory_order_release);
  }
};
extern IterationWatch iteration_watch;

/// Sends a sign to the search, from the thread that makes the call and before it is made; first checks
/// whether it begins an iteration. `in_callback`: inside a CUPTI callback; `begin`: when the surrounding
/// hooked call began, 0 if there is none. Does not wait, except at the edges of a window. Preserves errno.
[[gnu::hot]] void emit_sign(SignKind kind, std::uint64_t function, std::uint64_t shape, std::uint64_t stream,
                            bool in_callback, Nanoseconds begin = 0) noexcept;

/// The calling thread begins or has ended the capture of a CUDA graph.
void note_capture(bool begins) noexcept;

/// A pass over the signs: signs emitted after it began have at least this SignRecord::sequence and, unless
/// their hooked call began before it, no earlier time.
struct SignPass {
  std::uint64_t sequence = 0;
  Nanoseconds time = 0;
};
/// Begins a pass; each thread's next sign has its own time.
SignPass begin_sign_pass() noexcept;

/// True once for each function, whose name has then not been emitted yet.
bool function_is_new(std::uint64_t function) noexcept;
/// The name was not available this time: the function counts as new again.
void function_stays_new(std::uint64_t function) noexcept;
/// The search restarts: all names are emitted again.
void forget_functions() noexcept;
void emit_name(std::uint64_t function, const char* name) noexcept;
/// The work that follows, on any thread, has this many units; several such numbers add up. An invalid number
/// (is_units()) makes the number of its iteration unknown. A run has one source; numbers from another one may
/// arrive before the source is known, and are then ignored.
void emit_units(double units, UnitSource by) noexcept;
/// An NVTX range was pushed; used for the recording. `name` is an id in Core::names.
void emit_mark(std::uint32_t name) noexcept;

}  // namespace inject
