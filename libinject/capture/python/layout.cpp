// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The offsets are offsetof() in the headers of 3.10.13, 3.11.2, 3.11.7, 3.12.1, 3.13.0, 3.13.18 and 3.14.10.
// CPython doesn't change these structs after a version's first release candidate.
#include "libinject/capture/python/layout.h"

#include <array>
#include <string_view>

namespace inject {

namespace {

constexpr std::array<PythonLayout, 5> kLayouts = {{
    {.minor = 10,
     .current_frame = 24,
     .cframe_frame = kNoMember,
     .caller = 24,
     .code = 32,
     .instruction = 96,
     .locals = 352,
     .owner = kNoMember,
     .reference_tag = 0,
     .argument_count = 16,
     .keyword_count = 24,
     .flags = 36,
     .first_line = 40,
     .file = 104,
     .name = 112,
     .qualified_name = kNoMember,
     .line_table = 120,
     .local_count = 28,
     .local_names = 72,
     .local_kinds = kNoMember,
     .first_traceable = kNoMember,
     .instructions = 48,
     .global_names = 64,
     .cell_names = 88,
     .cell_arguments = 96,
     .tuple_items = 24,
     .ascii_size = 48,
     .compact_size = 72},
    {.minor = 11,
     .current_frame = 56,
     .cframe_frame = 8,
     .caller = 48,
     .code = 32,
     .instruction = 56,
     .locals = 72,
     .owner = 69,
     .reference_tag = 0,
     .argument_count = 56,
     .keyword_count = 64,
     .flags = 48,
     .first_line = 72,
     .file = 112,
     .name = 120,
     .qualified_name = 128,
     .line_table = 136,
     .local_count = 76,
     .local_names = 96,
     .local_kinds = 104,
     .first_traceable = 168,
     .instructions = 184,
     .global_names = 32,
     .cell_names = kNoMember,
     .cell_arguments = kNoMember,
     .tuple_items = 24,
     .ascii_size = 48,
     .compact_size = 72},
    {.minor = 12,
     .current_frame = 56,
     .cframe_frame = 0,
     .caller = 8,
     .code = 0,
     .instruction = 56,
     .locals = 72,
     .owner = 70,
     .reference_tag = 0,
     .argument_count = 52,
     .keyword_count = 60,
     .flags = 48,
     .first_line = 68,
     .file = 112,
     .name = 120,
     .qualified_name = 128,
     .line_table = 136,
     .local_count = 72,
     .local_names = 96,
     .local_kinds = 104,
     .first_traceable = 176,
     .instructions = 192,
     .global_names = 32,
     .cell_names = kNoMember,
     .cell_arguments = kNoMember,
     .tuple_items = 24,
     .ascii_size = 40,
     .compact_size = 56},
    {.minor = 13,
     .current_frame = 72,
     .cframe_frame = kNoMember,
     .caller = 8,
     .code = 0,
     .instruction = 56,
     .locals = 72,
     .owner = 70,
     .reference_tag = 0,
     .argument_count = 52,
     .keyword_count = 60,
     .flags = 48,
     .first_line = 68,
     .file = 112,
     .name = 120,
     .qualified_name = 128,
     .line_table = 136,
     .local_count = 72,
     .local_names = 96,
     .local_kinds = 104,
     .first_traceable = 184,
     .instructions = 200,
     .global_names = 32,
     .cell_names = kNoMember,
     .cell_arguments = kNoMember,
     .tuple_items = 24,
     .ascii_size = 40,
     .compact_size = 56},
    {.minor = 14,
     .current_frame = 72,
     .cframe_frame = kNoMember,
     .caller = 8,
     .code = 0,
     .instruction = 56,
     .locals = 80,
     .owner = 74,
     .reference_tag = 3,
     .argument_count = 52,
     .keyword_count = 60,
     .flags = 48,
     .first_line = 68,
     .file = 112,
     .name = 120,
     .qualified_name = 128,
     .line_table = 136,
     .local_count = 72,
     .local_names = 96,
     .local_kinds = 104,
     .first_traceable = 192,
     .instructions = 208,
     .global_names = 32,
     .cell_names = kNoMember,
     .cell_arguments = kNoMember,
     .tuple_items = 32,
     .ascii_size = 40,
     .compact_size = 56},
}};

/// Members of _Py_DebugOffsets, by their index in it as an array of 64-bit words.
struct DebugWords {
  std::uint8_t in_313;
  std::uint8_t in_314;
};

struct DebugMember {
  PythonOffset PythonLayout::*member;
  DebugWords word;
};

struct DebugConstant {
  PythonOffset value;
  DebugWords word;
};

constexpr std::array<DebugMember, 17> kDebugMembers = {{
    {&PythonLayout::current_frame, {.in_313 = 23, .in_314 = 26}},
    {&PythonLayout::caller, {.in_313 = 29, .in_314 = 32}},
    {&PythonLayout::code, {.in_313 = 30, .in_314 = 33}},
    {&PythonLayout::instruction, {.in_313 = 31, .in_314 = 34}},
    {&PythonLayout::locals, {.in_313 = 32, .in_314 = 35}},
    {&PythonLayout::owner, {.in_313 = 33, .in_314 = 36}},
    {&PythonLayout::file, {.in_313 = 35, .in_314 = 40}},
    {&PythonLayout::name, {.in_313 = 36, .in_314 = 41}},
    {&PythonLayout::qualified_name, {.in_313 = 37, .in_314 = 42}},
    {&PythonLayout::line_table, {.in_313 = 38, .in_314 = 43}},
    {&PythonLayout::first_line, {.in_313 = 39, .in_314 = 44}},
    {&PythonLayout::argument_count, {.in_313 = 40, .in_314 = 45}},
    {&PythonLayout::local_names, {.in_313 = 41, .in_314 = 46}},
    {&PythonLayout::local_kinds, {.in_313 = 42, .in_314 = 47}},
    {&PythonLayout::instructions, {.in_313 = 43, .in_314 = 48}},
    {&PythonLayout::tuple_items, {.in_313 = 51, .in_314 = 57}},
    {&PythonLayout::ascii_size, {.in_313 = 70, .in_314 = 80}},
}};

constexpr std::array<DebugConstant, 7> kDebugConstants = {{
    {python_object::kType, {.in_313 = 45, .in_314 = 51}},
    {python_object::kTypeName, {.in_313 = 47, .in_314 = 53}},
    {python_object::kSize, {.in_313 = 52, .in_314 = 58}},
    {python_object::kSize, {.in_313 = 65, .in_314 = 75}},
    {python_object::kBytes, {.in_313 = 66, .in_314 = 76}},
    {python_object::kTextState, {.in_313 = 68, .in_314 = 78}},
    {python_object::kTextLength, {.in_313 = 69, .in_314 = 79}},
}};

constexpr std::string_view kCookie = "xdebugpy";

}  // namespace

const PythonLayout* python_layout(unsigned minor) noexcept {
  for (const PythonLayout& layout : kLayouts) {
    if (layout.minor == minor) return &layout;
  }
  return nullptr;
}

const char* contradiction(const PythonLayout& layout, std::uint64_t version, const void* runtime) noexcept {
  if (layout.minor < 13) return nullptr;
  if (std::memcmp(runtime, kCookie.data(), kCookie.size()) != 0) return "it has no debug offsets";
  const auto word = [&](std::size_t number) { return read_at<std::uint64_t>(runtime, number * 8); };
  if (word(1) != version) return "its debug offsets are of another version";
  if (word(2) != 0) return "it has no GIL";
  const auto in = [&](const DebugWords& words) {
    return word(layout.minor == 13 ? words.in_313 : words.in_314);
  };
  for (const DebugMember& known : kDebugMembers) {
    if (in(known.word) != layout.*known.member) return "its debug offsets are unknown";
  }
  for (const DebugConstant& known : kDebugConstants) {
    if (in(known.word) != known.value) return "its debug offsets are unknown";
  }
  return nullptr;
}

}  // namespace inject
