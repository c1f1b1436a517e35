// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <string>

#include "libinject/capture/python/layout.h"

namespace inject {

/// What is used of a CPython in this process.
struct PythonInterpreter {
  const PythonLayout* layout = nullptr;
  /// PyGILState_GetThisThreadState(): reads thread-specific data.
  const void* (*this_thread)() = nullptr;
  /// Py_IsFinalizing(): reads a variable.
  int (*is_finalizing)() = nullptr;
  // Its type objects.
  const void* code_type = nullptr;
  const void* text_type = nullptr;
  const void* bytes_type = nullptr;
  const void* tuple_type = nullptr;
  const void* cell_type = nullptr;
  const void* frame_type = nullptr;
};

enum class PythonSearch : unsigned char { kNotThere, kRefused, kFound };

/// Looks for CPython among the objects that have been loaded since the last call: the program itself or a
/// libpython. `text` says what was found, or why it is refused. Waits for the loader: not from the program's
/// threads. Throws std::bad_alloc.
PythonSearch find_interpreter(PythonInterpreter& interpreter, std::string& text);

/// The one whose frames are read (frame_reader.h); null if there is none, or it has not been tested yet.
const PythonInterpreter* readable_python() noexcept;

}  // namespace inject
