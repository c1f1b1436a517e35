// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "libinject/config/window_spec.h"
#include "libinject/record/name_table.h"

namespace inject {

/// The NVTX ranges that `nvtx:NAME[@DOMAIN]` selects.
class RangeNames {
 public:
  /// None unless `spec` is for NVTX ranges.
  explicit RangeNames(const WindowSpec& spec);

  bool armed() const noexcept { return armed_; }
  /// Matches the text of a message, or of a domain's name; the default domain's name is empty.
  bool watches_name(std::string_view message) const noexcept;
  bool watches_domain(std::string_view name) const noexcept;
  bool watches_default_domain() const noexcept { return default_domain_; }

 private:
  bool armed_;
  bool default_domain_ = false;
  std::string name_;
  std::string domain_;
};

/// Which ranges the trigger watches, and how many of them are open now. Any thread reports its ranges; some
/// may open before there is a session, which then starts to listen.
class NvtxTrigger : public RangeNames {
 public:
  /// Called on the thread whose range opened or closed, after open_ranges() has changed and before the
  /// program goes on.
  using Listener = void (*)() noexcept;

  /// Watches nothing unless `spec` is for NVTX ranges.
  explicit NvtxTrigger(const WindowSpec& spec);

  void opened() noexcept;
  void closed() noexcept;
  /// A range opened that is not watched; `message` and `domain` are ids in the NameTable.
  void passed_over(std::uint32_t message, std::uint32_t domain) noexcept;

  void listen(Listener listener) noexcept { listener_.store(listener, std::memory_order_seq_cst); }
  std::uint32_t open_ranges() const noexcept { return open_.load(std::memory_order_seq_cst); }

  /// Why a run had no window: which ranges there were instead.
  std::string why_none(const NameTable& names) const;

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  void tell() const noexcept;

  std::atomic<std::uint32_t> open_{0};
  std::atomic<bool> any_{false};
  std::atomic<Listener> listener_{nullptr};
  std::array<std::atomic<std::uint64_t>, 5> others_;  // the first ones: message, and domain in the upper half
};

}  // namespace inject
