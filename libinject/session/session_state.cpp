// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/session_state.h"

#include <atomic>
#include <chrono>
#include <mutex>

namespace inject {

constinit Mutex session_mutex;

namespace {

void write_lines(const std::vector<std::pair<LogLevel, std::string>>& lines) noexcept {
  for (const auto& [level, line] : lines) Log::write(level, line);
}

}  // namespace

void SessionState::log(LogLevel level, std::string_view line) noexcept {
  try {
    const MutexLock lock(lines_mutex_);
    lines_.emplace_back(level, line);
  } catch (...) {
    Log::write(level, line);
  }
}

std::vector<std::pair<LogLevel, std::string>> SessionState::take_lines() noexcept {
  const MutexLock lock(lines_mutex_);
  return std::exchange(lines_, {});
}

bool SessionState::has_lines() noexcept {
  const MutexLock lock(lines_mutex_);
  return !lines_.empty();
}

bool SessionState::wait(std::condition_variable& condition, Nanoseconds most) noexcept {
  if (has_lines()) {
    const SessionUnlock unlocked(*this);
    return true;  // what is waited for may have happened
  }
  std::unique_lock lock(session_mutex.native(), std::adopt_lock);
  const std::cv_status status = condition.wait_for(lock, std::chrono::nanoseconds(most));
  lock.release();
  return status == std::cv_status::no_timeout;
}

SessionLock::SessionLock(SessionState& state) : state_(state) {
  session_mutex.lock();
}

SessionLock::~SessionLock() {
  const auto lines = state_.take_lines();
  session_mutex.unlock();
  write_lines(lines);
}

SessionUnlock::SessionUnlock(SessionState& state) {
  const auto lines = state.take_lines();
  session_mutex.unlock();
  write_lines(lines);
}

SessionUnlock::~SessionUnlock() {
  session_mutex.lock();
}

bool lock_session_within(Nanoseconds most) noexcept {
  return session_mutex.try_lock_within(most);
}

bool lock_session(bool in_callback) noexcept {
  // Our thread holds the lock for microseconds at a time: a call that hits one of those must not be dropped.
  constexpr Nanoseconds kShortWait = 50 * kMillisecond;
  constexpr Nanoseconds kProgramWait = 5 * kSecond;
  static constinit std::atomic<bool> waited_in_vain{false};
  if (in_callback) return lock_session_within(kShortWait);
  const bool locked =
      lock_session_within(waited_in_vain.load(std::memory_order_relaxed) ? kShortWait : kProgramWait);
  waited_in_vain.store(!locked, std::memory_order_relaxed);
  return locked;
}

}  // namespace inject
