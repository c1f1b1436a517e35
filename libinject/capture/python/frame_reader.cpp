// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/python/frame_reader.h"

#include <atomic>
#include <span>
#include <string>

#include "libinject/base/format.h"
#include "libinject/base/log.h"
#include "libinject/capture/python/interpreter.h"
#include "libinject/capture/python/line_table.h"
#include "libinject/capture/python/python_text.h"
#include "libinject/capture/python/self_test.h"

namespace inject {

namespace {

enum class PythonState : unsigned char { kNone, kUntested, kBeingTested, kReadable, kRefused };

// `known_python` is written before the state becomes kUntested, and never again.
constinit PythonInterpreter known_python;
constinit std::atomic<PythonState> python_state{PythonState::kNone};
/// Why the test failed. Set before kRefused, by a program thread, and logged by ours.
constinit std::atomic<const char*> python_fault{nullptr};

/// Frames that run no function occur between others, one or two at a time.
constexpr int kMaxHidden = 64;
constexpr std::int64_t kMaxTable = std::int64_t{1} << 20u;
constexpr std::int64_t kMaxTuple = std::int64_t{1} << 20u;

bool is_of_type(const void* object, const void* type) noexcept {
  return is_plausible(object) && pointer_at(object, python_object::kType) == type;
}

int number_at(const void* object, PythonOffset offset) noexcept {
  return read_at<std::int32_t>(object, offset);
}

const void* this_thread() noexcept {
  if (known_python.is_finalizing() != 0) return nullptr;
  const void* thread = known_python.this_thread();
  return is_plausible(thread) ? thread : nullptr;
}

/// True if frames may be read. Tests this on a thread that has frames; in the meantime, other threads have
/// none.
bool is_readable() noexcept {
  PythonState state = python_state.load(std::memory_order_acquire);
  if (state == PythonState::kReadable) return true;
  if (state != PythonState::kUntested) return false;
  const void* thread = this_thread();
  if (thread == nullptr ||
      !python_state.compare_exchange_strong(state, PythonState::kBeingTested, std::memory_order_acq_rel))
    return false;
  const PythonTestResult result = test_layout(known_python, thread);
  if (result.test == PythonTest::kFailed) python_fault.store(result.why, std::memory_order_release);
  state = PythonState::kUntested;
  if (result.test == PythonTest::kPassed) state = PythonState::kReadable;
  if (result.test == PythonTest::kFailed) state = PythonState::kRefused;
  python_state.store(state, std::memory_order_release);
  return state == PythonState::kReadable;
}

const void* code_of(const void* frame) noexcept {
  const void* code = referred(*known_python.layout, pointer_at(frame, known_python.layout->code));
  return is_of_type(code, known_python.code_type) ? code : nullptr;
}

/// The code unit at which the frame is; -1 before the first.
std::int64_t unit_of(const void* frame, const void* code) noexcept {
  const PythonLayout& layout = *known_python.layout;
  if (layout.has_frame_objects()) return number_at(frame, layout.instruction);
  const auto begin = reinterpret_cast<std::uintptr_t>(code) + layout.instructions;
  const auto at = read_at<std::uintptr_t>(frame, layout.instruction);
  return static_cast<std::int64_t>(at - begin) / 2;
}

/// `code` is null for some of the interpreter's own frames.
bool is_hidden(const void* frame, const void* code) noexcept {
  const PythonLayout& layout = *known_python.layout;
  if (layout.owner == kNoMember) return false;
  const bool has_code = code != nullptr;
  return is_hidden_frame(read_at<std::uint8_t>(frame, layout.owner), has_code,
                         has_code ? unit_of(frame, code) : 0,
                         has_code ? number_at(code, layout.first_traceable) : 0);
}

PythonFrame first_visible(const void* frame) noexcept {
  for (int i = 0; i < kMaxHidden && is_plausible(frame); ++i) {
    const void* code = code_of(frame);
    if (!is_hidden(frame, code)) return {code == nullptr ? nullptr : frame};
    frame = pointer_at(frame, known_python.layout->caller);
  }
  return {};
}

std::size_t copy_member(PythonFrame frame, PythonOffset member, char* text, std::size_t size) noexcept {
  BoundedText out(text, size);
  const void* code = frame ? code_of(frame.frame) : nullptr;
  if (code != nullptr) add_text(known_python, out, pointer_at(code, member));
  return out.end(size);
}

const void* local_at(const void* frame, int index) noexcept {
  const auto offset = known_python.layout->locals + static_cast<std::size_t>(index) * sizeof(void*);
  return referred(*known_python.layout, pointer_at(frame, offset));
}

const void* contents_of(const void* cell) noexcept {
  const void* object = pointer_at(cell, python_object::kCellContents);
  return is_plausible(object) ? object : nullptr;
}

/// 3.10 moves an argument that is a cell variable to a cell behind the local variables. Its own slot is empty
/// from then on, or has an older value if the function is traced. co_cell2arg maps cells to arguments:
/// returns this argument's cell, null if there is none.
const void* cell_of_argument(const void* frame, const void* code, int index) noexcept {
  const PythonLayout& layout = *known_python.layout;
  const void* arguments = pointer_at(code, layout.cell_arguments);
  const void* names = pointer_at(code, layout.cell_names);
  if (!is_plausible(arguments) || !is_of_type(names, known_python.tuple_type)) return nullptr;
  const auto cells = read_at<std::int64_t>(names, python_object::kSize);
  for (std::int64_t i = 0; i < cells && i < kMaxTuple; ++i) {
    if (read_at<std::int64_t>(arguments, static_cast<std::size_t>(i) * sizeof(std::int64_t)) == index)
      return local_at(frame, number_at(code, layout.local_count) + static_cast<int>(i));
  }
  return nullptr;
}

/// From 3.11 on the cell is in the argument's own slot; co_localspluskinds marks such slots.
bool is_cell_variable(const void* code, int index) noexcept {
  const void* kinds = pointer_at(code, known_python.layout->local_kinds);
  return is_of_type(kinds, known_python.bytes_type) &&
         index < read_at<std::int64_t>(kinds, python_object::kSize) &&
         (read_at<std::uint8_t>(kinds, python_object::kBytes + static_cast<std::size_t>(index)) &
          python_object::kIsCell) != 0;
}

const void* argument_at(const void* frame, const void* code, int index) noexcept {
  const void* object = local_at(frame, index);
  const void* cell = nullptr;
  if (known_python.layout->has_frame_objects()) {
    cell = cell_of_argument(frame, code, index);
  } else if (is_cell_variable(code, index)) {
    cell = object;
  }
  return is_of_type(cell, known_python.cell_type) ? contents_of(cell) : object;
}

/// Logs why the test failed, once.
void tell_of_fault() noexcept {
  const char* fault = python_fault.exchange(nullptr, std::memory_order_acq_rel);
  if (fault == nullptr) return;
  try {
    Log::debug(str_format("Python's frames are not read, its layout is unknown: {}", fault));
  } catch (...) {
    Log::error_without_allocation("Python's frames are not read: its layout is unknown");
  }
}

}  // namespace

bool find_python() noexcept {
  static std::atomic<bool> busy{false};
  const PythonState state = python_state.load(std::memory_order_acquire);
  if (state == PythonState::kRefused) tell_of_fault();
  if (state != PythonState::kNone) return state != PythonState::kRefused;
  if (busy.exchange(true, std::memory_order_acq_rel)) return false;
  PythonSearch search = PythonSearch::kNotThere;
  try {
    std::string text;
    PythonInterpreter found;
    search = find_interpreter(found, text);
    if (search == PythonSearch::kFound) known_python = found;
    if (search != PythonSearch::kNotThere) Log::debug(text);
  } catch (...) {
    search = PythonSearch::kRefused;
    Log::error_without_allocation("Python's frames are not read: out of memory");
  }
  if (search == PythonSearch::kFound) python_state.store(PythonState::kUntested, std::memory_order_release);
  if (search == PythonSearch::kRefused) python_state.store(PythonState::kRefused, std::memory_order_release);
  busy.store(false, std::memory_order_release);
  return search == PythonSearch::kFound;
}

const PythonInterpreter* readable_python() noexcept {
  return is_readable() ? &known_python : nullptr;
}

bool has_python() noexcept {
  return found_python() != nullptr;
}

const PythonInterpreter* found_python() noexcept {
  const PythonState state = python_state.load(std::memory_order_acquire);
  return state != PythonState::kNone && state != PythonState::kRefused ? &known_python : nullptr;
}

PythonFrame innermost_frame() noexcept {
  if (!is_readable()) return {};
  const void* thread = this_thread();
  if (thread == nullptr) return {};
  const PythonLayout& layout = *known_python.layout;
  const void* frame = pointer_at(thread, layout.current_frame);
  if (layout.cframe_frame != kNoMember)
    frame = is_plausible(frame) ? pointer_at(frame, layout.cframe_frame) : nullptr;
  return first_visible(frame);
}

PythonFrame caller_of(PythonFrame frame) noexcept {
  if (!frame) return {};
  return first_visible(pointer_at(frame.frame, known_python.layout->caller));
}

std::size_t copy_qualified_name(PythonFrame frame, char* text, std::size_t size) noexcept {
  const bool has_it = frame && known_python.layout->qualified_name != kNoMember;
  return has_it ? copy_member(frame, known_python.layout->qualified_name, text, size)
                : copy_name(frame, text, size);
}

std::size_t copy_name(PythonFrame frame, char* text, std::size_t size) noexcept {
  return copy_member(frame, frame ? known_python.layout->name : kNoMember, text, size);
}

std::size_t copy_file(PythonFrame frame, char* text, std::size_t size) noexcept {
  return copy_member(frame, frame ? known_python.layout->file : kNoMember, text, size);
}

int line_of(PythonFrame frame) noexcept {
  const void* code = frame ? code_of(frame.frame) : nullptr;
  if (code == nullptr) return PythonLine::kNone;
  const PythonLayout& layout = *known_python.layout;
  const int first_line = number_at(code, layout.first_line);
  const std::int64_t unit = unit_of(frame.frame, code);
  if (unit < 0) return first_line;
  const void* table = pointer_at(code, layout.line_table);
  if (!is_of_type(table, known_python.bytes_type)) return PythonLine::kNone;
  const auto size = read_at<std::int64_t>(table, python_object::kSize);
  if (size <= 0) return PythonLine::kNone;
  const auto* bytes = static_cast<const unsigned char*>(table) + python_object::kBytes;
  return find_line({bytes, static_cast<std::size_t>(size < kMaxTable ? size : kMaxTable)},
                   layout.has_frame_objects(), first_line, static_cast<std::uint64_t>(unit))
      .line;
}

const void* first_argument(PythonFrame frame) noexcept {
  const void* code = frame ? code_of(frame.frame) : nullptr;
  if (code == nullptr) return nullptr;
  const PythonLayout& layout = *known_python.layout;
  const int arguments = number_at(code, layout.argument_count);
  if (arguments > 0) return argument_at(frame.frame, code, 0);
  if ((static_cast<unsigned>(number_at(code, layout.flags)) & python_object::kHasVarargs) == 0)
    return nullptr;
  // *args follows the keyword-only parameters.
  const void* rest = argument_at(frame.frame, code, number_at(code, layout.keyword_count));
  if (!is_of_type(rest, known_python.tuple_type) || read_at<std::int64_t>(rest, python_object::kSize) < 1)
    return nullptr;
  const void* object = pointer_at(rest, layout.tuple_items);
  return is_plausible(object) ? object : nullptr;
}

std::size_t copy_type_name(const void* object, char* text, std::size_t size) noexcept {
  if (size == 0) return 0;
  text[0] = '\0';
  const void* type = is_plausible(object) ? pointer_at(object, python_object::kType) : nullptr;
  const auto* name =
      type != nullptr && is_plausible(type) ? read_at<const char*>(type, python_object::kTypeName) : nullptr;
  if (name == nullptr) return 0;
  std::size_t length = 0;
  while (length < size - 1 && name[length] != '\0') ++length;
  // It is UTF-8 already: a character that does not fit is left out entirely.
  const auto continues = [&](std::size_t at) {
    return (static_cast<unsigned char>(name[at]) & 0xC0u) == 0x80u;
  };
  while (length > 0 && continues(length)) --length;
  std::memcpy(text, name, length);
  text[length] = '\0';
  return length;
}

}  // namespace inject
