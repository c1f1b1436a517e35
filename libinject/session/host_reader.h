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

/// How much processor time readings may take: a thousandth of a processor, and kSaved at once.
class ReadingBudget {
 public:
  static constexpr std::uint64_t kShare = 1'000;
  static constexpr Nanoseconds kSaved = 20 * kMillisecond;

  /// Readings took that much until `time`.
  void spend(Nanoseconds time, Nanoseconds took);
  /// Whether a reading that costs `cost` may be taken: at an edge, while anything is left; in between, while
  /// half of what can be saved stays for the edges.
  bool allows_edge(Nanoseconds time, Nanoseconds cost);
  bool allows_more(Nanoseconds time, Nanoseconds cost);
  /// When allows_more() will say yes, at the earliest.
  Nanoseconds next(Nanoseconds time, Nanoseconds cost);

 private:
  void earn(Nanoseconds time);

  Nanoseconds earned_until_ = 0;
  std::int64_t left_ = static_cast<std::int64_t>(kSaved);
};

/// Reads how much of the host the process's threads and children have used: at the windows' edges, and now
/// and then in between. On our own thread, which exists while windows come and go; no program thread
/// waits for it, and what it costs is bounded (ReadingBudget).
class HostReader {
 public:
  static constexpr std::size_t kMaxWindows = 1'000;  ///< that are kept

  // Of the thread that opens or closes the window. No allocation, no waiting.
  void window_begins(std::uint32_t window, Nanoseconds time) noexcept;
  void window_ends(std::uint32_t window, Nanoseconds time) noexcept;
  /// Called on our own thread: starts the reading thread if it is needed, or soon will be.
  void tend(bool window_expected) noexcept;
  /// Waits until the edges so far have been read, `most` at most.
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
  void account() INJECT_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable changed_;
  std::array<Edge, kMaxEdges> edges_ INJECT_GUARDED_BY(mutex_);
  std::size_t pending_ INJECT_GUARDED_BY(mutex_) = 0;
  bool running_ INJECT_GUARDED_BY(mutex_) = false;
  bool busy_ INJECT_GUARDED_BY(mutex_) = false;  // the edges taken are being read
  bool stopped_ INJECT_GUARDED_BY(mutex_) = false;
  bool unusable_ INJECT_GUARDED_BY(mutex_) = false;
  std::vector<HostWindow> windows_ INJECT_GUARDED_BY(mutex_);
  HostReadings readings_ INJECT_GUARDED_BY(mutex_);
  std::uint64_t begun_ INJECT_GUARDED_BY(mutex_) = 0;  // windows
  // The window that is open, as far as edges have been taken; 0: none.
  std::uint32_t open_ INJECT_GUARDED_BY(mutex_) = 0;
  Nanoseconds opened_ INJECT_GUARDED_BY(mutex_) = 0;
  Nanoseconds late_ INJECT_GUARDED_BY(mutex_) = 0;  // its first reading
  std::optional<HostTally::Mark> mark_ INJECT_GUARDED_BY(mutex_);
  ReadingBudget budget_ INJECT_GUARDED_BY(mutex_);
  Nanoseconds last_all_ INJECT_GUARDED_BY(mutex_) = 0;
  Nanoseconds last_look_ INJECT_GUARDED_BY(mutex_) = 0;
  Nanoseconds all_cost_ INJECT_GUARDED_BY(mutex_) = kMillisecond;
  Nanoseconds look_cost_ INJECT_GUARDED_BY(mutex_) = 50'000;
  Nanoseconds accounted_ INJECT_GUARDED_BY(mutex_) = 0;  // of the thread's processor time
  std::uint64_t jitter_ INJECT_GUARDED_BY(mutex_) = 1;

  // The reading thread's alone.
  HostSource source_;
  HostTally tally_;
  HostReading reading_;
  std::uint64_t affinity_ = 0;
  std::uint64_t opened_affinity_ = 0;  // as the window opened
  std::optional<double> quota_;
};

}  // namespace inject
