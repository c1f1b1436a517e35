// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "libinject/model/events.h"
#include "libinject/stats/outside_launches.h"

namespace inject {

/// Launches by (generation, correlation id), for the device records that come later. Keeps the most recent
/// launches, at least 4,096: it grows while its oldest launch has had no record yet, up to `most` (then the
/// oldest is given up, and counted if it was made in a window); otherwise the oldest is evicted. A graph
/// launch has many records, so a launch stays after its first one. For launches outside all windows, only the
/// fact that they were made is kept: a program that goes on launching at full speed while a window's records
/// are pending must not evict that window's launches. One thread.
///
/// The nodes of a graph are not known. If it has none, or only host and event nodes, its launches produce no
/// records. A graph is assumed to be of this kind if none of its launches has had a record so far, and either
/// the records of later launches have arrived or no records are in flight any more.
class LaunchTable {
 public:
  explicit LaunchTable(std::size_t most);

  /// Adds a launch. `expects_work`: a device record will follow (the call succeeded, was not captured and has
  /// nonzero sizes). `graph`: set for a graph launch; the number distinguishes its graph from others.
  void add(std::uint16_t generation, std::uint32_t correlation, const Attribution& launch, bool expects_work,
           std::optional<std::uint16_t> graph = {});

  struct Found {
    const Attribution* launch = nullptr;  ///< nullptr: not seen (yet)
    /// The launch's previous record had the same identity; always false for launches outside all windows.
    bool repeated = false;
  };
  /// Finds the launch of a device record and marks its record as arrived. `identity` distinguishes the
  /// records of one launch; 0: none.
  Found find(std::uint16_t generation, std::uint32_t correlation, std::uint64_t identity);

  /// Launches inside a window (`window != 0`) that expect work and have no record yet. A launch of a graph
  /// that never had a record does not count once a launch made more than a second later has had its own.
  std::size_t waiting() const;
  /// The first window with waiting launches; 0 if there is none.
  std::uint32_t first_waiting_window() const;
  /// When the first waiting launch began; empty if none waits.
  std::optional<Nanoseconds> first_waiting_begin() const;
  /// Drops all waiting launches: their records will not come any more. Returns how many there were in each
  /// window, including those given up since the last call because the table was full; beyond 4,096 windows,
  /// the oldest are merged as window 0. `delivered`: all existing records have arrived. `tell` is called for
  /// each of these launches; for those given up earlier once per window, with an unknown launch.
  std::map<std::uint32_t, std::uint64_t> give_up_waiting(
      bool delivered = false, const std::function<void(const Attribution& launch)>& tell = {});
  /// Graph launches that were given up but not counted there: their graphs appear to have no work.
  std::uint64_t graphs_without_work() const { return graphs_without_work_; }
  /// Launches inside a window that were given up because the table was full.
  std::size_t given_up() const { return given_up_; }

 private:
  struct Entry {
    Attribution launch;
    std::uint64_t key = 0;
    std::uint64_t last_record = 0;  // identity
    bool waits = false;             // a record is pending
    bool is_graph = false;
    std::uint16_t graph = 0;
  };

  static std::uint64_t key_of(std::uint16_t generation, std::uint32_t correlation) {
    return static_cast<std::uint64_t>(generation) << 32 | correlation;
  }
  void grow();
  bool forget(const Entry& entry, bool delivered, std::map<std::uint32_t, std::uint64_t>& missing);
  bool may_be_empty(const Entry& entry) const { return entry.is_graph && !graphs_with_work_[entry.graph]; }
  bool seems_empty(const Entry& entry) const;
  void index_insert(std::uint32_t position);
  void index_erase(std::uint64_t key, std::uint32_t position);
  std::size_t slot_of(std::uint64_t key) const;

  std::size_t most_;
  OutsideLaunches outside_;
  std::vector<Entry> entries_;        // ring: [first_, first_ + size_)
  std::vector<std::uint32_t> index_;  // open addressing over entries_, position + 1
  std::size_t first_ = 0;
  std::size_t size_ = 0;
  std::size_t waiting_ = 0;
  std::size_t waiting_graphs_ = 0;  // of these
  std::bitset<1u << 16> graphs_with_work_;
  Nanoseconds latest_arrived_ = 0;  // when the latest launch with a record began
  std::uint64_t graphs_without_work_ = 0;
  std::size_t given_up_ = 0;
  std::map<std::uint32_t, std::uint64_t> unreported_;  // given up, by window
};

}  // namespace inject
