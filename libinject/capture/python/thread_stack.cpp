// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/python/thread_stack.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "libinject/capture/python/code_context.h"
#include "libinject/capture/python/interpreter.h"
#include "libinject/capture/python/line_table.h"
#include "libinject/capture/python/python_text.h"
#include "libinject/capture/python/untrusted_memory.h"

namespace inject {

namespace {

constexpr std::size_t kMaxNameText = 512;
/// Frames that run no function occur between others, one or two at a time: the limit for a stack of
/// kMaxFrames.
constexpr std::size_t kMaxHiddenFrames = 256;
/// The part of a frame or a code object that is read.
constexpr std::size_t kMaxHead = 512;
constexpr PythonOffset kReferences = 0;  // PyObject.ob_refcnt
/// CO_GENERATOR, CO_COROUTINE and CO_ASYNC_GENERATOR in co_flags.
constexpr std::uint32_t kIsGenerator = 0x20 | 0x80 | 0x200;

/// A copy of an object's beginning.
class Head {
 public:
  bool copy(const VolatileMemory& memory, const void* object, std::size_t bytes) noexcept {
    return is_plausible(object) && memory.copy(object, bytes_, bytes);
  }
  bool has_type(const void* type) const noexcept { return read<const void*>(python_object::kType) == type; }
  template <typename T>
  T read(PythonOffset offset) const noexcept {
    return read_at<T>(bytes_.data(), offset);
  }

 private:
  std::array<char, kMaxHead> bytes_;
};

std::size_t frame_bytes(const PythonLayout& layout) noexcept {
  std::size_t bytes = std::max({layout.caller, layout.code, layout.instruction}) + sizeof(void*);
  if (layout.owner != kNoMember) bytes = std::max<std::size_t>(bytes, layout.owner + std::size_t{1});
  return std::min(bytes, kMaxHead);
}

PythonOffset name_of(const PythonLayout& layout) noexcept {
  return layout.qualified_name != kNoMember ? layout.qualified_name : layout.name;
}

std::size_t code_bytes(const PythonLayout& layout) noexcept {
  std::size_t bytes =
      std::max({layout.file, name_of(layout), layout.line_table, layout.first_line}) + sizeof(void*);
  if (layout.first_traceable != kNoMember)
    bytes = std::max<std::size_t>(bytes, layout.first_traceable + sizeof(std::int32_t));
  return std::min(bytes, kMaxHead);
}

/// The name's number; none if it can't be read.
std::optional<std::uint32_t> intern(const PythonInterpreter& python, const VolatileMemory& memory,
                                    const void* object, NameTable& names) noexcept {
  UntrustedText text = UntrustedText::of(python, memory, object);
  if (text.data == nullptr) return std::nullopt;
  if (text.length == 0) return NameTable::kEmpty;
  // Truncated like in copy_name().
  text.length = std::min(text.length, UntrustedText::kMaxLength);
  std::array<char, kMaxNameText> copy;
  BoundedText out(copy.data(), copy.size());
  if (!text.add_to(out, memory)) return std::nullopt;
  return names.intern({copy.data(), out.end(copy.size())});
}

}  // namespace

// A thread gets another state each time that C code running in it calls Python anew; the previous one is then
// gone, or belongs to another thread.
void SampledThread::offer(std::uint32_t index) noexcept {
  const PythonInterpreter* python = readable_python();
  if (python == nullptr || python->is_finalizing() != 0) return;
  const void* state = python->this_thread();
  const void* chosen = state_.load(std::memory_order_relaxed);
  const bool is_same_thread = index_.load(std::memory_order_relaxed) == index;
  if (state == nullptr || (chosen == state && is_same_thread)) return;
  const bool is_free = chosen == nullptr || chosen == state || is_same_thread;
  if (!is_free && is_main_.load(std::memory_order_relaxed)) return;
  const bool is_main = syscall(SYS_gettid) == getpid();
  if ((!is_free && !is_main) || !state_.compare_exchange_strong(chosen, state, std::memory_order_relaxed))
    return;
  index_.store(index, std::memory_order_relaxed);
  is_main_.store(is_main, std::memory_order_release);
}

void SampledThread::clear() noexcept {
  is_main_.store(false, std::memory_order_relaxed);
  state_.store(nullptr, std::memory_order_relaxed);
}

// Another thread may be chosen between the two reads: then one sample is attributed to the wrong thread.
SampledThread::Chosen SampledThread::chosen() const noexcept {
  const void* state = state_.load(std::memory_order_acquire);
  return {index_.load(std::memory_order_relaxed), state};
}

ThreadStacks::Reading ThreadStacks::read_chain(const void* state, Chain& chain) noexcept {
  const PythonInterpreter& python = *readable_python();
  const PythonLayout& layout = *python.layout;
  memory_.forget();
  chain.count = 0;
  chain.is_cut = false;
  const void* frame = memory_.pointer(state, layout.current_frame);
  if (layout.cframe_frame != kNoMember) frame = memory_.pointer(frame, layout.cframe_frame);
  if (frame == nullptr) return Reading::kNothing;
  Head head;
  Head code_head;
  bool is_generator = false;
  for (std::size_t hidden = 0; frame != nullptr;) {
    if (!head.copy(memory_, frame, frame_bytes(layout))) return Reading::kTorn;
    // A freed frame object is kept for the next call; it has no caller, or another freed one.
    if (layout.has_frame_objects() &&
        (!head.has_type(python.frame_type) || head.read<std::int64_t>(kReferences) <= 0))
      return Reading::kTorn;
    const void* code = referred(layout, head.read<const void*>(layout.code));
    if (code != nullptr &&
        (!code_head.copy(memory_, code, code_bytes(layout)) || !code_head.has_type(python.code_type)))
      code = nullptr;
    std::int64_t unit = -1;
    if (layout.has_frame_objects()) {
      unit = head.read<std::int32_t>(layout.instruction);
    } else if (code != nullptr) {
      const auto begin = reinterpret_cast<std::uintptr_t>(code) + layout.instructions;
      unit = static_cast<std::int64_t>(head.read<std::uintptr_t>(layout.instruction) - begin) / 2;
    }
    std::optional<std::uint8_t> owner;
    if (layout.owner != kNoMember) owner = head.read<std::uint8_t>(layout.owner);
    const std::int32_t first =
        owner && code != nullptr ? code_head.read<std::int32_t>(layout.first_traceable) : 0;
    if (owner && is_hidden_frame(*owner, code != nullptr, unit, first)) {
      if (++hidden > kMaxHiddenFrames) return Reading::kTorn;
    } else if (code == nullptr) {
      return Reading::kTorn;
    } else if (chain.count == kMaxFrames) {
      chain.is_cut = true;
      return Reading::kWhole;
    } else {
      chain.frames[chain.count++] = {frame, code, unit};
      is_generator = (code_head.read<std::uint32_t>(layout.flags) & kIsGenerator) != 0;
    }
    frame = head.read<const void*>(layout.caller);
  }
  // A generator that has just yielded has no caller any more.
  return chain.count != 0 && !is_generator ? Reading::kWhole : Reading::kTorn;
}

/// The innermost frames of short calls have often gone when they are read. False if this happens each time.
bool ThreadStacks::read_whole(const void* state, Chain& chain) noexcept {
  Reading reading = Reading::kTorn;
  for (int i = 0; i < kReadings && reading == Reading::kTorn; ++i) reading = read_chain(state, chain);
  return reading == Reading::kWhole;
}

/// Copies the table into lines_; returns the number of bytes.
std::size_t ThreadStacks::read_lines(const void* table) noexcept {
  if (!memory_.has_type(table, readable_python()->bytes_type)) return 0;
  const auto size = memory_.read<std::uint64_t>(table, python_object::kSize);
  const auto* bytes = static_cast<const char*>(table) + python_object::kBytes;
  const std::size_t part = std::min<std::uint64_t>(size, lines_.size());
  return memory_.copy_bytes(bytes, lines_.data(), part) ? part : 0;
}

/// True if it could be read.
bool ThreadStacks::read_code(Frame& frame, NameTable& names) noexcept {
  const PythonInterpreter& python = *readable_python();
  const PythonLayout& layout = *python.layout;
  Head head;
  if (!head.copy(memory_, frame.code, code_bytes(layout)) || !head.has_type(python.code_type)) return false;
  const auto name = intern(python, memory_, head.read<const void*>(name_of(layout)), names);
  const auto file = intern(python, memory_, head.read<const void*>(layout.file), names);
  if (!name || !file) return false;
  int line = head.read<std::int32_t>(layout.first_line);
  if (frame.unit >= 0) {
    const std::size_t size = read_lines(head.read<const void*>(layout.line_table));
    line = find_line({lines_.data(), size}, layout.has_frame_objects(), line,
                     static_cast<std::uint64_t>(frame.unit))
               .line;
  }
  frame.name = *name;
  frame.file = *file;
  frame.line = line > 0 ? static_cast<std::uint32_t>(line) : 0;
  return true;
}

/// Keeps only the frames from `begin` to `end`.
void ThreadStacks::keep(Chain& chain, std::size_t begin, std::size_t end) noexcept {
  chain.count = end - begin;
  std::copy_n(chain.frames.begin() + static_cast<std::ptrdiff_t>(begin), chain.count, chain.frames.begin());
}

/// Keeps the part of the chain that is also in the other one, from the outermost frame on. A frame that has
/// moved to another instruction is the last one kept, because it may have called another function since.
void ThreadStacks::keep_common(Chain& chain, const Chain& other) noexcept {
  std::size_t end = chain.count;
  std::size_t other_end = other.count;
  if (chain.is_cut || other.is_cut) {
    // If the stack has grown or shrunk, other frames are left out of it.
    const auto find_outermost = [](const Chain& of, const Chain& in) {
      for (std::size_t i = in.count; i != 0; --i) {
        if (in.frames[i - 1].frame == of.frames[of.count - 1].frame) return i;
      }
      return std::size_t{0};
    };
    other_end = find_outermost(chain, other);
    if (other_end == 0) {
      other_end = other.count;
      end = find_outermost(other, chain);
    }
    chain.is_cut = true;
  }
  std::size_t begin = end;
  while (begin != 0 && other_end != 0) {
    const Frame& one = chain.frames[begin - 1];
    const Frame& same = other.frames[--other_end];
    if (one.frame != same.frame || one.code != same.code) break;
    --begin;
    if (one.unit != same.unit) break;
  }
  keep(chain, begin, end);
}

/// Reads the stable part into first_; false if there is none.
bool ThreadStacks::read_stable(const void* state, NameTable& names) noexcept {
  if (!read_whole(state, second_) || !read_whole(state, first_)) return false;
  keep_common(first_, second_);
  // From the outermost frame on: without a frame's name, its callees can't be shown.
  for (std::size_t i = first_.count; i != 0; --i) {
    if (read_code(first_.frames[i - 1], names)) continue;
    keep(first_, i, first_.count);
    break;
  }
  // The frames may have gone before this, and the names may be those of other code created since.
  if (first_.count == 0 || !read_whole(state, second_)) return false;
  keep_common(first_, second_);
  return first_.count != 0;
}

std::uint32_t ThreadStacks::read(const void* state, CodePlaces& places) noexcept {
  const PythonInterpreter* python = readable_python();
  if (state == nullptr || python == nullptr) return 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (python->is_finalizing() != 0) return 0;
    if (!read_stable(state, places.names())) continue;
    std::uint32_t node = 0;
    if (first_.is_cut)
      node =
          places.node({CodeNodeKind::kFrame, 0, places.names().intern(kOuterFrames), NameTable::kEmpty, 0});
    for (std::size_t i = first_.count; i != 0; --i) {
      const Frame& frame = first_.frames[i - 1];
      node = places.node({CodeNodeKind::kFrame, node, frame.name, frame.file, frame.line});
      if (node == 0) return 0;
    }
    return node;
  }
  return 0;
}

}  // namespace inject
