// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Numbers, texts and records as bytes. Everything that is read is checked; nothing is trusted.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace inject::recovery {

/// Appends. Reserves space for a whole number at once, not for each of its bytes.
class Encoder {
 public:
  /// Seven bits per byte, the lowest first.
  void number(std::uint64_t value) {
    char* at = room(kMostBytes);
    while (value >= 0x80) {
      *at++ = static_cast<char>(value | 0x80);
      value >>= 7;
    }
    *at++ = static_cast<char>(value);
    size_ = static_cast<std::size_t>(at - bytes_.data());
  }
  void text(std::string_view value) {
    number(value.size());
    raw(value);
  }
  template <typename Kind>
  void entry(Kind kind) {
    *room(1) = static_cast<char>(kind);
    ++size_;
  }
  void raw(std::string_view bytes) {
    std::ranges::copy(bytes, room(bytes.size()));
    size_ += bytes.size();
  }

  std::string_view bytes() const { return {bytes_.data(), size_}; }
  bool empty() const { return size_ == 0; }
  void clear() { size_ = 0; }

 private:
  static constexpr std::size_t kMostBytes = 10;  // of a number

  char* room(std::size_t more) {
    if (bytes_.size() - size_ < more) bytes_.resize(std::max<std::size_t>(2 * bytes_.size(), size_ + more));
    return bytes_.data() + size_;
  }

  std::string bytes_;  // the first size_ are written
  std::size_t size_ = 0;
};

/// Reads what an Encoder wrote. After the end, or on invalid input, all values are 0 and ok() stays false.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : left_(bytes) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (left_.empty()) break;
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      // The tenth byte has one bit.
      if (shift == 63 && byte > 1) break;
      value |= static_cast<std::uint64_t>(byte & 0x7Fu) << shift;
      if (byte < 0x80) return value;
    }
    return fail();
  }
  /// At most `most`.
  std::uint64_t number(std::uint64_t most) {
    const std::uint64_t value = number();
    return value <= most ? value : fail();
  }
  std::string_view text(std::size_t most) {
    const std::uint64_t length = number();
    if (length > most || length > left_.size()) {
      fail();
      return {};
    }
    const std::string_view value = left_.substr(0, length);
    left_.remove_prefix(length);
    return value;
  }
  std::uint8_t byte() {
    if (left_.empty()) return static_cast<std::uint8_t>(fail());
    const auto value = static_cast<std::uint8_t>(left_.front());
    left_.remove_prefix(1);
    return value;
  }

  bool ok() const { return ok_; }
  bool at_end() const { return left_.empty(); }
  std::size_t left() const { return left_.size(); }

 private:
  std::uint64_t fail() {
    ok_ = false;
    left_ = {};
    return 0;
  }

  std::string_view left_;
  bool ok_ = true;
};

/// Records of a fixed number of 32-bit words, coded as differences from the previous record: those of one
/// thread, or one stream of kernels, are similar.
template <std::size_t kWords>
class RecordCoder {
 public:
  using Words = std::array<std::uint32_t, kWords>;
  static_assert(kWords <= 64);

  void encode(Encoder& to, const Words& words) {
    std::uint64_t changed = 0;
    for (std::size_t i = 0; i < kWords; ++i) changed |= std::uint64_t{words[i] != last_[i]} << i;
    to.number(changed);
    for (; changed != 0; changed &= changed - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(changed));
      const std::uint32_t step = words[i] - last_[i];
      // Zigzag coding: small negative steps are as short as positive ones.
      to.number(step << 1 ^ (step >> 31 != 0 ? 0xFFFF'FFFFu : 0));
    }
    last_ = words;
  }

  Words decode(Decoder& from) {
    const std::uint64_t changed =
        from.number(kWords == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (kWords % 64)) - 1);
    for (std::size_t i = 0; i < kWords; ++i) {
      if ((changed >> i & 1) == 0) continue;
      const auto folded = static_cast<std::uint32_t>(from.number(0xFFFF'FFFFu));
      last_[i] += folded >> 1 ^ ((folded & 1) != 0 ? 0xFFFF'FFFFu : 0);
    }
    return last_;
  }

 private:
  Words last_{};
};

}  // namespace inject::recovery
