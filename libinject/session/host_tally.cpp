// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/host_tally.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace inject {

namespace {

constexpr std::array kAllAmounts{
    HostAmount::kProcessorTime, HostAmount::kVoluntarySwitches, HostAmount::kInvoluntarySwitches,
    HostAmount::kMinorFaults,   HostAmount::kMajorFaults,       HostAmount::kRunQueueWait,
    HostAmount::kReadBytes};
static_assert(kAllAmounts.size() == kHostAmounts);
// A worker that was busy for less than one part in this many of its time counts as idle.
constexpr std::uint64_t kActive = 100;
constexpr std::uint64_t kCutTime = 2'000;
constexpr std::uint64_t kCutBytes = 512;

void add_use(HostTally::Sum& sum, const HostUse& more) {
  for (std::size_t i = 0; i < kHostAmounts; ++i) {
    if (more.amounts[i]) {
      sum.values[i] += *more.amounts[i];
    } else {
      ++sum.unknown[i];
    }
  }
}

/// Empty if one of them is; not below 0.
HostUse difference(const HostUse& after, const HostUse& before) {
  HostUse more;
  for (std::size_t i = 0; i < kHostAmounts; ++i) {
    if (after.amounts[i] && before.amounts[i])
      more.amounts[i] = *after.amounts[i] - std::min(*after.amounts[i], *before.amounts[i]);
  }
  return more;
}

/// Empty if one of them is.
void add_all(HostUse& sum, const HostUse& more) {
  for (std::size_t i = 0; i < kHostAmounts; ++i) {
    if (sum.amounts[i] && more.amounts[i]) {
      *sum.amounts[i] += *more.amounts[i];
    } else {
      sum.amounts[i].reset();
    }
  }
}

HostUse nothing() {
  HostUse use;
  use.amounts.fill(0);
  return use;
}

HostUse between(const HostTally::Sum& open, const HostTally::Sum& close) {
  HostUse use;
  for (std::size_t i = 0; i < kHostAmounts; ++i) {
    if (close.unknown[i] == open.unknown[i] && close.values[i] >= open.values[i])
      use.amounts[i] = close.values[i] - open.values[i];
  }
  return use;
}

}  // namespace

HostUse HostTally::add_task(Tasks& tasks, const HostTask& task, bool& is_new) {
  Known& known = tasks[task.id];
  is_new = known.seen == 0 || known.task.start != task.start;
  if (is_new || known.task.role != task.role) ++sum(task.role).born;
  HostUse more = difference(task.use, is_new ? nothing() : known.task.use);
  for (std::size_t i = 0; i < kHostAmounts; ++i) {
    // If it existed before but could not be read, what it had used by then is not known. A value falls if it
    // is the sum over a child's threads and some have ended.
    const bool was_there = is_new && readings_ > 1 && task.start + 1 < ticks_;
    const bool fell = !is_new && task.use.amounts[i] < known.task.use.amounts[i];
    if (was_there || fell) more.amounts[i].reset();
  }
  known.task = task;
  known.seen = readings_;
  ++sum(task.role).alive;
  add_use(sum(task.role), more);
  return more;
}

bool HostTally::add_worker(const HostTask& task, const HostUse& more, bool is_new,
                           const HostReading& reading) {
  const auto& time = more.of(HostAmount::kProcessorTime);
  const auto& wait = more.of(HostAmount::kRunQueueWait);
  if (latest_.time == 0 || !time || !wait) return false;
  std::uint64_t life = reading.time - latest_.time;
  if (is_new) {
    const std::uint64_t ticks = reading.ticks - std::min(reading.ticks, task.start);
    life = std::min(life, (ticks + 1) * kernel_tick());
  }
  if ((*time + *wait) * kActive < life) return false;
  latest_.worker_life += life;
  latest_.worker_time += *time;
  latest_.worker_wait += *wait;
  return true;
}

// What all children used that the process, or a living child of its, has waited for, minus what was seen of
// them. When a child ends, what its own children used moves from it to whoever waits for it.
void HostTally::add_ended(const HostReading& reading) {
  Sum& ended = sum(HostRole::kEndedChildren);
  HostUse all = reading.ended_children;
  // A child that was never read may have used all of it.
  if (reading.children_beyond != 0) all = {};
  for (auto child = children_.begin(); child != children_.end();) {
    const HostTask& task = child->second.task;
    if (child->second.seen == readings_) {
      add_all(all, task.ended_children);
      ++child;
      continue;
    }
    ++ended.born;
    add_all(ended_known_, task.use);
    child = children_.erase(child);
  }
  const std::uint64_t ticks = 2 * reading.children.size() * kernel_tick();
  for (const HostAmount amount : kAllAmounts) {
    const auto i = static_cast<std::size_t>(amount);
    // getrusage() truncates times to microseconds, and bytes to blocks; /proc truncates times to ticks.
    const std::uint64_t cut = amount == HostAmount::kProcessorTime ? kCutTime + ticks
                              : amount == HostAmount::kReadBytes   ? kCutBytes
                                                                   : 0;
    const auto& known = ended_known_.amounts[i];
    // More has been seen of them than they used: nobody has waited for one of them, and the kernel has
    // dropped what it used.
    if (!all.amounts[i] || !known) {
      ++ended.unknown[i];
      in_deficit_[i] = true;
      continue;
    }
    // Once others have made up for the deficit, how much of their use that took is not known either.
    const bool lacks = *all.amounts[i] + cut < *known + ended.values[i];
    if (lacks || in_deficit_[i]) ++ended.unknown[i];
    in_deficit_[i] = lacks;
    if (!lacks) {
      ended.values[i] = std::max(ended.values[i], *all.amounts[i] - std::min(*all.amounts[i], *known));
    }
  }
}

// Its process id has been reused for another child.
void HostTally::forget_reused(const HostTask& child) {
  const auto known = children_.find(child.id);
  if (known == children_.end() || known->second.task.start == child.start) return;
  ++sum(HostRole::kEndedChildren).born;
  add_all(ended_known_, known->second.task.use);
  children_.erase(known);
}

void HostTally::add(const HostReading& reading) {
  if (++readings_ == 1) ended_known_ = nothing();
  for (Sum& sum : latest_.sums) sum.alive = 0;
  bool is_new = false;
  for (const HostTask& thread : reading.threads) add_task(threads_, thread, is_new);
  for (auto thread = threads_.begin(); thread != threads_.end();) {
    if (thread->second.seen == readings_) {
      ++thread;
      continue;
    }
    ++sum(HostRole::kRest).born;
    thread = threads_.erase(thread);
  }
  std::uint64_t workers = 0;
  for (const HostTask& child : reading.children) {
    forget_reused(child);
    const HostUse more = add_task(children_, child, is_new);
    if (child.role == HostRole::kLoaderWorker && add_worker(child, more, is_new, reading)) ++workers;
  }
  latest_.workers = std::max(latest_.workers, workers);
  add_ended(reading);
  add_use(sum(HostRole::kProcess), difference(reading.process, readings_ == 1 ? nothing() : process_));
  process_ = reading.process;
  latest_.took = reading.time - reading.begin;
  latest_.time = reading.time;
  ticks_ = reading.ticks;
}

void HostTally::add_moment(std::string_view states) {
  if (states.empty()) return;
  ++latest_.moments.all;
  if (states.find('R') != std::string_view::npos) return;
  ++latest_.moments.asleep;
  if (states.find('D') != std::string_view::npos) ++latest_.moments.blocked;
}

HostTally::Mark HostTally::begin_window() {
  latest_.workers = 0;
  return latest_;
}

HostWindow HostTally::window(const Mark& open, const Mark& close) {
  HostWindow window;
  window.begin = open.time;
  window.end = close.time;
  window.reading = open.took + close.took;
  window.workers = close.workers;
  window.worker_life = close.worker_life - open.worker_life;
  window.worker_time = close.worker_time - open.worker_time;
  window.worker_wait = close.worker_wait - open.worker_wait;
  window.moments = {close.moments.all - open.moments.all, close.moments.asleep - open.moments.asleep,
                    close.moments.blocked - open.moments.blocked};
  HostUse threads = nothing();
  HostUse process;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kHostRoles; ++i) {
    const auto role = static_cast<HostRole>(i);
    const Sum& before = open.sums[i];
    const Sum& after = close.sums[i];
    HostRoleUse row{role, before.alive + after.born - before.born, between(before, after)};
    if (is_thread(role)) {
      seen += row.count;
      for (std::size_t a = 0; a < kHostAmounts && row.count != 0; ++a) {
        if (threads.amounts[a] && row.use.amounts[a]) {
          *threads.amounts[a] += *row.use.amounts[a];
        } else {
          threads.amounts[a].reset();
        }
      }
    } else if (role == HostRole::kRest) {
      const auto all = static_cast<std::size_t>(HostRole::kProcess);
      process = between(open.sums[all], close.sums[all]);
      row.use = difference(process, threads);
      // The kernel does not keep the run-queue wait of threads that have ended.
      process.of(HostAmount::kRunQueueWait) = threads.of(HostAmount::kRunQueueWait);
      row.use.of(HostAmount::kRunQueueWait).reset();
    } else if (role == HostRole::kProcess) {
      row.count = seen;
      row.use = process;
    }
    const bool always = role == HostRole::kRest || role == HostRole::kProcess;
    const bool took = row.use.of(HostAmount::kProcessorTime) != 0;  // or not known
    if (always || row.count != 0 || (role == HostRole::kEndedChildren && took))
      window.roles.push_back(std::move(row));
  }
  return window;
}

}  // namespace inject
