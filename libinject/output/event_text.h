// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

namespace inject {

/// Buffer for the text of many small events. Like appending to a string, but room is checked once per event,
/// because checking for every number would take as long as writing it.
class EventText {
 public:
  /// Room guaranteed to each event.
  static constexpr std::size_t kMaxEvent = 192 * 1024;

  /// Without room for any event.
  EventText() = default;
  explicit EventText(std::size_t full) : full_(full), text_(new char[full + kMaxEvent]), at_(text_.get()) {}

  std::string_view view() const { return {text_.get(), size()}; }
  std::size_t size() const { return static_cast<std::size_t>(at_ - text_.get()); }
  /// There may be no room for another event: take view(), then clear().
  bool is_full() const { return size() > full_; }
  void clear() { at_ = text_.get(); }

  // The pieces of an event; at most kMaxEvent in all.
  EventText& text(std::string_view value) {
    std::memcpy(at_, value.data(), value.size());
    at_ += value.size();
    return *this;
  }
  template <std::integral T>
  EventText& number(T value) {
    at_ = std::to_chars(at_, at_ + kMaxNumberLength, value).ptr;
    return *this;
  }
  /// Nanoseconds as microseconds with three decimals.
  EventText& microseconds(std::uint64_t nanoseconds) {
    at_ = std::to_chars(at_, at_ + kMaxNumberLength, nanoseconds / 1000).ptr;
    const auto rest = static_cast<unsigned>(nanoseconds % 1000);
    *at_++ = '.';
    *at_++ = static_cast<char>('0' + rest / 100);
    *at_++ = static_cast<char>('0' + rest / 10 % 10);
    *at_++ = static_cast<char>('0' + rest % 10);
    return *this;
  }
  /// With three decimals. The number must be finite and less than 10^15.
  EventText& decimal(double value) {
    at_ = std::to_chars(at_, at_ + kMaxNumberLength, value, std::chars_format::fixed, 3).ptr;
    return *this;
  }

 private:
  static constexpr std::size_t kMaxNumberLength = 32;

  std::size_t full_ = 0;
  std::unique_ptr<char[]> text_;
  char* at_ = nullptr;
};

}  // namespace inject
