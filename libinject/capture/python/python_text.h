// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Python's text as UTF-8.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "libinject/capture/python/interpreter.h"
#include "libinject/capture/python/layout.h"

namespace inject {

/// Text of bounded size, with room for the terminating zero.
class BoundedText {
 public:
  BoundedText(char* text, std::size_t size) noexcept : text_(text), room_(size == 0 ? 0 : size - 1) {}

  /// False if it does not fit; from then on always.
  bool add(std::uint32_t character) noexcept {
    constexpr std::uint32_t kFirstSurrogate = 0xD800;
    constexpr std::uint32_t kLastSurrogate = 0xDFFF;
    constexpr std::uint32_t kMaxCharacter = 0x10FFFF;
    if (character == 0 || (character >= kFirstSurrogate && character <= kLastSurrogate) ||
        character > kMaxCharacter)
      character = '?';
    if (character < 0x80) return put(1, 0, character);
    if (character < 0x800) return put(2, 0xC0, character);
    if (character < 0x10000) return put(3, 0xE0, character);
    return put(4, 0xF0, character);
  }

  std::size_t end(std::size_t size) noexcept {
    if (size != 0) text_[length_] = '\0';
    return length_;
  }

 private:
  /// Appends `bytes` of UTF-8, the first of which begins with the bits of `lead`.
  bool put(unsigned bytes, std::uint32_t lead, std::uint32_t character) noexcept {
    if (room_ - length_ < bytes) {
      room_ = length_;
      return false;
    }
    for (unsigned i = bytes; i-- > 1; character >>= 6u)
      text_[length_ + i] = static_cast<char>(0x80u | (character & 0x3Fu));
    text_[length_] = static_cast<char>(lead | character);
    length_ += bytes;
    return true;
  }

  char* text_;
  std::size_t room_;
  std::size_t length_ = 0;
};

template <typename Character>
void add_characters(BoundedText& text, const void* data, std::int64_t length) noexcept {
  for (std::int64_t i = 0; i < length; ++i) {
    if (!text.add(read_at<Character>(data, static_cast<std::size_t>(i) * sizeof(Character)))) return;
  }
}

/// PyASCIIObject.state (cpython/unicodeobject.h).
struct TextState {
  explicit TextState(std::uint32_t state) noexcept
      : kind((state >> 2u) & 7u),
        is_compact(((state >> 5u) & 1u) != 0),
        is_ascii(((state >> 6u) & 1u) != 0) {}

  unsigned kind;  // bytes of a character
  bool is_compact;
  bool is_ascii;
};

/// Does nothing for an unknown kind: in 3.10 and 3.11, some texts are completed at their first use.
inline void add_characters(BoundedText& text, unsigned kind, const void* data, std::int64_t length) noexcept {
  switch (kind) {
    case 1:
      add_characters<std::uint8_t>(text, data, length);
      break;
    case 2:
      add_characters<std::uint16_t>(text, data, length);
      break;
    case 4:
      add_characters<std::uint32_t>(text, data, length);
      break;
    default:
      break;
  }
}

/// cpython/unicodeobject.h: the characters follow the struct, which is longer if they are not all ASCII; a
/// text that is not compact points to them.
inline void add_text(const PythonInterpreter& python, BoundedText& text, const void* object) noexcept {
  if (!is_plausible(object) || pointer_at(object, python_object::kType) != python.text_type) return;
  const PythonLayout& layout = *python.layout;
  const auto length = read_at<std::int64_t>(object, python_object::kTextLength);
  const TextState state(read_at<std::uint32_t>(object, python_object::kTextState));
  const auto offset = state.is_ascii ? layout.ascii_size : layout.compact_size;
  const void* data = static_cast<const char*>(object) + offset;
  if (!state.is_compact) data = pointer_at(object, layout.compact_size);
  if (data != nullptr) add_characters(text, state.kind, data, length);
}

/// Text in memory that may not be mapped (untrusted_memory.h).
struct UntrustedText {
  static constexpr std::uint64_t kMaxLength = 512;

  std::uint64_t length = 0;
  TextState state{0};
  const char* data = nullptr;  ///< null if it can't be read

  template <typename Memory>
  static UntrustedText of(const PythonInterpreter& python, const Memory& memory,
                          const void* object) noexcept {
    std::array<char, python_object::kTextState + sizeof(std::uint64_t)> head;
    if (!is_plausible(object) || !memory.copy(object, head, sizeof head) ||
        pointer_at(head.data(), python_object::kType) != python.text_type)
      return {};
    UntrustedText text;
    text.length = read_at<std::uint64_t>(head.data(), python_object::kTextLength);
    text.state = TextState(read_at<std::uint32_t>(head.data(), python_object::kTextState));
    if (!text.state.is_compact || (text.state.is_ascii && text.state.kind != 1)) return {};
    text.data = static_cast<const char*>(object) +
                (text.state.is_ascii ? python.layout->ascii_size : python.layout->compact_size);
    return text;
  }

  /// False if the text is empty, longer than kMaxLength, or can't be read.
  template <typename Memory>
  bool add_to(BoundedText& out, const Memory& memory) const noexcept {
    constexpr std::size_t kMaxCharacter = 4;
    const unsigned kind = state.kind;
    if (data == nullptr || length == 0 || length > kMaxLength ||
        (kind != 1 && kind != 2 && kind != kMaxCharacter))
      return false;
    std::array<char, kMaxLength * kMaxCharacter> copy;
    if (!memory.copy(data, copy, static_cast<std::size_t>(length) * kind)) return false;
    add_characters(out, kind, copy.data(), static_cast<std::int64_t>(length));
    return true;
  }
};

}  // namespace inject
