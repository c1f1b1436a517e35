// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/core/timeline.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

namespace inject::sim {

namespace timeline {
namespace {

struct FlagState {
  std::deque<Nanoseconds> set_at;  // starts of setters that no waiter has used yet
  std::deque<OpRef> waiters;       // have started, need a setter
};

// Leaked: see base.cpp.
struct State {
  std::mutex mutex;
  std::condition_variable resolved;
  std::vector<OpRef> unresolved;  // start not known yet, in order of submission
  std::deque<OpRef> live;         // for running() and unfinished(); pruned as it is read or grows
  std::map<int, FlagState> flags;
  std::deque<OpRef> host_work;
  std::condition_variable host_work_changed;
  bool host_thread = false;
};

State& state() {
  static State& instance = *new State;
  return instance;
}

void resolve_all(State& shared);

void run_host_work() {
  State& shared = state();
  std::unique_lock lock(shared.mutex);
  for (;;) {
    shared.host_work_changed.wait(lock, [&] { return !shared.host_work.empty(); });
    OpRef op = shared.host_work.front();
    shared.host_work.pop_front();
    Nanoseconds start = op->start.load();
    lock.unlock();
    while (now_ns() < start)
      std::this_thread::sleep_for(
          std::chrono::nanoseconds(std::min<Nanoseconds>(start - now_ns(), 1'000'000)));
    op->host();
    op->host = nullptr;
    lock.lock();
    op->end = std::max(start, now_ns());
    resolve_all(shared);
  }
}

void start_host_thread(State& shared) {
  if (shared.host_thread) return;
  shared.host_thread = true;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(run_host_work).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Gives `op` its start if everything before it has an end, and its end if nothing else decides that.
bool resolve(State& shared, const OpRef& op) {
  Nanoseconds start = op->earliest;
  for (const OpRef& previous : op->after) {
    Nanoseconds end = previous->end.load();
    if (end == kUnknown) return false;
    start = std::max(start, end);
  }
  op->after.clear();
  op->start = start;
  for (int flag : op->sets) {
    FlagState& changed = shared.flags[flag];
    if (changed.waiters.empty()) {
      changed.set_at.push_back(start);
      continue;
    }
    OpRef waiter = changed.waiters.front();
    changed.waiters.pop_front();
    waiter->end = std::max(waiter->start.load() + waiter->duration, start);
  }
  if (op->hangs) return true;
  if (op->host) {
    start_host_thread(shared);
    shared.host_work.push_back(op);
    shared.host_work_changed.notify_one();
    return true;
  }
  if (op->waits_for >= 0) {
    FlagState& flag = shared.flags[op->waits_for];
    if (flag.set_at.empty()) {
      flag.waiters.push_back(op);
      return true;
    }
    Nanoseconds set_at = flag.set_at.front();
    flag.set_at.pop_front();
    op->end = std::max(start + op->duration, set_at);
    return true;
  }
  op->end = start + op->duration;
  return true;
}

// An end that became known may give others their start, and so on.
void resolve_all(State& shared) {
  bool progress = true;
  while (progress) {
    progress = false;
    std::vector<OpRef> still;
    for (OpRef& op : shared.unresolved) {
      if (resolve(shared, op))
        progress = true;
      else
        still.push_back(std::move(op));
    }
    shared.unresolved = std::move(still);
  }
  shared.resolved.notify_all();
}

void prune(State& shared, Nanoseconds now) {
  std::erase_if(shared.live, [now](const OpRef& op) { return op->ended_by(now); });
}

}  // namespace

OpRef submit(OpRef op) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  shared.live.push_back(op);
  // Work mostly ends in the order of its submission: this keeps the list short at a constant price.
  Nanoseconds now = now_ns();
  while (shared.live.front()->ended_by(now)) {
    shared.live.pop_front();
    if (shared.live.empty()) break;
  }
  bool known =
      shared.unresolved.empty() || std::all_of(op->after.begin(), op->after.end(),
                                               [](const OpRef& p) { return p->end.load() != kUnknown; });
  if (known && resolve(shared, op)) {
    if (!op->sets.empty()) resolve_all(shared);
    return op;
  }
  shared.unresolved.push_back(op);
  return op;
}

OpRef submit(Nanoseconds earliest, Nanoseconds duration, std::vector<OpRef> after) {
  auto op = std::make_shared<Op>();
  op->earliest = earliest;
  op->duration = duration;
  op->after = std::move(after);
  return submit(std::move(op));
}

bool wait_until(const OpRef& op, Nanoseconds deadline) {
  if (op == nullptr) return true;
  State& shared = state();
  Nanoseconds end = op->end.load();
  if (end == kUnknown) {
    std::unique_lock lock(shared.mutex);
    while ((end = op->end.load()) == kUnknown) {
      Nanoseconds now = now_ns();
      if (now >= deadline) return false;
      Nanoseconds slice = std::min<Nanoseconds>(deadline - now, 100'000'000);
      shared.resolved.wait_for(lock, std::chrono::nanoseconds(slice));
    }
  }
  Nanoseconds until = std::min(end, deadline);
  for (Nanoseconds now = now_ns(); now < until; now = now_ns()) {
    // A sleep overshoots by some 60 us: the last part is yielded away, so that short kernels stay short.
    if (until - now > 200'000) {
      timespec rest{static_cast<time_t>((until - now - 100'000) / 1'000'000'000u),
                    static_cast<long>((until - now - 100'000) % 1'000'000'000u)};
      nanosleep(&rest, nullptr);
    } else {
      sched_yield();
    }
  }
  return end <= deadline;
}

void wait(const OpRef& op) {
  wait_until(op, kUnknown - 1);
}

std::vector<OpRef> unfinished(Nanoseconds now) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  prune(shared, now);
  return {shared.live.begin(), shared.live.end()};
}

std::vector<OpRef> running(Nanoseconds now) {
  std::vector<OpRef> found = unfinished(now);
  std::erase_if(found, [now](const OpRef& op) { return !op->started_by(now); });
  return found;
}

}  // namespace timeline
}  // namespace inject::sim
