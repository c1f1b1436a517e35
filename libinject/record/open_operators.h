// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstdint>

#include "libinject/model/code_place.h"
#include "libinject/record/shape_table.h"

namespace inject {

/// An operator of the program's framework that is in progress.
struct OpenOperator {
  const void* function = nullptr;  ///< the framework's object for it, valid while it is open
  const void* frame = nullptr;     ///< the innermost Python frame when it began
  std::int64_t sequence = -1;      ///< autograd's; negative: it has none
  std::uint32_t call = 0;          ///< numbers those whose sizes tell what they compute; 0: others
  std::uint32_t shape = 0;         ///< what it computes, in Core::shapes, if it has a number
  CodeContext context;             ///< of that frame
  bool has_context = false;        ///< `context` has been queried
  bool is_backward = false;        ///< a node of the backward pass
  bool has_gradients = true;       ///< it was begun with gradients enabled; true if that is not known
};

/// The open operators of a thread, outermost first, while launches are named. Operators that nest too deep
/// are left out.
class OpenOperators {
 public:
  static constexpr std::uint32_t kMost = 32;

  std::uint32_t depth() const noexcept { return depth_; }
  bool some_left_out() const noexcept { return left_out_ != 0; }
  OpenOperator& at(std::uint32_t level) noexcept { return operators_[level]; }
  OpenOperator* innermost() noexcept { return depth_ == 0 ? nullptr : &operators_[depth_ - 1]; }

  /// True if one has begun on this thread since listening started. Outer ones may have begun before, and are
  /// then not known. `listening` numbers the times that listening was started.
  bool any_begun(std::uint32_t listening) const noexcept { return begun_ == listening; }

  void begin(const OpenOperator& op, std::uint32_t listening) noexcept {
    if (depth_ == 0) begun_ = listening;
    if (depth_ < kMost) {
      operators_[depth_++] = op;
    } else {
      ++left_out_;
    }
  }
  /// If it is not the innermost one, it has been left out, it ends on another thread than it began on, or it
  /// began before listening started.
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
  /// The operator call in which a launch is made now.
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
  std::uint32_t left_out_ = 0;  // number of open ones that did not fit
  std::array<OpenOperator, kMost> operators_;
};

}  // namespace inject
