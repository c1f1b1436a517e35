// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Where CPython keeps the data needed to read its frames: 64-bit builds with a GIL, without Py_DEBUG.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace inject {

/// Bytes from an object's beginning.
using PythonOffset = std::uint16_t;
inline constexpr PythonOffset kNoMember = 0xFFFF;

/// CPython's structs have kept these from 3.10 to 3.14.
namespace python_object {
inline constexpr PythonOffset kType = 8;              // PyObject.ob_type
inline constexpr PythonOffset kSize = 16;             // PyVarObject.ob_size
inline constexpr PythonOffset kTypeName = 24;         // PyTypeObject.tp_name
inline constexpr PythonOffset kTypeBasicSize = 32;    // PyTypeObject.tp_basicsize
inline constexpr PythonOffset kTypeFlags = 168;       // PyTypeObject.tp_flags
inline constexpr PythonOffset kBytes = 32;            // PyBytesObject.ob_sval
inline constexpr PythonOffset kTextLength = 16;       // PyASCIIObject.length
inline constexpr PythonOffset kTextState = 32;        // PyASCIIObject.state
inline constexpr PythonOffset kCellContents = 16;     // PyCellObject.ob_ref
inline constexpr std::uint64_t kIsType = 1u << 31;    // Py_TPFLAGS_TYPE_SUBCLASS
inline constexpr std::uint64_t kIsDict = 1u << 29;    // Py_TPFLAGS_DICT_SUBCLASS
inline constexpr std::uint64_t kOnHeap = 1u << 9;     // Py_TPFLAGS_HEAPTYPE
inline constexpr PythonOffset kTypeDictOffset = 288;  // PyTypeObject.tp_dictoffset
inline constexpr PythonOffset kDictKeys = 32;         // PyDictObject.ma_keys
inline constexpr PythonOffset kDictValues = 40;       // PyDictObject.ma_values
inline constexpr std::uint32_t kHasVarargs = 4;       // CO_VARARGS in co_flags
inline constexpr std::uint8_t kIsCell = 0x40;         // CO_FAST_CELL (pycore_code.h) in co_localspluskinds
}  // namespace python_object

/// What differs between versions, and members that only some have.
struct PythonLayout {
  unsigned minor;  // of 3.minor

  // PyThreadState, cpython/pystate.h. 3.11 and 3.12 have a _PyCFrame on the C stack in between.
  PythonOffset current_frame;  // frame (3.10), cframe (3.11, 3.12), current_frame
  PythonOffset cframe_frame;   // _PyCFrame.current_frame

  // PyFrameObject in 3.10 (cpython/frameobject.h), _PyInterpreterFrame later (pycore_frame.h).
  PythonOffset caller;       // f_back, previous
  PythonOffset code;         // f_code, f_executable
  PythonOffset instruction;  // f_lasti, an int in 3.10; prev_instr, instr_ptr: a pointer into the code
  PythonOffset locals;       // f_localsplus, localsplus
  PythonOffset owner;
  std::uint8_t reference_tag;  // bits of a _PyStackRef that are no address (pycore_stackref.h)

  // PyCodeObject, cpython/code.h.
  PythonOffset argument_count;
  PythonOffset keyword_count;
  PythonOffset flags;
  PythonOffset first_line;
  PythonOffset file;
  PythonOffset name;
  PythonOffset qualified_name;
  PythonOffset line_table;
  PythonOffset local_count;      // co_nlocals (3.10), co_nlocalsplus
  PythonOffset local_names;      // co_varnames (3.10), co_localsplusnames
  PythonOffset local_kinds;      // co_localspluskinds
  PythonOffset first_traceable;  // _co_firsttraceable
  PythonOffset instructions;     // co_code, a bytes object (3.10); co_code_adaptive, in the object itself
  PythonOffset global_names;     // co_names
  PythonOffset cell_names;       // co_cellvars
  PythonOffset cell_arguments;   // co_cell2arg

  // PyTupleObject, PyASCIIObject, PyCompactUnicodeObject.
  PythonOffset tuple_items;
  PythonOffset ascii_size;
  PythonOffset compact_size;

  bool has_frame_objects() const noexcept { return minor == 10; }
};

/// Null for a version that is not known.
const PythonLayout* python_layout(unsigned minor) noexcept;

/// What stands at the beginning of _PyRuntime from 3.13 on: _Py_DebugOffsets (pycore_runtime.h,
/// pycore_debug_offsets.h), made by the compiler that compiled the interpreter. Null if it says that the
/// interpreter is of that version and layout, and has a GIL; otherwise why it is not.
const char* contradiction(const PythonLayout& layout, std::uint64_t version, const void* runtime) noexcept;

template <typename T>
T read_at(const void* object, std::size_t offset) noexcept {
  std::array<char, sizeof(T)> bytes;
  // Callers hand over what is_plausible(), which the analyzer can't follow everywhere.
  // NOLINTNEXTLINE(clang-analyzer-core.NullPointerArithm)
  std::memcpy(bytes.data(), static_cast<const char*>(object) + offset, bytes.size());
  return std::bit_cast<T>(bytes);
}

inline const void* pointer_at(const void* object, std::size_t offset) noexcept {
  return read_at<const void*>(object, offset);
}

/// Whether `pointer` may be that of an object or a frame: in the lower half of the address space, aligned.
inline bool is_plausible(const void* pointer) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  return pointer != nullptr && address >= 4096 && address < (std::uintptr_t{1} << 56u) &&
         address % sizeof(void*) == 0;
}

/// The object that a slot of a frame refers to; null if there is none, as for an integer that 3.14 keeps in
/// the slot itself (both tag bits).
inline const void* referred(const PythonLayout& layout, const void* slot) noexcept {
  const auto bits = reinterpret_cast<std::uintptr_t>(slot);
  if (layout.reference_tag != 0 && (bits & layout.reference_tag) == layout.reference_tag) return nullptr;
  const auto* object = reinterpret_cast<const void*>(bits & ~std::uintptr_t{layout.reference_tag});
  return is_plausible(object) ? object : nullptr;
}

/// Whether sys._getframe() passes a frame over: one of the interpreter's own, where C has called Python
/// (FRAME_OWNED_BY_CSTACK in 3.12 and 3.13, FRAME_OWNED_BY_INTERPRETER in 3.14 and what is above it), or one
/// that has not reached its function's first traceable instruction (_PyFrame_IsIncomplete, pycore_frame.h).
/// `has_code` is false for one of the former, from 3.13 on.
constexpr bool is_hidden_frame(std::uint8_t owner, bool has_code, std::int64_t unit,
                               int first_traceable) noexcept {
  constexpr std::uint8_t kGenerator = 1;  // FRAME_OWNED_BY_GENERATOR
  constexpr std::uint8_t kInterpreter = 3;
  return owner >= kInterpreter || (owner != kGenerator && has_code && unit < first_traceable);
}

}  // namespace inject
