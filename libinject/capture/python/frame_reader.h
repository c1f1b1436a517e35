// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The Python frames of the calling thread: CPython 3.10 to 3.14 with a GIL.
//
// They are read where the interpreter keeps them, without the GIL. That is sound for a thread's own frames
// while it is inside a call from Python into C, or was never in Python: no other thread changes which frames
// it has, and the parts of a frame's code that are read never change while the frame lives. Two things may be
// changed by another thread that has the GIL: a local variable (3.13 and later, by frame.f_locals), and the
// contents of a cell. So an object read from there is only as valid as its owner keeps it; use it at once.
//
// Two functions of the interpreter are called, each of which reads a variable:
// PyGILState_GetThisThreadState() and Py_IsFinalizing(). While the interpreter is being finalized it frees
// the states of threads that are still running, so there are no frames any more.
//
// In a second interpreter of the process, 3.11 and earlier return the thread's state in the first one, whose
// frames are those from which the second one was entered: frames of the thread, but not its innermost ones.
#pragma once

#include <cstddef>

namespace inject {

/// Looks for an interpreter among the objects loaded since the last call. Once it has found one, readable or
/// not, later calls return at once. A debug message says what was found, and why it is not read. On our own
/// thread, with no lock held. True if there is one that can be read.
bool find_python() noexcept;
/// True if find_python() has found one that may be read. Any thread.
bool has_python() noexcept;

// The following are for the program's threads, also in callbacks: no lock, allocation or message, and no
// system call except in the first call on a thread that runs Python, which tests our assumptions about the
// interpreter, reading only memory that the kernel has confirmed to be mapped. errno is preserved.

/// A frame of the calling thread, null if there is none. Valid until the thread returns to Python.
struct PythonFrame {
  const void* frame = nullptr;
  explicit operator bool() const noexcept { return frame != nullptr; }
};

/// The frame that sys._getframe() would return: the one that called into C. None if no interpreter has been
/// found and tested, and on a thread that has no Python state or no frame.
PythonFrame innermost_frame() noexcept;

/// The frame's f_back.
PythonFrame caller_of(PythonFrame frame) noexcept;

// Text is copied as UTF-8, truncated between characters so that `size` bytes including a terminating zero
// hold it. Returns its length without the zero. A character that does not exist in UTF-8 (half of a surrogate
// pair) and a zero become '?'. Without a frame, the text is empty.

/// co_qualname from 3.11 on, before that co_name.
std::size_t copy_qualified_name(PythonFrame frame, char* text, std::size_t size) noexcept;
std::size_t copy_name(PythonFrame frame, char* text, std::size_t size) noexcept;
std::size_t copy_file(PythonFrame frame, char* text, std::size_t size) noexcept;

/// f_lineno: the line of the frame's current instruction; 0 if it has none. It costs a pass over the
/// function's line table, up to a megabyte of it; beyond that the line is 0 as well.
int line_of(PythonFrame frame) noexcept;

/// The first positional argument of the frame's function: the first parameter's value, or the first item of
/// *args if there is no parameter. Its current value: the function may have assigned another one. Null if
/// there is none.
const void* first_argument(PythonFrame frame) noexcept;

/// The name of an object's type: tp_name, which for types in C includes the module. Empty without an object.
std::size_t copy_type_name(const void* object, char* text, std::size_t size) noexcept;

}  // namespace inject
