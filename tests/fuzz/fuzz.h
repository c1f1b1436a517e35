// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a fuzz target needs: to take its input apart, and to give up where something does not hold. A target
// is a file that defines LLVMFuzzerTestOneInput(); libFuzzer drives it, or replay.cpp, which runs what is
// kept of the inputs (corpus/TARGET) in any build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <type_traits>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fuzz {

/// Says what does not hold, and ends the process so that the input is kept.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// The input from front to back; zeros once it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}

  bool empty() const { return left_ == 0; }

  template <typename T>
  T number() {
    static_assert(std::is_integral_v<T>);
    T value{};
    const std::size_t n = left_ < sizeof value ? left_ : sizeof value;
    if (n != 0) std::memcpy(&value, data_, n);
    skip(n);
    return value;
  }
  /// 0 … bound - 1
  std::uint32_t below(std::uint32_t bound) { return number<std::uint32_t>() % bound; }
  bool flag() { return (number<std::uint8_t>() & 1) != 0; }

  /// Up to the next byte `end`, which is taken, too.
  std::string_view until(char end) {
    const auto* begin = reinterpret_cast<const char*>(data_);
    std::size_t n = 0;
    while (n < left_ && begin[n] != end) ++n;
    const std::string_view text(begin, n);
    skip(n < left_ ? n + 1 : n);
    return text;
  }
  std::string_view rest() {
    const std::string_view text(reinterpret_cast<const char*>(data_), left_);
    skip(left_);
    return text;
  }

 private:
  void skip(std::size_t n) {
    data_ += n;
    left_ -= n;
  }

  const std::uint8_t* data_;
  std::size_t left_;
};

/// One line of printable text, as messages have to be.
inline bool is_one_line(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
  }
  return true;
}

}  // namespace fuzz
