// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A library that has CPython's symbols but no implementation. Its version is given by OTHER_VERSION in
// hexadecimal, the words of its debug offsets by OTHER_OFFSETS.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define EXPORTED __attribute__((visibility("default")))

extern "C" {

#ifdef OTHER_VERSION_3_10
EXPORTED void PyIter_Send() {}
#elif !defined(OTHER_VERSION_3_9)
EXPORTED unsigned long Py_Version = std::strtoul(std::getenv("OTHER_VERSION"), nullptr, 16);
#endif
#ifdef OTHER_DEBUG_BUILD
EXPORTED void _Py_NegativeRefcount() {}
#endif

EXPORTED std::array<std::uint64_t, 512> _PyRuntime = [] {
  std::array<std::uint64_t, 512> words{};
  const char* text = std::getenv("OTHER_OFFSETS");
  if (text == nullptr) return words;
  std::memcpy(words.data(), "xdebugpy", 8);
  char* end = nullptr;
  for (std::size_t i = 1; *text != '\0' && i < words.size(); ++i) {
    words[i] = std::strtoull(text, &end, 0);
    text = *end == '\0' ? end : end + 1;
  }
  return words;
}();

EXPORTED std::array<void*, 64> PyCode_Type{};
EXPORTED std::array<void*, 64> PyUnicode_Type{};
EXPORTED std::array<void*, 64> PyBytes_Type{};
EXPORTED std::array<void*, 64> PyTuple_Type{};
#ifndef OTHER_INCOMPLETE
EXPORTED std::array<void*, 64> PyCell_Type{};
#endif
EXPORTED std::array<void*, 64> PyFrame_Type{};

/// A thread state at an invalid address, or one whose members all point into the state itself.
EXPORTED void* PyGILState_GetThisThreadState() {
  static std::array<void*, 64> state{};
  const char* kind = std::getenv("OTHER_STATE");
  if (kind == nullptr) return nullptr;
  if (std::strcmp(kind, "nowhere") == 0) return reinterpret_cast<void*>(std::uintptr_t{0x1234'5678'9000});
  state.fill(state.data());
  return state.data();
}

EXPORTED int Py_IsFinalizing() {
  return 0;
}

}  // extern "C"
