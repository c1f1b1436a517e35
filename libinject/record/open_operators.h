// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstdint>

#include "libinject/model/code_place.h"
#include "libinject/record/shape_table.h"

namespace inject {

/// An operator of the program's framework in progress.
struct OpenOperator {
  const void* function = nullptr;  ///< the framework's object for it, which lives as long as it is open
  const void* frame = nullptr;     ///< the innermost Python frame as it began
  std::int64_t sequence = -1;      ///< autograd's; negative: it has none
  std::uint32_t call = 0;          ///< numbers those whose sizes say what they compute; 0: another one
  std::uint32_t shape = 0;         ///< what it computes, in Core::shapes, of one that has a number
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
  bool some_left_out() const noexcept { return left_out_ != 0; }
  OpenOperator& at(std::uint32_t level) noexcept { return operators_[level]; }
  OpenOperator* innermost() noexcept { return depth_ == 0 ? nullptr : &operators_[depth_ - 1]; }

  /// Whether one has begun on this thread since they are listened to. Those around it may have begun before,
  /// and are not known then. `listening` numbers the times that they are listened to.
  bool any_begun(std::uint32_t listening) const noexcept { return begun_ == listening; }

  void begin(const OpenOperator& op, std::uint32_t listening) noexcept {
    if (depth_ == 0) begun_ = listening;
    if (depth_ < kMost) {
      operators_[depth_++] = op;
    } else {
      ++left_out_;
    }
  }
  /// Where it is not the innermost one, it has been left out, it ends on another thread than it began on, or
  /// it began before operators were listened to.
  void end(const void* function) noexcept {
    if (depth_ == 0 || operators_[depth_ - 1].function != function) {
      if (left_out_ > 0) --left_out_;
      return;
    }
    --depth_;
    left_out_ = 0;
  }
  std::uint32_t next_call() noexcept {
    calls_ = calls_ + 1 == OperatorCall::kNumbers ? 1 : calls_ + 1;
    return calls_;
  }
  /// The call that a launch is made in now.
  OperatorCall call() const noexcept {
    OperatorCall found;
    for (std::uint32_t level = 0; level < depth_; ++level) {
      const OpenOperator& op = operators_[level];
      if (op.call == 0) continue;
      if (++found.level == 1) found.outermost = op.call;
      found.inside = (op.call + OperatorCall::kNumbers - found.outermost) % OperatorCall::kNumbers;
      found.shape = op.shape;
    }
    const bool is_one_of_many = found.inside >= OperatorCall::kMostInside;
    if (is_one_of_many) found.inside = OperatorCall::kMostInside;
    if (found.level != 0 && (is_one_of_many || left_out_ != 0)) found.shape = ShapeTable::kOther;
    return found;
  }
  void clear() noexcept {
    depth_ = calls_ = begun_ = 0;
    left_out_ = 0;
  }

 private:
  std::uint32_t depth_ = 0;
  std::uint32_t calls_ = 0;
  std::uint32_t begun_ = 0;
  std::uint32_t left_out_ = 0;  // open ones that found no room
  std::array<OpenOperator, kMost> operators_;
};

}  // namespace inject
