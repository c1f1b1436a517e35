// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <optional>
#include <vector>

#include "libinject/base/mutex.h"
#include "libinject/model/host_use.h"
#include "libinject/session/host_source.h"
#include "libinject/session/host_tally.h"

namespace inject {

/// How much processor time readings may take: a thousandth of a CPU, and at most kSaved at once.
class ReadingBudget {
 public:
  static constexpr std::uint64_t kShare = 1'000;
  static constexpr Nanoseconds kSaved = 20 * kMillisecond;

  /// Readings took `took` until `time`.
  void spend(Nanoseconds time, Nanoseconds took);
  /// True if a reading that costs `cost` may be taken: at an edge, if anything is left; in between, if half
  /// of what can be saved stays reserved for the edges.
  bool allows_edge(Nanoseconds time, Nanoseconds cost);
  bool allows_more(Nanoseconds time, Nanoseconds cost);
  /// The earliest time at which allows_more() will return true.
  Nanoseconds next(Nanoseconds time, Nanoseconds cost);

 private:
  void earn(Nanoseconds time);

  Nanoseconds earned_until_ = 0;
  std::int64_t left_ = static_cast<std::int64_t>(kSaved);
};

/// Reads how much of the host the process's threads and children have used: at the windows' edges, and now
/// and then in between. Runs on our own thread, which exists while windows come and go; no program thread
/// waits for it, and its cost is bounded (ReadingBudget).
class HostReader {
 public:
  static constexpr std::size_t kMaxWindows = 1'000;  ///< windows kept

  // Called by the thread that opens or closes the window. No allocation, no waiting.
  void window_begins(std::uint32_t window, Nanoseconds time) noexcept;
  void window_ends(std::uint32_t window, Nanoseconds time) noexcept;
  /// Called on our own thread: starts the reading thread if it is needed now or soon.
  void tend(bool window_expected) noexcept;
  /// Waits until the edges so far have been read, at most `most`.
  void wait(Nanoseconds most) noexcept;
  void stop() noexcept;

  std::vector<HostWindow> windows() const;
  HostReadings readings() const;

 private:
  struct Edge {
    std::uint32_t window = 0;
    Nanoseconds time = 0;
    bool opens = false;
  };
  static constexpr std::size_t kMaxEdges = 64;

  static void* entry(void* reader) noexcept;
  void run();
  void note(Edge edge) noexcept;
  void read_edges(MutexLock& lock) INJECT_NO_THREAD_ANALYSIS;
  void handle(const Edge& edge, bool read) INJECT_REQUIRES(mutex_);
  void read_between(MutexLock& lock) INJECT_NO_THREAD_ANALYSIS;
  bool read_all();
  void look_at_workers();
  bool all_due(Nanoseconds time) const INJECT_REQUIRES(mutex_);
  Nanoseconds next_look(Nanoseconds time) INJECT_REQUIRES(mutex_);
  /// Counts the latest reading.
  void note_reading() INJECT_REQUIRES(mutex_);
  void account() INJECT_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable changed_;
  std::array<Edge, kMaxEdges> edges_ INJECT_GUARDED_BY(mutex_);
  std::size_t pending_ INJECT_GUARDED_BY(mutex_) = 0;
  bool running_ INJECT_GUARDED_BY(mutex_) = false;
  bool busy_ INJECT_GUARDED_BY(mutex_) = false;  // the edges taken over are being read
  bool stopped_ INJECT_GUARDED_BY(mutex_) = false;
  bool unusable_ INJECT_GUARDED_BY(mutex_) = false;
  std::vector<HostWindow> windows_ INJECT_GUARDED_BY(mutex_);
  HostReadings readings_ INJECT_GUARDED_BY(mutex_);
  std::uint64_t begun_ INJECT_GUARDED_BY(mutex_) = 0;  // windows begun
  // The window that is open, as far as edges have been taken over; 0: none.
  std::uint32_t open_ INJECT_GUARDED_BY(mutex_) = 0;
  Nanoseconds opened_ INJECT_GUARDED_BY(mutex_) = 0;
  Nanoseconds late_ INJECT_GUARDED_BY(mutex_) = 0;  // delay of its first reading
  std::optional<HostTally::Mark> mark_ INJECT_GUARDED_BY(mutex_);
  ReadingBudget budget_ INJECT_GUARDED_BY(mutex_);
  Nanoseconds last_all_ INJECT_GUARDED_BY(mutex_) = 0;
  Nanoseconds last_look_ INJECT_GUARDED_BY(mutex_) = 0;
  Nanoseconds all_cost_ INJECT_GUARDED_BY(mutex_) = kMillisecond;
  Nanoseconds look_cost_ INJECT_GUARDED_BY(mutex_) = 50'000;
  Nanoseconds accounted_ INJECT_GUARDED_BY(mutex_) = 0;  // processor time already charged
  std::uint64_t jitter_ INJECT_GUARDED_BY(mutex_) = 1;

  // Used only by the reading thread.
  HostSource source_;
  HostTally tally_;
  HostReading reading_;
};

}  // namespace inject
