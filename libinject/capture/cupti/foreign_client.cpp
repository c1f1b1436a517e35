// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/cupti/foreign_client.h"

#include <algorithm>

namespace inject {

constinit ForeignClient foreign_client;

void ForeignClient::unsubscribed() noexcept {
  int count = subscribers_.load(std::memory_order_relaxed);
  while (count > 0 && !subscribers_.compare_exchange_weak(count, count - 1, std::memory_order_acq_rel)) {
  }
}

void ForeignClient::registered(RegisterBuffers how, CUpti_BuffersCallbackRequestFunc requested,
                               CUpti_BuffersCallbackCompleteFunc completed) noexcept {
  requested_.store(requested, std::memory_order_relaxed);
  completed_.store(completed, std::memory_order_relaxed);
  register_buffers_.store(how, std::memory_order_release);
  displaced_.store(false, std::memory_order_release);
  unflushed_.store(true, std::memory_order_release);
  registered_.store(true, std::memory_order_release);
}

void ForeignClient::registered_clock(RegisterClock how, CUpti_TimestampCallbackFunc clock) noexcept {
  clock_.store(clock, std::memory_order_relaxed);
  register_clock_.store(how, std::memory_order_release);
}

void ForeignClient::enabled(CUpti_ActivityKind kind) noexcept {
  const auto bit = static_cast<std::size_t>(kind);
  if (bit >= 64 * kinds_.size()) return;
  kinds_[bit / 64].fetch_or(std::uint64_t{1} << bit % 64, std::memory_order_acq_rel);
  unflushed_.store(true, std::memory_order_release);
}

void ForeignClient::disabled(CUpti_ActivityKind kind) noexcept {
  const auto bit = static_cast<std::size_t>(kind);
  if (bit >= 64 * kinds_.size()) return;
  kinds_[bit / 64].fetch_and(~(std::uint64_t{1} << bit % 64), std::memory_order_acq_rel);
}

void ForeignClient::flushed() noexcept {
  if (!activity_is_on()) unflushed_.store(false, std::memory_order_release);
}

void ForeignClient::finalized() noexcept {
  subscribers_.store(0, std::memory_order_release);
  registered_.store(false, std::memory_order_release);
  unflushed_.store(false, std::memory_order_release);
  displaced_.store(false, std::memory_order_release);
  register_clock_.store(nullptr, std::memory_order_release);
  for (auto& word : kinds_) word.store(0, std::memory_order_release);
}

void ForeignClient::restore() noexcept {
  if (!registered_.load(std::memory_order_acquire) || !displaced_.exchange(false, std::memory_order_acq_rel))
    return;
  if (auto* how = register_clock_.load(std::memory_order_acquire); how != nullptr)
    how(clock_.load(std::memory_order_relaxed));
  if (auto* how = register_buffers_.load(std::memory_order_acquire); how != nullptr)
    how(requested_.load(std::memory_order_relaxed), completed_.load(std::memory_order_relaxed));
}

bool ForeignClient::activity_is_on() const noexcept {
  return std::any_of(kinds_.begin(), kinds_.end(),
                     [](const auto& word) { return word.load(std::memory_order_acquire) != 0; });
}

bool ForeignClient::has_buffers() const noexcept {
  return registered_.load(std::memory_order_acquire) &&
         (unflushed_.load(std::memory_order_acquire) || activity_is_on());
}

void ForeignClient::note_caller(std::string_view name) noexcept {
  const std::unique_lock lock(name_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const std::size_t length = std::min(name.size(), kMaxName - 1);
  std::copy_n(name.begin(), length, name_.begin());
  name_[length] = '\0';
}

std::string ForeignClient::name() const {
  const std::unique_lock lock(name_mutex_, std::try_to_lock);
  return lock.owns_lock() ? std::string(name_.data()) : std::string();
}

}  // namespace inject
