// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The frame reader's functions that program.py calls through ctypes.
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <string>
#include <thread>

#include "libinject/base/log.h"
#include "libinject/capture/python/frame_reader.h"
#include "libinject/capture/python/interpreter.h"
#include "libinject/capture/python/module_path.h"
#include "libinject/capture/python/self_test.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

struct Entry {
  char file[512];
  char name[256];
  char qualified_name[256];
  char type[128];
  const void* first_argument;
  int line;
};

int walk(Entry* entries, int count) {
  int depth = 0;
  for (inject::PythonFrame frame = inject::innermost_frame(); frame && depth < count;
       frame = inject::caller_of(frame)) {
    Entry& entry = entries[depth++];
    inject::copy_file(frame, entry.file, sizeof entry.file);
    inject::copy_name(frame, entry.name, sizeof entry.name);
    inject::copy_qualified_name(frame, entry.qualified_name, sizeof entry.qualified_name);
    entry.line = inject::line_of(frame);
    entry.first_argument = inject::first_argument(frame);
    inject::copy_type_name(entry.first_argument, entry.type, sizeof entry.type);
  }
  return depth;
}

}  // namespace

EXPORTED int frames_find() {
  inject::Log::open(inject::LogLevel::kDebug, "");
  return inject::find_python() ? 1 : 0;
}

/// The calling thread's frames, at most `count`. -1 if errno was changed.
EXPORTED int frames_walk(Entry* entries, int count) {
  errno = 1234;
  const int depth = walk(entries, count);
  return errno == 1234 ? depth : -1;
}

/// The number of frames, without copying anything.
EXPORTED int frames_count() {
  int depth = 0;
  for (inject::PythonFrame frame = inject::innermost_frame(); frame; frame = inject::caller_of(frame))
    ++depth;
  return depth;
}

namespace {
/// For the thread that walks forever: the number of walks, and the number of frames in the last one.
std::atomic<unsigned> walked{0};
std::atomic<int> last_depth{0};
}  // namespace

EXPORTED void frames_for_ever() {
  for (;;) {
    Entry entries[4];
    last_depth.store(walk(entries, 4), std::memory_order_relaxed);
    walked.fetch_add(1, std::memory_order_release);
  }
}

/// The current number of its frames, from a walk that began after the call.
EXPORTED int frames_of_endless_walk() {
  const unsigned before = walked.load(std::memory_order_acquire);
  while (walked.load(std::memory_order_acquire) - before < 2) std::this_thread::yield();
  return last_depth.load(std::memory_order_relaxed);
}

/// A name of the innermost frame, its file or its first argument's type, in `size` bytes; `which` selects it.
EXPORTED int frames_copy(int which, char* text, int size) {
  const inject::PythonFrame frame = inject::innermost_frame();
  const auto room = static_cast<std::size_t>(size);
  if (which == 0) return static_cast<int>(inject::copy_name(frame, text, room));
  if (which == 1) return static_cast<int>(inject::copy_qualified_name(frame, text, room));
  if (which == 2) return static_cast<int>(inject::copy_file(frame, text, room));
  return static_cast<int>(inject::copy_type_name(inject::first_argument(frame), text, room));
}

EXPORTED int frames_module_path(const void* parent, const void* child, char* text, int size) {
  errno = 1234;
  const std::size_t length = inject::copy_module_path(parent, child, text, static_cast<std::size_t>(size));
  return errno == 1234 ? static_cast<int>(length) : -1;
}

/// The modules whose calls the thread is in, innermost first.
EXPORTED int frames_called_modules(const void** modules, int count) {
  int found = 0;
  for (inject::PythonFrame frame = inject::innermost_frame(); frame && found < count;
       frame = inject::caller_of(frame)) {
    if (const void* module = inject::called_module(frame); module != nullptr) modules[found++] = module;
  }
  return found;
}

/// The frames of a thread that Python does not know, and the properties of its first frame.
EXPORTED int frames_of_another_thread() {
  int count = -1;
  std::thread([&] {
    Entry entry{};
    count = walk(&entry, 1);
    const inject::PythonFrame none;
    char text[8] = "before";
    if (inject::caller_of(none) || inject::line_of(none) != 0 || inject::first_argument(none) != nullptr ||
        inject::copy_file(none, text, sizeof text) != 0 || text[0] != '\0')
      count = -2;
  }).join();
  return count;
}

namespace {

/// The result of testing this thread's frames with a layout.
int test_with(const inject::PythonLayout& layout) {
  static inject::PythonInterpreter python;
  std::string text;
  if (python.layout == nullptr && inject::find_interpreter(python, text) != inject::PythonSearch::kFound)
    return -1;
  inject::PythonInterpreter other = python;
  other.layout = &layout;
  return static_cast<int>(inject::test_layout(other, other.this_thread()).test);
}

}  // namespace

/// With the layout of version 3.`minor`.
EXPORTED int frames_force_layout(int minor) {
  return test_with(*inject::python_layout(static_cast<unsigned>(minor)));
}

/// With that layout, except that one member is moved by `bytes`. -2 if the version has no such member. Not
/// usable for all: with `locals` moved, an argument would be taken for the preceding one.
EXPORTED int frames_shift_layout(int minor, int member, int bytes) {
  using Layout = inject::PythonLayout;
  constexpr std::array<inject::PythonOffset Layout::*, 8> kMembers = {
      &Layout::current_frame, &Layout::code,        &Layout::local_count, &Layout::local_names,
      &Layout::line_table,    &Layout::local_kinds, &Layout::tuple_items, &Layout::ascii_size};
  inject::PythonLayout layout = *inject::python_layout(static_cast<unsigned>(minor));
  inject::PythonOffset& offset = layout.*kMembers.at(static_cast<std::size_t>(member));
  if (offset == inject::kNoMember) return -2;
  offset = static_cast<inject::PythonOffset>(offset + bytes);
  return test_with(layout);
}
