// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/iteration_watch.h"

#include <array>
#include <bit>

#include "libinject/base/caller_state.h"
#include "libinject/base/mapping.h"
#include "libinject/base/ticks.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"
#include "libinject/record/thread_registry.h"

namespace inject {

constinit IterationWatch iteration_watch;

namespace {

// Functions whose names have been emitted. Once this is full, further ones have no names.
constexpr std::size_t kMaxFunctions = 8192;
constexpr std::size_t kProbes = 16;
constinit std::array<std::atomic<std::uint64_t>, kMaxFunctions> named{};

// At most this many consecutive signs of a thread have no time of their own. Reading the CPU's counter takes
// 16 ns on a Xeon of 2023, and 68 in a program that has other work to do, because nothing can be reordered
// across it (measured); a sequence number takes 5 to 9.
constexpr std::uint32_t kMaxUntimed = 15;
alignas(64) constinit std::atomic<std::uint64_t> next_sequence{1};

// Reported with the next kUnits.
constinit std::array<std::atomic<bool>, kUnitSources> units_unheard{};

std::uint64_t take_sequence() noexcept {
  return next_sequence.fetch_add(1, std::memory_order_relaxed);
}

/// Calls that may block: the sign after them gets its own time.
bool may_wait(SignKind kind) noexcept {
  return kind == SignKind::kSync || kind == SignKind::kCopyToHost || kind == SignKind::kCopyToDevice ||
         kind == SignKind::kCopy;
}

struct Boundary {
  std::uint64_t count = 0;  // 0: another thread won
  Nanoseconds time = 0;
};

Boundary begin_iteration(ThreadState& thread, Anchored anchored, std::uint64_t sequence,
                         Nanoseconds begin) noexcept {
  // If several threads see the begin at once, one wins; a step that ends in between changes nothing.
  while (!iteration_watch.anchored.compare_exchange_weak(anchored, after_begin(anchored),
                                                         std::memory_order_acq_rel)) {
    if (!may_follow(anchored, thread.step != nullptr)) return {};
  }
  const std::uint64_t count = iteration_watch.count.fetch_add(1, std::memory_order_acq_rel) + 1;
  SignRecord record;
  record.sign = SignKind::kBoundary;
  record.sequence = sequence;
  record.name = static_cast<std::uint32_t>(count);
  const Nanoseconds time = begin != 0 ? begin : now();
  record.shape = time;
  ThreadRegistry::push(thread, record);
  return {count, time};
}

void come_to(Anchored (*next)(Anchored)) noexcept {
  Anchored before = iteration_watch.anchored.load(std::memory_order_relaxed);
  while (!iteration_watch.anchored.compare_exchange_weak(before, next(before), std::memory_order_acq_rel)) {
  }
}

void push_text(ThreadState& thread, SignKind kind, std::uint64_t function, std::uint32_t name) noexcept {
  SignRecord record;
  record.sign = kind;
  record.sequence = take_sequence();
  record.ticks = ticks();
  record.function = function;
  record.name = name;
  ThreadRegistry::push(thread, record);
}

}  // namespace

void emit_sign(SignKind kind, std::uint64_t function, std::uint64_t shape, std::uint64_t stream,
               bool in_callback, Nanoseconds begin) noexcept {
  if (ThreadRegistry::this_thread_is_ignored()) return;
  ThreadState* thread = ThreadRegistry::current_if_any();
  if (thread == nullptr) {
    thread = ThreadRegistry::current();
    if (thread == nullptr) return;
  }
  const std::uint64_t sequence = take_sequence();
  const std::uint32_t pass = iteration_watch.pass.load(std::memory_order_relaxed);
  // In a window, the tables need exact times, and launches cost more anyway.
  const bool exact = in_callback || iteration_watch.recording.load(std::memory_order_relaxed) ||
                     (control_word.load(std::memory_order_relaxed) & kControlRecord) != 0;
  std::uint64_t at = 0;
  if (begin == 0 && (exact || thread->untimed_signs == 0 || thread->sign_pass != pass)) {
    at = ticks();
    thread->untimed_signs = kMaxUntimed;
    thread->sign_pass = pass;
  } else {
    thread->untimed_signs -= thread->untimed_signs != 0;
  }
  if (may_wait(kind)) thread->untimed_signs = 0;
  if (kind != SignKind::kStep) {
    thread->sign_sum += shape;
    ++thread->sign_count;
  }
  Boundary boundary;
  if (iteration_watch.armed.load(std::memory_order_acquire)) {
    const auto is = [&](const std::atomic<std::uint64_t>& mark) {
      const std::uint64_t value = mark.load(std::memory_order_relaxed);
      return value == function || value == shape || (value == IterationMarks::kAnyWork && may_begin(kind)) ||
             (kind == SignKind::kStep && thread->step_optimizer != 0 &&
              value == optimizer_mark(thread->step_optimizer));
    };
    const Anchored anchored = iteration_watch.anchored.load(std::memory_order_relaxed);
    // In its first step, an optimizer creates its state, with kernels that the model uses as well.
    if (may_follow(anchored, thread->step != nullptr) &&
        (is(iteration_watch.begin) || is(iteration_watch.other_begin))) {
      boundary = begin_iteration(*thread, anchored, sequence, begin);
    }
    if (is(iteration_watch.anchor)) {
      come_to(after_anchor);
    } else if (is(iteration_watch.other_anchor)) {
      come_to(after_other_anchor);
    }
  }
  ThreadRegistry::emplace<SignRecord>(*thread, RecordKind::kSign, [&](SignRecord& record) {
    record.sign = kind;
    record.in_step = thread->step != nullptr;
    record.captured = kind == SignKind::kStep && thread->captures != 0;
    record.name = kind == SignKind::kStep ? thread->step_optimizer : 0;
    record.sequence = sequence;
    record.ticks = at;
    record.function = function;
    record.shape = shape;
    record.stream = stream;
    record.begin = begin;
  });
  // After both records: the call may take long, and the two belong together.
  if (boundary.count != 0 && boundary.count >= iteration_watch.next_stop.load(std::memory_order_acquire)) {
    const CallerState caller;
    if (const auto on_stop = iteration_watch.on_stop.load(std::memory_order_acquire); on_stop != nullptr)
      on_stop(boundary.count, boundary.time, in_callback);
  }
}

void note_capture(bool begins) noexcept {
  const CallerState caller;
  if (!begins) {
    // Also if the search has ended in between. The capture may have begun before it, or on another thread.
    ThreadState* thread = ThreadRegistry::current_if_any();
    if (thread != nullptr && thread->captures != 0) --thread->captures;
    return;
  }
  if (iteration_watch.source.load(std::memory_order_acquire) == SignSource::kNone) return;
  if (ThreadState* thread = ThreadRegistry::current(); thread != nullptr) ++thread->captures;
}

SignPass begin_sign_pass() noexcept {
  iteration_watch.pass.fetch_add(1, std::memory_order_relaxed);
  const Nanoseconds time = now();
  return {next_sequence.load(std::memory_order_acquire), time};
}

bool function_is_new(std::uint64_t function) noexcept {
  const std::size_t home = hash_mix(function) % kMaxFunctions;
  for (std::size_t i = 0; i < kProbes; ++i) {
    std::atomic<std::uint64_t>& slot = named[(home + i) % kMaxFunctions];
    std::uint64_t there = slot.load(std::memory_order_relaxed);
    if (there == function) return false;
    if (there == 0) {
      if (slot.compare_exchange_strong(there, function, std::memory_order_relaxed)) return true;
      if (there == function) return false;
    }
  }
  return false;
}

// Leaves a gap in other functions' probe sequences: at worst, some names are emitted once more.
void function_stays_new(std::uint64_t function) noexcept {
  const std::size_t home = hash_mix(function) % kMaxFunctions;
  for (std::size_t i = 0; i < kProbes; ++i) {
    std::uint64_t there = function;
    std::atomic<std::uint64_t>& slot = named[(home + i) % kMaxFunctions];
    if (slot.compare_exchange_strong(there, 0, std::memory_order_relaxed)) return;
  }
}

void forget_functions() noexcept {
  for (std::atomic<std::uint64_t>& slot : named) slot.store(0, std::memory_order_relaxed);
}

void emit_name(std::uint64_t function, const char* name) noexcept {
  Core* core = Core::get_if_any();
  ThreadState* thread = ThreadRegistry::current();
  if (core == nullptr || thread == nullptr || name == nullptr) return;
  push_text(*thread, SignKind::kName, function, core->mangled.intern(name));
}

void emit_units(double units, UnitSource by) noexcept {
  if (ThreadRegistry::this_thread_is_ignored()) return;
  std::atomic<bool>& unheard = units_unheard[static_cast<std::size_t>(by)];
  if (iteration_watch.source.load(std::memory_order_acquire) == SignSource::kNone) {
    unheard.store(true, std::memory_order_relaxed);
    return;
  }
  ThreadState* thread = ThreadRegistry::current();
  SignRecord record;
  record.sign = SignKind::kUnits;
  record.name = unheard.exchange(false, std::memory_order_relaxed) ? 1 : 0;
  // In this order, across all threads.
  record.shape = iteration_watch.dropped_units.load();
  record.sequence = next_sequence.fetch_add(1);
  record.stream = iteration_watch.dropped_units.load();
  record.ticks = ticks();
  record.function = std::bit_cast<std::uint64_t>(units);
  if (thread != nullptr && ThreadRegistry::push(*thread, record)) return;
  if (record.name != 0) unheard.store(true, std::memory_order_relaxed);
  iteration_watch.dropped_units.fetch_add(1);
}

void emit_mark(std::uint32_t name) noexcept {
  if (ThreadState* thread = ThreadRegistry::current(); thread != nullptr)
    push_text(*thread, SignKind::kMark, 0, name);
}

}  // namespace inject
