// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The Python frames of the thread that asks: CPython 3.10 to 3.14 with a GIL.
//
// They are read where the interpreter keeps them, without the GIL. That is sound for a thread's own frames
// while it is inside a call from Python into C, or was never in Python: no other thread changes which frames
// it has, and what is read of a frame's code never changes while the frame lives. Two things may be changed
// by another thread that has the GIL: a local variable (3.13 and later, by frame.f_locals), and what a cell
// contains. So an object that was read from there is as good as its owner's care; use it at once.
//
// Of the interpreter two functions are called, which each read a variable: PyGILState_GetThisThreadState()
// and Py_IsFinalizing(). While the interpreter is being finalized it frees the states of threads that still
// run, so there are no frames any more.
//
// In a second interpreter of the process, 3.11 and before return the thread's state in the first one, whose
// frames are those from which the second one was entered: frames of the thread, but not its innermost.
#pragma once

#include <cstddef>

namespace inject {

/// Looks for an interpreter among the objects loaded since the last call. Once it has found one, readable
/// or not, later calls return at once. A debug message says what was found, and why it
/// is not read. On our own thread, with no lock held. Returns whether there is one that can be read.
bool find_python() noexcept;
/// Whether it has found one that may be read. Any thread.
bool has_python() noexcept;

// The following are for the program's threads, in callbacks as well: no lock, allocation or message, and no
// system call but in the first call on a thread that runs Python, which tests what is assumed of the
// interpreter, by reading only memory of which the kernel says that it is there. errno is kept.

/// A frame of the calling thread, null if there is none. Valid until the thread returns to Python.
struct PythonFrame {
  const void* frame = nullptr;
  explicit operator bool() const noexcept { return frame != nullptr; }
};

/// As sys._getframe() returns it: the frame that called into C. None if no interpreter has been found and
/// tested, and on a thread that has no Python state or no frame.
PythonFrame innermost_frame() noexcept;

/// As its f_back.
PythonFrame caller_of(PythonFrame frame) noexcept;

// Text is copied as UTF-8, cut between characters so that `size` bytes with a zero at the end hold it. Its
// length without the zero is returned. A character that is none in UTF-8 (half of a surrogate pair) and a
// zero become '?'. Where there is no frame it is empty.

/// co_qualname from 3.11 on, before that co_name.
std::size_t copy_qualified_name(PythonFrame frame, char* text, std::size_t size) noexcept;
std::size_t copy_name(PythonFrame frame, char* text, std::size_t size) noexcept;
std::size_t copy_file(PythonFrame frame, char* text, std::size_t size) noexcept;

/// f_lineno: that of the instruction which the frame is at; 0 if it has none. It costs a pass over the table
/// of the function's lines, up to a megabyte of it; beyond there the line is 0 as well.
int line_of(PythonFrame frame) noexcept;

/// What the frame's function got as its first positional argument: the first parameter's value, or the first
/// item of *args if there is no other. As it is now: a function may have assigned another one. Null if there
/// is none.
const void* first_argument(PythonFrame frame) noexcept;

/// The name of an object's type: tp_name, with the module before it for types of C. Empty without an object.
std::size_t copy_type_name(const void* object, char* text, std::size_t size) noexcept;

}  // namespace inject
