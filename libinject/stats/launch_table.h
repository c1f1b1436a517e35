// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "libinject/model/events.h"
#include "libinject/stats/outside_launches.h"

namespace inject {

/// Launches by (generation, correlation id), for the device records that come later. Keeps the most recent
/// launches, 4,096 at least: grows while its oldest launch has had no record yet, up to `most` (then the
/// oldest is given up, and counted if it was made in a window); otherwise the oldest makes room. A graph
/// launch has many records, so a launch stays after its first one. Of launches outside of all windows it
/// keeps that they were made: a program that goes on launching at full speed while a window's records are
/// still to come must not push that window's launches out. One thread.
///
/// Of a graph it is not known what nodes it has: none, or only the host's and events, and no record comes of
/// its launches. One is taken for such a graph if no launch of it has had a record so far, and the records of
/// later launches have come, or nothing is on its way any more.
class LaunchTable {
 public:
  explicit LaunchTable(std::size_t most);

  /// A launch was seen. `expects_work`: a device record is to come (the call succeeded, was not captured and
  /// has sizes other than 0). `graph`: it was a graph's, which this tells apart from others.
  void add(std::uint16_t generation, std::uint32_t correlation, const Attribution& launch, bool expects_work,
           std::optional<std::uint16_t> graph = {});

  struct Found {
    const Attribution* launch = nullptr;  ///< nullptr: not seen (yet)
    /// The launch's previous record had the same identity; not told of launches outside of all windows.
    bool repeated = false;
  };
  /// The launch of a device record, marked as arrived. `identity` tells the records of one launch apart, 0 is
  /// none's.
  Found find(std::uint16_t generation, std::uint32_t correlation, std::uint64_t identity);

  /// Launches inside a window (`window != 0`) that expect work, and whose record has not come. Not those of
  /// graphs of which none has come either while later launches had theirs, a second later and more.
  std::size_t waiting() const;
  /// The first window of those that launches wait in; 0 if none does.
  std::uint32_t first_waiting_window() const;
  /// When the first of them began; nothing if none waits.
  std::optional<Nanoseconds> first_waiting_begin() const;
  /// Forgets what still waits: its records are not coming any more. Returns how many launches that were in
  /// each window, with those given up since the last time because the table was full; of the oldest of more
  /// than 4,096 windows together, as window 0's. `delivered`: all records there were have come.
  std::map<std::uint32_t, std::uint64_t> give_up_waiting(bool delivered = false);
  /// Launches of graphs that were given up and are not among those: they seem to have no work.
  std::uint64_t graphs_without_work() const { return graphs_without_work_; }
  /// Launches inside a window that were given up because the table was full.
  std::size_t given_up() const { return given_up_; }

 private:
  struct Entry {
    Attribution launch;
    std::uint64_t key = 0;
    std::uint64_t last_record = 0;  // identity
    bool waits = false;             // a record is to come
    bool is_graph = false;
    std::uint16_t graph = 0;
  };

  static std::uint64_t key_of(std::uint16_t generation, std::uint32_t correlation) {
    return static_cast<std::uint64_t>(generation) << 32 | correlation;
  }
  void grow();
  void forget(const Entry& entry, bool delivered, std::map<std::uint32_t, std::uint64_t>& missing);
  bool may_be_empty(const Entry& entry) const { return entry.is_graph && !graphs_with_work_[entry.graph]; }
  bool passed_over(const Entry& entry) const;
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
  Nanoseconds latest_arrived_ = 0;  // when the latest launch began that has a record
  std::uint64_t graphs_without_work_ = 0;
  std::size_t given_up_ = 0;
  std::map<std::uint32_t, std::uint64_t> unreported_;  // given up, by window
};

}  // namespace inject
