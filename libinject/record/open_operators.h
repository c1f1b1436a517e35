// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstdint>

#include "libinject/model/code_place.h"

namespace inject {

/// An operator of the program's framework in progress.
struct OpenOperator {
  const void* function = nullptr;  ///< the framework's object for it, which lives as long as it is open
  const void* frame = nullptr;     ///< the innermost Python frame as it began
  std::int64_t sequence = -1;      ///< autograd's; negative: it has none
  CodeContext context;             ///< of that frame, …
  bool has_context = false;        ///< … where it has been asked for
  bool is_backward = false;        ///< a node of the backward pass
};

/// Those of a thread, outermost first, while launches are named. Operators that nest deeper than there is
/// room for are left out.
class OpenOperators {
 public:
  static constexpr std::uint32_t kMost = 32;

  std::uint32_t depth() const noexcept { return depth_; }
  OpenOperator& at(std::uint32_t level) noexcept { return operators_[level]; }
  OpenOperator* innermost() noexcept { return depth_ == 0 ? nullptr : &operators_[depth_ - 1]; }

  /// Whether all that are open are known: one has begun since they are listened to, so that none is left that
  /// had begun before.
  bool complete() const noexcept { return complete_; }

  void begin(const OpenOperator& op) noexcept {
    complete_ = complete_ || depth_ == 0;
    if (depth_ < kMost) operators_[depth_++] = op;
  }
  /// Nothing happens where it is not the innermost one: it has been left out, it ends on another thread than
  /// it began on, or it began before operators were listened to.
  void end(const void* function) noexcept {
    if (depth_ != 0 && operators_[depth_ - 1].function == function) --depth_;
  }
  void clear() noexcept {
    depth_ = 0;
    complete_ = false;
  }

 private:
  std::uint32_t depth_ = 0;
  bool complete_ = false;
  std::array<OpenOperator, kMost> operators_;
};

}  // namespace inject
