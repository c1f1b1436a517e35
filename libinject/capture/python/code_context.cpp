// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/python/code_context.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <string_view>

#include "libinject/capture/python/module_path.h"

namespace inject {

namespace {

/// Of a deeper stack the innermost frames are kept, below kOuterFrames.
constexpr std::size_t kMaxFrames = 128;
constexpr std::size_t kMaxText = 512;

constinit std::atomic<bool> stacks_read{false};

template <typename Copy>
std::uint32_t intern(NameTable& names, Copy copy) noexcept {
  std::array<char, kMaxText> text;
  return names.intern({text.data(), copy(text.data(), text.size())});
}

std::uint32_t frame_node(PythonFrame frame, std::uint32_t parent, CodePlaces& places) noexcept {
  CodeNode node;
  node.parent = parent;
  node.name = intern(places.names(),
                     [&](char* text, std::size_t size) { return copy_qualified_name(frame, text, size); });
  node.detail =
      intern(places.names(), [&](char* text, std::size_t size) { return copy_file(frame, text, size); });
  node.line = static_cast<std::uint32_t>(line_of(frame));
  return places.node(node);
}

/// A call of the module with its names; without one if it is not found below its caller.
CodePlaces::ModuleCall named_call(const void* module, const void* caller, CodePlaces& places) noexcept {
  CodePlaces::ModuleCall call;
  call.caller = caller;
  call.module = module;
  call.type = type_of(module);
  return places.module_call(call, [&](CodePlaces::ModuleCall& fresh) {
    fresh.type_name = intern(
        places.names(), [&](char* text, std::size_t size) { return copy_type_name(module, text, size); });
    if (caller == nullptr) return;
    fresh.name = intern(places.names(), [&](char* text, std::size_t size) {
      return copy_module_path(caller, module, text, size);
    });
  });
}

/// The node of a module that is called in that of `parent`, or, with `climb`, in one that this is in.
std::uint32_t module_node(const void* module, std::uint32_t parent, bool climb, CodePlaces& places) noexcept {
  CodePlaces::ModuleCall call;
  std::uint32_t around = parent;
  for (;; around = places.node(around).parent) {
    if (around != 0 && places.object(around) == module) return around;
    call = named_call(module, places.object(around), places);
    if (around == 0 || call.name != NameTable::kEmpty || !climb) break;
  }
  // One that stands in none of the modules that call it is shown by its class.
  if (call.name == NameTable::kEmpty) call.name = call.type_name;
  if (call.name == NameTable::kEmpty) return 0;
  const std::uint32_t node = places.node({CodeNodeKind::kModule, around, call.name, call.type_name, 0});
  places.set_object(node, module);
  return node;
}

}  // namespace

void read_stacks(bool read) noexcept {
  stacks_read.store(read, std::memory_order_release);
}

PythonFrame stack_frame() noexcept {
  return stacks_read.load(std::memory_order_acquire) ? innermost_frame() : PythonFrame{};
}

CodeContext code_context(PythonFrame innermost, CodePlaces& places) noexcept {
  return code_context(innermost, places, {});
}

CodeContext code_context(PythonFrame innermost, CodePlaces& places, const BackwardNode& node) noexcept {
  std::array<PythonFrame, kMaxFrames> frames;
  std::size_t count = 0;
  PythonFrame frame = innermost;
  for (; frame && count < kMaxFrames; frame = caller_of(frame)) frames[count++] = frame;
  const auto end = frames.begin() + static_cast<std::ptrdiff_t>(count);
  bool is_inside = node.frame == nullptr || std::none_of(frames.begin(), end, [&](PythonFrame one) {
                     return one.frame == node.frame;
                   });
  CodeContext context;
  if (frame) {
    context.stack =
        places.node({CodeNodeKind::kFrame, 0, places.names().intern(kOuterFrames), NameTable::kEmpty, 0});
  } else if (node.frame == nullptr && count != 0) {
    context.stack = node.forward.stack;
  }
  const void* last = nullptr;
  while (count > 0) {
    frame = frames[--count];
    context.stack = frame_node(frame, context.stack, places);
    if (context.stack == 0) return {};
    if (const void* module = is_inside ? called_module(frame) : nullptr;
        module != nullptr && module != last) {
      const bool is_first = context.module == 0;
      context.module = module_node(module, is_first ? node.forward.module : context.module, is_first, places);
      if (context.module == 0) return {};
      last = module;
    }
    if (frame.frame == node.frame) is_inside = true;
  }
  return context;
}

}  // namespace inject
