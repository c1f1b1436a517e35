// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "libinject/base/time.h"
#include "libinject/config/window_spec.h"

namespace inject {

class IterationTrigger;

/// What a trigger wants done.
enum class TriggerAction : std::uint8_t {
  kNone,
  kAttach,  ///< CUPTI is attached ahead of the window to come
  kOpen,
  kClose,
  kReopen,  ///< the window that is open is closed, and another one opened
  kWait,    ///< wait for the window that is being opened: what has happened belongs to it
};

/// The state of the session, as triggers see it.
struct TriggerState {
  Nanoseconds time = 0;          ///< since CUDA's initialisation, as all times in here
  std::uint32_t window = 0;      ///< the one that is open, or else pending; 0 if none is
  bool pending = false;          ///< it is pending
  Nanoseconds window_begin = 0;  ///< of the one that is open
  std::uint32_t next = 1;        ///< the number that the next window will have
  /// Of the window that is open or pending, 0 if none is. Numbers of windows that have not begun are given
  /// to others when they are ended before that; requests are not.
  std::uint64_t request = 0;
  std::uint64_t next_request = 1;  ///< what the next window that is asked for will have
  Nanoseconds lead = 0;            ///< how long before a window CUPTI is attached
  bool collecting = false;         ///< CUPTI is still attached for a window that has ended
  bool iterations_found = false;
};

/// When windows open and close: one class for each kind of INJECT_WINDOW. Decides and does nothing itself:
/// no clock, no lock (the caller has the session's), no CUPTI.
class Trigger {
 public:
  static constexpr Nanoseconds kNever = ~Nanoseconds{0};

  virtual ~Trigger() = default;

  // What the program does.
  virtual TriggerAction profiler_start(const TriggerState& /*state*/) { return TriggerAction::kNone; }
  virtual TriggerAction profiler_stop(const TriggerState& /*state*/) { return TriggerAction::kNone; }
  /// So many of the NVTX ranges that are watched are open now.
  virtual TriggerAction ranges_changed(std::uint32_t /*open*/, const TriggerState& /*state*/) {
    return TriggerAction::kNone;
  }
  /// The window that ranges_changed() wanted was asked for as this; 0: it could not be had, or has ended.
  virtual void requested(std::uint64_t /*request*/) {}
  virtual TriggerAction signalled(const TriggerState& /*state*/) { return TriggerAction::kNone; }
  /// The program, or injectctl, opens windows itself from here on.
  virtual void take_over() {}
  /// It has taken over from `auto`.
  virtual bool program_drives() const { return false; }

  // Time: evaluated on our own thread, at next_wake() at the latest.
  virtual TriggerAction evaluate(const TriggerState& /*state*/) { return TriggerAction::kNone; }
  /// The window that evaluate() wanted is open; 0: the program has ended it before it began.
  virtual void opened(std::uint32_t /*window*/) {}
  virtual Nanoseconds next_wake(const TriggerState& /*state*/) const { return kNever; }

  /// No window will open any more. `quota_left`: xN allows for one.
  virtual bool exhausted(bool quota_left) const { return !quota_left; }
  /// Whether xN limits what this trigger opens; a schedule without /EVERY keeps to its one window by itself.
  virtual bool has_quota() const { return true; }
  /// Whether CUPTI, or a hook, has to tell of the profiler API's calls.
  virtual bool wants_profiler_calls() const { return false; }
  /// The part that follows iterations; null where windows have nothing to do with them.
  virtual IterationTrigger* iterations() { return nullptr; }
  /// Iterations are looked for, so that a window can open at one.
  virtual bool searches_iterations() const { return false; }
  /// The name of the window that evaluate() wants.
  virtual std::string reason() const { return {}; }
  /// Continues "… before a window opened".
  virtual std::string why_none(const TriggerState& /*state*/) const { return {}; }
};

std::unique_ptr<Trigger> make_trigger(const WindowSpec& spec);

}  // namespace inject
