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

/// Of a deeper stack, only the innermost frames are kept, below kOuterFrames.
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

/// The call of the module with its name; without one if it is not found below its caller.
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

/// Enters a module's call into the chain of modules in which it is called. False if there is no room.
bool enter_module(const void* module, CodeContext& context, CodePlaces& places) noexcept {
  CodePlaces::ModuleCall call;
  std::uint32_t around = context.module;
  const void* object = context.object;
  // A module that was passed to another one is a child of one further out.
  for (;; around = places.node(around).parent, object = places.object(around)) {
    if (around != 0 && object == module) {
      context.module = around;
      context.object = object;
      return true;
    }
    call = named_call(module, around == 0 ? nullptr : object, places);
    if (around == 0 || call.name != NameTable::kEmpty) break;
  }
  // If it is in none of the modules that call it, it is shown by its class, in the module that calls it.
  if (call.name == NameTable::kEmpty) {
    around = context.module;
    call.name = call.type_name;
  }
  if (call.name == NameTable::kEmpty) return false;
  context.module = places.node({CodeNodeKind::kModule, around, call.name, call.type_name, 0});
  context.object = module;
  places.set_object(context.module, module);
  return context.module != 0;
}

CodeContext no_room() noexcept {
  CodeContext unknown;
  unknown.module_unknown = true;
  return unknown;
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
  const bool is_deeper = static_cast<bool>(frame);
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
  // Modules belong below that of the forward pass, which counts only if one has been called.
  CodeContext around = node.forward;
  const void* last = nullptr;
  bool any_called = false;
  while (count > 0) {
    frame = frames[--count];
    context.stack = frame_node(frame, context.stack, places);
    if (context.stack == 0) return no_room();
    if (const void* module = is_inside ? called_module(frame) : nullptr;
        module != nullptr && module != last) {
      any_called = true;
      if (!enter_module(module, around, places)) return no_room();
      last = module;
    }
    if (frame.frame == node.frame) is_inside = true;
  }
  // The modules of omitted frames are not known, nor those around the others.
  context.module_unknown = is_deeper || (any_called && around.module_unknown);
  if (any_called && !context.module_unknown) {
    context.module = around.module;
    context.object = around.object;
  }
  return context;
}

}  // namespace inject
