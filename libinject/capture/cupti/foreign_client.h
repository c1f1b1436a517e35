// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cupti.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace inject {

/// Follows the program's own clients of CUPTI (torch.profiler, Proton, an injected tool) by those of their
/// calls that pass our hooks: whether CUPTI is free for us to attach, and whether cuptiFinalize would end a
/// client's work.
///
/// CUPTI itself refuses a second subscriber, but lets anybody replace the buffer callbacks, and the last to
/// register them gets all records. So a client that has registered some counts as active until it has
/// disabled all activity that it enabled and then flushed (as torch.profiler does at the end of each trace),
/// or until CUPTI is finalized. A client that never does so keeps us from attaching permanently.
///
/// Updated by hooks on any thread, also before there is a session; all atomic. Counts successful calls.
/// Initialised at compile time and never destroyed.
class ForeignClient {
 public:
  using RegisterBuffers = decltype(&::cuptiActivityRegisterCallbacks);
  using RegisterClock = decltype(&::cuptiActivityRegisterTimestampCallback);

  /// Before and after a call that claims a part of CUPTI: until it has returned, CUPTI is not free.
  void arrive() noexcept { arriving_.fetch_add(1, std::memory_order_acq_rel); }
  void arrived() noexcept { arriving_.fetch_sub(1, std::memory_order_acq_rel); }

  void subscribed() noexcept { subscribers_.fetch_add(1, std::memory_order_acq_rel); }
  void unsubscribed() noexcept;
  /// `how`: the function that was called, so that restore() can call it again.
  void registered(RegisterBuffers how, CUpti_BuffersCallbackRequestFunc requested,
                  CUpti_BuffersCallbackCompleteFunc completed) noexcept;
  void registered_clock(RegisterClock how, CUpti_TimestampCallbackFunc clock) noexcept;
  void enabled(CUpti_ActivityKind kind) noexcept;
  void disabled(CUpti_ActivityKind kind) noexcept;
  void flushed() noexcept;
  void profiler(bool initialized) noexcept { profiler_.store(initialized, std::memory_order_release); }
  /// The program has finalized CUPTI: no client has anything left.
  void finalized() noexcept;

  /// We have registered our own callbacks, or have finalized CUPTI: the client's are gone.
  void displace() noexcept { displaced_.store(true, std::memory_order_release); }
  /// Called before the client switches activity on again without registering its callbacks anew: restores
  /// what it had registered, if that has been displaced.
  void restore() noexcept;

  /// True if it has ever registered buffer callbacks.
  bool has_registered() const noexcept { return registered_.load(std::memory_order_acquire); }
  /// True if it has registered buffer callbacks and is still using them.
  bool has_buffers() const noexcept;
  bool has_subscriber() const noexcept { return subscribers_.load(std::memory_order_acquire) > 0; }
  /// True if we may try to subscribe; CUPTI still refuses us if there is a subscriber.
  bool lets_attach() const noexcept {
    return arriving_.load(std::memory_order_acquire) == 0 && !has_buffers();
  }
  /// True if cuptiFinalize would break something that a client uses.
  bool minds_finalize() const noexcept {
    return has_subscriber() || has_buffers() || profiler_.load(std::memory_order_acquire);
  }

  /// Notes the latest caller, for messages; see holder.h.
  void note_caller(std::string_view name) noexcept;
  std::string name() const;

 private:
  bool activity_is_on() const noexcept;

  std::atomic<int> arriving_{0};
  std::atomic<int> subscribers_{0};
  std::atomic<bool> registered_{false};
  std::atomic<bool> unflushed_{false};
  std::atomic<bool> profiler_{false};
  std::atomic<bool> displaced_{false};
  std::array<std::atomic<std::uint64_t>, 4> kinds_{};
  std::atomic<RegisterBuffers> register_buffers_{nullptr};
  std::atomic<CUpti_BuffersCallbackRequestFunc> requested_{nullptr};
  std::atomic<CUpti_BuffersCallbackCompleteFunc> completed_{nullptr};
  std::atomic<RegisterClock> register_clock_{nullptr};
  std::atomic<CUpti_TimestampCallbackFunc> clock_{nullptr};
  static constexpr std::size_t kMaxName = 128;
  mutable std::mutex name_mutex_;  // never waited for: the process may have been forked with it held
  std::array<char, kMaxName> name_{};
};

extern ForeignClient foreign_client;

}  // namespace inject
