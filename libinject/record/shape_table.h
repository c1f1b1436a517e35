// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "libinject/model/call_shape.h"

namespace inject {

/// Shapes by number: 0 is none, 1 stands for all that do not fit. Any thread may intern and read without a
/// lock; memory is reserved, not touched.
class ShapeTable {
 public:
  static constexpr std::uint32_t kNone = 0;
  static constexpr std::uint32_t kOther = 1;

  explicit ShapeTable(std::uint32_t most) noexcept;
  ~ShapeTable();
  ShapeTable(const ShapeTable&) = delete;
  ShapeTable& operator=(const ShapeTable&) = delete;

  /// The number of a shape, which is entered if new; kOther if the table is full (counted in overflows()).
  std::uint32_t intern(const CallShape& shape) noexcept;
  /// The shape with a number that intern() returned; an empty one for any other number.
  CallShape shape(std::uint32_t id) const noexcept;
  ShapeKind kind(std::uint32_t id) const noexcept;

  /// The memory in which new shapes are entered first.
  std::span<std::uint8_t> used_first() noexcept;

  std::uint32_t size() const noexcept { return count_.load(std::memory_order_relaxed); }
  std::uint64_t overflows() const noexcept { return overflows_.load(std::memory_order_relaxed); }

 private:
  std::uint32_t capacity_;
  std::uint32_t slot_mask_ = 0;
  std::size_t mapped_ = 0;
  void* base_ = nullptr;                         // one mapping: slots, shapes
  std::atomic<std::uint64_t>* slots_ = nullptr;  // open addressing: upper half of the hash, number
  CallShape* shapes_ = nullptr;
  std::atomic<std::uint32_t> count_{0};
  std::atomic<std::uint64_t> overflows_{0};
};

}  // namespace inject
