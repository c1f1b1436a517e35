// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/host_tally.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace inject {

namespace {

constexpr std::array kAllAmounts{
    HostAmount::kProcessorTime, HostAmount::kVoluntarySwitches, HostAmount::kInvoluntarySwitches,
    HostAmount::kMinorFaults,   HostAmount::kMajorFaults,       HostAmount::kRunQueueWait,
    HostAmount::kReadBytes};
static_assert(kAllAmounts.size() == kHostAmounts);
// A worker that was busy for less than one part in this many of its time counts as idle.
constexpr std::uint64_t kActive = 100;
constexpr std::int64_t kCutTime = 2'000;
constexpr std::int64_t kCutBytes = 512;

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

void add_all(HostUse& sum, const HostUse& more) {
  for (std::size_t i = 0; i < kHostAmounts; ++i) add_to(sum.amounts[i], more.amounts[i]);
}

HostUse nothing() {
  HostUse use;
  use.amounts.fill(0);
  return use;
}

void widen(HostTally::Range& range, std::uint64_t value) {
  range = {std::min(range.least, value), std::max(range.most, value)};
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

void HostTally::take_reused(const HostTask& child, std::vector<HostTask>& gone) {
  const auto known = children_.find(child.id);
  if (known == children_.end() || known->second.task.start == child.start) return;
  gone.push_back(known->second.task);
  children_.erase(known);
}

// If the parent ended as well, the child may have been left to init, alive or not: nobody here counts its
// use.
bool HostTally::was_waited_for(const HostTask& child) const {
  if (child.parent == 0) return true;
  const auto parent = children_.find(child.parent);
  return parent != children_.end() && parent->second.task.start <= child.start;
}

// What all children used that the process, or a living child of its, has waited for, minus what was seen of
// them. When a child ends, what its own children used moves from it to whoever waits for it.
void HostTally::add_ended(const HostReading& reading, std::vector<HostTask>& gone) {
  HostUse all = reading.ended_children;
  // A child that was never read may have used all of it.
  bool known = reading.children_beyond == 0;
  for (auto child = children_.begin(); child != children_.end();) {
    const HostTask& task = child->second.task;
    if (child->second.seen == readings_) {
      add_all(all, task.ended_children);
      known = known && !task.drops_children;
      ++child;
      continue;
    }
    gone.push_back(task);
    child = children_.erase(child);
  }
  Sum& ended = sum(HostRole::kEndedChildren);
  for (const HostTask& task : gone) {
    ++ended.born;
    for (std::size_t i = 0; i < kHostAmounts; ++i) {
      ended_seen_[i] += static_cast<std::int64_t>(task.use.amounts[i].value_or(0));
      if (!task.use.amounts[i]) all.amounts[i].reset();
    }
    known = known && was_waited_for(task) && !task.drops_children;
  }
  if (!known) all = {};
  const auto ticks = static_cast<std::int64_t>(2 * reading.children.size() * kernel_tick());
  for (const HostAmount amount : kAllAmounts) {
    const auto i = static_cast<std::size_t>(amount);
    // getrusage() truncates times to microseconds, and bytes to blocks; /proc truncates times to ticks.
    const std::int64_t cut = amount == HostAmount::kProcessorTime ? kCutTime + ticks
                             : amount == HostAmount::kReadBytes   ? kCutBytes
                                                                  : 0;
    const auto sum = static_cast<std::int64_t>(all.amounts[i].value_or(0));
    const auto value = static_cast<std::int64_t>(ended.values[i]);
    // If less than was seen of them, nobody has waited for one of them, and the kernel has dropped its use.
    const bool lost = !all.amounts[i] || sum + cut < ended_seen_[i] + value;
    const bool was_lost = std::exchange(ended_lost_[i], lost);
    if (lost || was_lost) ++ended.unknown[i];
    if (lost) continue;
    // The next sum that is known says nothing about the time before it: use counts from there.
    if (was_lost) ended_seen_[i] = sum - value;
    ended.values[i] = static_cast<std::uint64_t>(std::max(value, sum - ended_seen_[i]));
  }
}

void HostTally::add(const HostReading& reading) {
  ++readings_;
  for (Sum& sum : latest_.sums) sum.alive = 0;
  bool is_new = false;
  Sum& process = sum(HostRole::kProcess);
  for (const HostTask& thread : reading.threads) {
    add_task(threads_, thread, is_new);
    ++process.alive;
    if (is_new) ++process.born;
  }
  for (auto thread = threads_.begin(); thread != threads_.end();) {
    if (thread->second.seen == readings_) {
      ++thread;
      continue;
    }
    ++sum(HostRole::kRest).born;
    thread = threads_.erase(thread);
  }
  std::uint64_t workers = 0;
  std::vector<HostTask> gone;
  for (const HostTask& child : reading.children) {
    take_reused(child, gone);
    const HostUse more = add_task(children_, child, is_new);
    if (child.role == HostRole::kLoaderWorker && reading.children_beyond == 0 &&
        add_worker(child, more, is_new, reading))
      ++workers;
  }
  latest_.workers = std::max(latest_.workers, workers);
  // Those that were not read have a role, but nobody knows which.
  if (reading.children_beyond != 0) {
    for (const HostRole role : {HostRole::kLoaderWorker, HostRole::kCudaChild, HostRole::kOtherChild})
      add_use(sum(role), {});
  }
  widen(latest_.affinity, reading.affinity);
  widen(latest_.quota_thousandths, reading.quota_thousandths);
  add_ended(reading, gone);
  add_use(process, difference(reading.process, readings_ == 1 ? nothing() : process_));
  process_ = reading.process;
  latest_.took = reading.time - reading.begin;
  latest_.time = reading.time;
  ticks_ = reading.ticks;
  affinity_ = reading.affinity;
  quota_thousandths_ = reading.quota_thousandths;
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
  latest_.affinity = {affinity_, affinity_};
  latest_.quota_thousandths = {quota_thousandths_, quota_thousandths_};
  return latest_;
}

HostWindow HostTally::window(const Mark& open, const Mark& close) {
  HostWindow window;
  window.begin = open.time;
  window.end = close.time;
  window.reading = open.took + close.took;
  if (close.affinity.least == close.affinity.most) window.affinity = close.affinity.least;
  window.quota_thousandths.reset();
  if (close.quota_thousandths.least == close.quota_thousandths.most)
    window.quota_thousandths = close.quota_thousandths.least;
  window.workers = close.workers;
  window.worker_life = close.worker_life - open.worker_life;
  window.worker_time = close.worker_time - open.worker_time;
  window.worker_wait = close.worker_wait - open.worker_wait;
  window.moments = {close.moments.all - open.moments.all, close.moments.asleep - open.moments.asleep,
                    close.moments.blocked - open.moments.blocked};
  HostUse threads = nothing();
  HostUse process;
  for (std::size_t i = 0; i < kHostRoles; ++i) {
    const auto role = static_cast<HostRole>(i);
    const Sum& before = open.sums[i];
    const Sum& after = close.sums[i];
    HostRoleUse row{role, before.alive + after.born - before.born, between(before, after)};
    if (is_thread(role)) {
      if (row.count != 0) add_all(threads, row.use);
    } else if (role == HostRole::kRest) {
      const auto all = static_cast<std::size_t>(HostRole::kProcess);
      process = between(open.sums[all], close.sums[all]);
      row.use = difference(process, threads);
      // The kernel does not keep the run-queue wait of threads that have ended.
      std::optional<std::uint64_t>& wait = process.of(HostAmount::kRunQueueWait);
      if (wait) wait = threads.of(HostAmount::kRunQueueWait);
      row.use.of(HostAmount::kRunQueueWait).reset();
    } else if (role == HostRole::kProcess) {
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
