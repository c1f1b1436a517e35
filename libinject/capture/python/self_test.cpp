// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/python/self_test.h"

#include <algorithm>
#include <array>
#include <span>

#include "libinject/base/caller_state.h"
#include "libinject/capture/python/line_table.h"
#include "libinject/capture/python/untrusted_memory.h"

namespace inject {

namespace {

constexpr int kTestedFrames = 64;
constexpr std::int64_t kMaxTestedSize = std::int64_t{1} << 24u;
constexpr int kMaxVariables = 1 << 16;

class LayoutTest {
 public:
  explicit LayoutTest(const PythonInterpreter& python) : python_(python), layout_(*python.layout) {}

  PythonTestResult run(const void* thread) noexcept {
    if (!memory_.works()) return failed("the kernel does not say which memory can be read");
    const void* frame = memory_.pointer(thread, layout_.current_frame);
    if (frame != nullptr && layout_.cframe_frame != kNoMember) {
      if (!is_plausible(frame)) return failed("a thread's state has no frames where they should be");
      frame = memory_.pointer(frame, layout_.cframe_frame);
    }
    if (frame == nullptr) return {};
    if (!names_its_types()) return failed("its types have other names");
    Seen seen;
    for (int depth = 0; depth < kTestedFrames && frame != nullptr; ++depth) {
      if (const char* why = fault_in(frame, seen); why != nullptr) return failed(why);
      frame = memory_.pointer(frame, layout_.caller);
    }
    if (seen.complete == 0) return {};
    if (seen.with_lines == 0) return failed("no function's lines are those of its instructions");
    return {PythonTest::kPassed, ""};
  }

 private:
  /// Frames that run a function. A program may have functions without lines, but not only those.
  struct Seen {
    int complete = 0;
    int with_lines = 0;
  };

  static PythonTestResult failed(const char* why) noexcept { return {PythonTest::kFailed, why}; }

  bool names_its_types() const noexcept {
    struct NamedType {
      const void* type;
      const char* name;
    };
    const std::array<NamedType, 6> names = {{{python_.code_type, "code"},
                                             {python_.text_type, "str"},
                                             {python_.bytes_type, "bytes"},
                                             {python_.tuple_type, "tuple"},
                                             {python_.cell_type, "cell"},
                                             {python_.frame_type, "frame"}}};
    return std::all_of(names.begin(), names.end(), [&](const NamedType& known) {
      const void* name = memory_.pointer(known.type, python_object::kTypeName);
      const std::size_t bytes = std::strlen(known.name) + 1;
      return memory_.holds(name, bytes) && std::memcmp(name, known.name, bytes) == 0 && is_type(known.type);
    });
  }

  bool is_type(const void* object) const noexcept {
    const void* type = memory_.pointer(object, python_object::kType);
    return (memory_.read<std::uint64_t>(type, python_object::kTypeFlags) & python_object::kIsType) != 0;
  }

  bool is_object(const void* object) const noexcept {
    return is_plausible(object) && is_type(memory_.pointer(object, python_object::kType));
  }

  bool is_text(const void* object) const noexcept {
    if (!memory_.has_type(object, python_.text_type)) return false;
    const auto length = memory_.read<std::int64_t>(object, python_object::kTextLength);
    const auto state = memory_.read<std::uint32_t>(object, python_object::kTextState);
    const unsigned kind = (state >> 2u) & 7u;
    const bool compact = ((state >> 5u) & 1u) != 0;
    const bool ascii = ((state >> 6u) & 1u) != 0;
    if (length < 0 || length > kMaxTestedSize || (kind != 1 && kind != 2 && kind != 4)) return false;
    if (!compact) return true;  // read through its own pointer, rare
    const auto* data = static_cast<const char*>(object) + (ascii ? layout_.ascii_size : layout_.compact_size);
    const std::size_t bytes = static_cast<std::size_t>(length) * kind;
    if (!memory_.holds(data, bytes + kind)) return false;
    // It ends with a zero character.
    return std::all_of(data + bytes, data + bytes + kind, [](char byte) { return byte == 0; });
  }

  /// The bytes of a bytes object; with a null pointer if it is not one.
  std::span<const unsigned char> bytes_of(const void* object) const noexcept {
    if (!memory_.has_type(object, python_.bytes_type)) return {};
    const auto size = memory_.read<std::int64_t>(object, python_object::kSize);
    const auto* data = static_cast<const unsigned char*>(object) + python_object::kBytes;
    if (size < 0 || size > kMaxTestedSize || !memory_.holds(data, static_cast<std::size_t>(size) + 1))
      return {};
    if (data[size] != 0) return {};
    return {data, static_cast<std::size_t>(size)};
  }

  /// True for a tuple of `count` names; -1: of any number.
  bool are_names(const void* object, std::int64_t count) const noexcept {
    if (!memory_.has_type(object, python_.tuple_type)) return false;
    const auto size = memory_.read<std::int64_t>(object, python_object::kSize);
    if (size < 0 || size > kMaxTestedSize || (count >= 0 && size != count)) return false;
    const auto name = [&](std::int64_t index) {
      return memory_.pointer(object, layout_.tuple_items + static_cast<std::size_t>(index) * sizeof(void*));
    };
    return size == 0 || (is_text(name(0)) && is_text(name(size - 1)));
  }

  int number(const void* object, PythonOffset offset) const noexcept {
    return memory_.read<std::int32_t>(object, offset);
  }

  /// Number of code units in the code; 0 if it is unknown.
  std::uint64_t units_of(const void* code) const noexcept {
    if (layout_.has_frame_objects()) return bytes_of(memory_.pointer(code, layout_.instructions)).size() / 2;
    const auto units = memory_.read<std::int64_t>(code, python_object::kSize);
    if (units <= 0 || units > kMaxTestedSize) return 0;
    const auto* begin = static_cast<const char*>(code) + layout_.instructions;
    return memory_.holds(begin, static_cast<std::size_t>(units) * 2) ? static_cast<std::uint64_t>(units) : 0;
  }

  const char* fault_in_code(const void* code) const noexcept {
    if (!is_text(memory_.pointer(code, layout_.name)) || !is_text(memory_.pointer(code, layout_.file)) ||
        (layout_.qualified_name != kNoMember && !is_text(memory_.pointer(code, layout_.qualified_name))))
      return "a function has no name or file where they should be";
    const int locals = number(code, layout_.local_count);
    const int arguments = number(code, layout_.argument_count);
    const int keywords = number(code, layout_.keyword_count);
    const bool has_varargs =
        (static_cast<unsigned>(number(code, layout_.flags)) & python_object::kHasVarargs) != 0;
    if (locals < 0 || locals > kMaxVariables || arguments < 0 || keywords < 0 || arguments > locals ||
        keywords > locals || arguments + keywords + (has_varargs ? 1 : 0) > locals)
      return "a function has other numbers of variables";
    if (!are_names(memory_.pointer(code, layout_.local_names), locals) ||
        !are_names(memory_.pointer(code, layout_.global_names), -1))
      return "a function's variables have no names";
    if (layout_.local_kinds != kNoMember) {
      const auto kinds = bytes_of(memory_.pointer(code, layout_.local_kinds));
      if (kinds.data() == nullptr || kinds.size() != static_cast<std::size_t>(locals))
        return "a function's variables have no kinds";
    } else if (!are_names(memory_.pointer(code, layout_.cell_names), -1)) {
      return "a function's cells have no names";
    }
    return nullptr;
  }

  bool has_lines(const void* code, std::uint64_t units) const noexcept {
    const auto table = bytes_of(memory_.pointer(code, layout_.line_table));
    const int first_line = number(code, layout_.first_line);
    return first_line >= 0 &&
           find_line(table, layout_.has_frame_objects(), first_line, kBeyondCode).units == units;
  }

  /// Each slot for an argument must be empty or refer to an object.
  bool has_arguments(const void* frame, const void* code) const noexcept {
    const int arguments = std::min(number(code, layout_.argument_count), 8);
    for (int i = 0; i < arguments; ++i) {
      const void* slot = memory_.pointer(frame, layout_.locals + static_cast<std::size_t>(i) * sizeof(void*));
      const void* object = referred(layout_, slot);
      const auto bits = reinterpret_cast<std::uintptr_t>(slot);
      const bool is_empty = bits == 0 || (layout_.reference_tag != 0 && bits == 1);  // PyStackRef_NULL is 1
      if (!is_empty && !is_object(object)) return false;
    }
    return true;
  }

  /// The fault found; null if there is none.
  const char* fault_in(const void* frame, Seen& seen) const noexcept {
    constexpr unsigned kLastOwner = 4;  // FRAME_OWNED_BY_CSTACK in 3.14
    constexpr unsigned kFirstHiddenOwner = 3;
    constexpr unsigned kGenerator = 1;
    if (!is_plausible(frame) || !memory_.holds(frame, layout_.locals)) return "a frame is no frame";
    if (layout_.has_frame_objects() && !memory_.has_type(frame, python_.frame_type))
      return "a frame has another type";
    unsigned owner = 0;
    if (layout_.owner != kNoMember) owner = memory_.read<std::uint8_t>(frame, layout_.owner);
    if (owner > kLastOwner) return "a frame has an unknown owner";
    const void* code = referred(layout_, memory_.pointer(frame, layout_.code));
    // One of the interpreter's own frames, where C has called Python.
    if (owner >= kFirstHiddenOwner) return is_object(code) ? nullptr : "a frame has nothing to run";
    if (!memory_.has_type(code, python_.code_type)) return "a frame has no code";
    if (const char* why = fault_in_code(code); why != nullptr) return why;
    const auto units = static_cast<std::int64_t>(units_of(code));
    // Made only for a traceback (PyCode_NewEmpty() in 3.10): nothing to test.
    if (units == 0) return nullptr;
    std::int64_t unit = 0;
    std::int64_t traceable = 0;
    if (layout_.has_frame_objects()) {
      unit = number(frame, layout_.instruction);
    } else {
      const auto begin = reinterpret_cast<std::uintptr_t>(code) + layout_.instructions;
      const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(memory_.pointer(frame, layout_.instruction));
      const auto distance = static_cast<std::int64_t>(at - begin);
      if (distance % 2 != 0) return "a frame is between two instructions";
      unit = distance / 2;
      traceable = number(code, layout_.first_traceable);
      if (traceable < 0 || traceable >= units) return "a function has no first instruction";
    }
    if (unit < -1 || unit >= units) return "a frame is outside of its code";
    if (owner != kGenerator && unit < traceable) return nullptr;
    if (!has_arguments(frame, code)) return "a frame has no arguments where they should be";
    ++seen.complete;
    if (has_lines(code, static_cast<std::uint64_t>(units))) ++seen.with_lines;
    return nullptr;
  }

  const PythonInterpreter& python_;
  const PythonLayout& layout_;
  UntrustedMemory memory_;
};

}  // namespace

PythonTestResult test_layout(const PythonInterpreter& interpreter, const void* thread) noexcept {
  const CallerState caller;
  return LayoutTest(interpreter).run(thread);
}

}  // namespace inject
