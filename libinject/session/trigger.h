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

/// What a trigger requests.
enum class TriggerAction : std::uint8_t {
  kNone,
  kAttach,  ///< attach CUPTI ahead of the next window
  kOpen,
  kClose,
  kReopen,  ///< close the open window and open another one
  kWait,    ///< wait for the window that is being opened: the event belongs to it
};

/// The state of the session, as triggers see it.
struct TriggerState {
  Nanoseconds time = 0;          ///< since CUDA's initialisation, like all times here
  std::uint32_t window = 0;      ///< the open one, or else the pending one; 0 if there is none
  bool pending = false;          ///< it is pending
  Nanoseconds window_begin = 0;  ///< of the open window
  std::uint32_t next = 1;        ///< the number of the next window
  /// Of the window that is open or pending, 0 if there is none. If a window is ended before it begins, its
  /// number is given to another window; request numbers are not reused.
  std::uint64_t request = 0;
  std::uint64_t next_request = 1;  ///< the next request
  Nanoseconds lead = 0;            ///< how long before a window CUPTI is attached
  bool collecting = false;         ///< CUPTI is still attached for a window that has ended
  bool iterations_found = false;
};

/// When windows open and close: one class for each kind of INJECT_WINDOW. It only decides: no clock, no lock
/// (the caller has the session's), no CUPTI.
class Trigger {
 public:
  static constexpr Nanoseconds kNever = ~Nanoseconds{0};

  virtual ~Trigger() = default;

  // Events of the program.
  virtual TriggerAction profiler_start(const TriggerState& /*state*/) { return TriggerAction::kNone; }
  virtual TriggerAction profiler_stop(const TriggerState& /*state*/) { return TriggerAction::kNone; }
  /// `open` of the watched NVTX ranges are now open.
  virtual TriggerAction ranges_changed(std::uint32_t /*open*/, const TriggerState& /*state*/) {
    return TriggerAction::kNone;
  }
  /// The request for the window that ranges_changed() wanted; 0: it could not be opened, or has ended.
  virtual void requested(std::uint64_t /*request*/) {}
  virtual TriggerAction signalled(const TriggerState& /*state*/) { return TriggerAction::kNone; }
  /// From here on, the program or injectctl opens windows itself.
  virtual void take_over() {}
  /// True if it has taken over from `auto`.
  virtual bool program_drives() const { return false; }

  // Time: evaluated on our own thread, at next_wake() at the latest.
  virtual TriggerAction evaluate(const TriggerState& /*state*/) { return TriggerAction::kNone; }
  /// The window that evaluate() wanted is open; 0: the program ended it before it began.
  virtual void opened(std::uint32_t /*window*/) {}
  virtual Nanoseconds next_wake(const TriggerState& /*state*/) const { return kNever; }

  /// True if no further window will open. `quota_left`: xN allows one.
  virtual bool exhausted(bool quota_left) const { return !quota_left; }
  /// True if xN limits what this trigger opens; a schedule without /EVERY has only one window anyway.
  virtual bool has_quota() const { return true; }
  /// True if CUPTI, or a hook, has to report calls of the profiler API.
  virtual bool wants_profiler_calls() const { return false; }
  /// The part that follows iterations; null if windows do not depend on them.
  virtual IterationTrigger* iterations() { return nullptr; }
  /// True if iterations are searched for, so that a window can open at one.
  virtual bool searches_iterations() const { return false; }
  /// The name of the window that evaluate() wants.
  virtual std::string reason() const { return {}; }
  /// Continues "… before a window opened".
  virtual std::string why_none(const TriggerState& /*state*/) const { return {}; }
};

std::unique_ptr<Trigger> make_trigger(const WindowSpec& spec);

}  // namespace inject
