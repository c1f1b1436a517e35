// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/python/thread_stack.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "libinject/capture/python/code_context.h"
#include "libinject/capture/python/doubtful_memory.h"
#include "libinject/capture/python/interpreter.h"
#include "libinject/capture/python/line_table.h"
#include "libinject/capture/python/python_text.h"

namespace inject {

namespace {

constexpr std::size_t kMaxText = 512;
constexpr std::int64_t kMaxLines = std::int64_t{1} << 16u;
/// Frames that run no function lie between others.
constexpr std::size_t kMaxHidden = 64;
/// As much of a frame or a code object as is looked at.
constexpr std::size_t kMaxHead = 512;

/// The beginning of an object, copied.
class Head {
 public:
  bool copy(const void* object, std::size_t bytes) noexcept {
    return is_plausible(object) && ChangingMemory().copy(object, bytes_, bytes);
  }
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

std::uint32_t intern(const PythonInterpreter& python, const void* object, NameTable& names) noexcept {
  std::array<char, kMaxText> text;
  BoundedText out(text.data(), text.size());
  const ChangingMemory memory;
  if (!DoubtfulText::of(python, memory, object).add_to(out, memory)) return NameTable::kEmpty;
  return names.intern({text.data(), out.end(text.size())});
}

std::vector<unsigned char> copy_lines(const PythonInterpreter& python, const void* table) {
  const ChangingMemory memory;
  if (!memory.has_type(table, python.bytes_type)) return {};
  const auto size = memory.read<std::int64_t>(table, python_object::kSize);
  if (size <= 0 || size > kMaxLines) return {};
  std::vector<unsigned char> lines(static_cast<std::size_t>(size));
  const auto* bytes = static_cast<const char*>(table) + python_object::kBytes;
  if (!memory.copy_bytes(bytes, lines.data(), lines.size())) lines.clear();
  return lines;
}

}  // namespace

void SampledThread::offer(std::uint32_t index) noexcept {
  if (state_.load(std::memory_order_relaxed) != nullptr &&
      (is_main_.load(std::memory_order_relaxed) || index_.load(std::memory_order_relaxed) == index))
    return;
  const bool is_main = syscall(SYS_gettid) == getpid();
  const PythonInterpreter* python = readable_python();
  if (python == nullptr || python->is_finalizing() != 0) return;
  const void* state = python->this_thread();
  const void* none = nullptr;
  if (is_main) {
    state_.store(state, std::memory_order_relaxed);
  } else if (!state_.compare_exchange_strong(none, state, std::memory_order_relaxed)) {
    return;
  }
  index_.store(index, std::memory_order_relaxed);
  is_main_.store(is_main, std::memory_order_release);
}

void SampledThread::clear() noexcept {
  is_main_.store(false, std::memory_order_relaxed);
  state_.store(nullptr, std::memory_order_relaxed);
}

// Another thread may be chosen between the two reads: then one sample is taken for the wrong one of them.
SampledThread::Chosen SampledThread::chosen() const noexcept {
  const void* state = state_.load(std::memory_order_acquire);
  return {index_.load(std::memory_order_relaxed), state};
}

void ThreadStacks::read_chain(const void* state, Chain& chain) {
  const PythonInterpreter& python = *readable_python();
  const PythonLayout& layout = *python.layout;
  const ChangingMemory memory;
  chain.frames.clear();
  chain.is_whole = chain.is_cut = false;
  const void* frame = memory.pointer(state, layout.current_frame);
  if (layout.cframe_frame != kNoMember && frame != nullptr)
    frame = memory.pointer(frame, layout.cframe_frame);
  if (frame == nullptr) return;
  Head head;
  Head code_head;
  for (std::size_t hidden = 0; frame != nullptr;) {
    if (!head.copy(frame, frame_bytes(layout))) return;
    const void* code = referred(layout, head.read<const void*>(layout.code));
    if (code != nullptr && (!code_head.copy(code, code_bytes(layout)) ||
                            code_head.read<const void*>(python_object::kType) != python.code_type))
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
      if (++hidden > kMaxHidden) return;
    } else if (code == nullptr) {
      return;
    } else if (chain.frames.size() == kMaxFrames) {
      chain.is_cut = true;
      break;
    } else {
      chain.frames.push_back({frame, code, unit});
    }
    frame = head.read<const void*>(layout.caller);
  }
  chain.is_whole = true;
}

const ThreadStacks::Code* ThreadStacks::code(const void* address, CodePlaces& places) {
  const PythonInterpreter& python = *readable_python();
  const PythonLayout& layout = *python.layout;
  Head head;
  if (!head.copy(address, code_bytes(layout))) return nullptr;
  const CodeKey key{address, head.read<const void*>(name_of(layout)), head.read<const void*>(layout.file),
                    head.read<const void*>(layout.line_table), head.read<std::int32_t>(layout.first_line)};
  const auto seen =
      std::find_if(codes_.begin(), codes_.end(), [&](const Code& one) { return one.key == key; });
  if (seen != codes_.end()) return &*seen;
  if (codes_.size() == kMaxCode) codes_.clear();
  Code fresh{key, intern(python, key.name, places.names()), intern(python, key.file, places.names()),
             copy_lines(python, key.lines)};
  if (fresh.name == NameTable::kEmpty) return nullptr;
  codes_.push_back(std::move(fresh));
  return &codes_.back();
}

std::uint32_t ThreadStacks::read(const void* state, CodePlaces& places) noexcept {
  const PythonInterpreter* python = readable_python();
  if (state == nullptr || python == nullptr || python->is_finalizing() != 0) return 0;
  try {
    Chain first;
    Chain second;
    std::size_t common = 0;
    read_chain(state, first);
    for (int reading = 1; reading < kReadings && common == 0; ++reading) {
      read_chain(state, second);
      // Of a deep stack that has grown or shrunk other frames are left out.
      const bool comparable =
          first.is_whole && second.is_whole && (!first.is_cut || first.frames.size() == second.frames.size());
      const auto same = [](const Frame& one, const Frame& other) {
        return one.frame == other.frame && one.code == other.code;
      };
      if (comparable)
        common = static_cast<std::size_t>(std::mismatch(first.frames.rbegin(), first.frames.rend(),
                                                        second.frames.rbegin(), second.frames.rend(), same)
                                              .first -
                                          first.frames.rbegin());
      if (common == 0) std::swap(first, second);
    }
    std::uint32_t node = 0;
    if (first.is_cut && common != 0)
      node =
          places.node({CodeNodeKind::kFrame, 0, places.names().intern(kOuterFrames), NameTable::kEmpty, 0});
    for (std::size_t i = 0; i < common; ++i) {
      const Frame& frame = first.frames[first.frames.size() - 1 - i];
      const Code* known = code(frame.code, places);
      if (known == nullptr) return 0;
      int line = known->key.first_line;
      if (frame.unit >= 0)
        line = find_line(known->lines, python->layout->has_frame_objects(), line,
                         static_cast<std::uint64_t>(frame.unit))
                   .line;
      node = places.node({CodeNodeKind::kFrame, node, known->name, known->file,
                          line > 0 ? static_cast<std::uint32_t>(line) : 0});
      if (node == 0) return 0;
    }
    return node;
  } catch (...) {
    return 0;  // no memory: a sample less
  }
}

}  // namespace inject
