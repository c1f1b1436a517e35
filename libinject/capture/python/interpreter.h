// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <string>

#include "libinject/capture/python/layout.h"

namespace inject {

/// A PyMethodDef.
struct PythonFunction {
  const char* name;
  void* (*call)(void* self, void* argument);
  int flags;
  const char* text;
};

/// The functions with which our own Python code is run (program_python.h). With the GIL, except for the
/// first.
struct PythonCalls {
  int (*add_pending_call)(int (*call)(void*), void* argument) = nullptr;
  void* (*compile)(const char* text, const char* file, int start) = nullptr;
  void* (*evaluate)(void* code, void* globals, void* locals) = nullptr;
  void* (*builtins)() = nullptr;  ///< borrowed
  void* (*new_dict)() = nullptr;
  int (*set_item)(void* dict, const char* key, void* value) = nullptr;
  void* (*get_item)(void* dict, const char* key) = nullptr;  ///< borrowed
  void* (*new_text)(const char* text) = nullptr;
  void* (*call)(void* callable, const char* format, ...) = nullptr;
  const char* (*utf8)(void* text, std::ptrdiff_t* size) = nullptr;
  void* (*new_function)(const PythonFunction* function, void* self, void* module) = nullptr;
  void* (*new_list)(std::ptrdiff_t size) = nullptr;
  int (*append)(void* list, void* item) = nullptr;
  std::ptrdiff_t (*list_size)(void* list) = nullptr;
  void* (*list_item)(void* list, std::ptrdiff_t index) = nullptr;  ///< borrowed
  void* (*new_number)(std::ptrdiff_t value) = nullptr;
  long long (*as_integer)(void* number) = nullptr;
  void* (*type_of)(void* object) = nullptr;
  int (*is_subtype)(void* type, void* base) = nullptr;
  int (*error_matches)(void* type) = nullptr;
  void (*clear_error)() = nullptr;
  void (*release)(void* object) = nullptr;
  // For batches of a DataLoader (loader_batch.h):
  int (*take_gil)() = nullptr;
  void (*return_gil)(int state) = nullptr;
  void* (*current_frame)() = nullptr;  ///< borrowed
  void* (*attribute)(void* object, const char* name) = nullptr;
  void* (*mapping_item)(void* mapping, const char* key) = nullptr;
  unsigned long (*type_flags)(void* type) = nullptr;
  void* (*dict_values)(void* dict) = nullptr;
  std::ptrdiff_t (*sequence_size)(void* sequence) = nullptr;
  void* (*sequence_item)(void* sequence, std::ptrdiff_t index) = nullptr;
  void* (*error_is_set)() = nullptr;  ///< borrowed
  void (*interrupt)() = nullptr;
  // The variables holding its error types:
  void* const* memory_error = nullptr;
  void* const* import_error = nullptr;
  void* const* recursion_error = nullptr;
  void* const* keyboard_interrupt = nullptr;

  bool complete() const noexcept {
    return add_pending_call != nullptr && compile != nullptr && evaluate != nullptr && builtins != nullptr &&
           new_dict != nullptr && set_item != nullptr && get_item != nullptr && new_text != nullptr &&
           call != nullptr && utf8 != nullptr && new_function != nullptr && new_list != nullptr &&
           append != nullptr && list_size != nullptr && list_item != nullptr && new_number != nullptr &&
           as_integer != nullptr && type_of != nullptr && is_subtype != nullptr && error_matches != nullptr &&
           clear_error != nullptr && release != nullptr && memory_error != nullptr &&
           import_error != nullptr && recursion_error != nullptr;
  }
  bool can_read_batches() const noexcept {
    return take_gil != nullptr && return_gil != nullptr && current_frame != nullptr && attribute != nullptr &&
           mapping_item != nullptr && type_flags != nullptr && dict_values != nullptr &&
           sequence_size != nullptr && sequence_item != nullptr && as_integer != nullptr &&
           error_is_set != nullptr && interrupt != nullptr && keyboard_interrupt != nullptr &&
           type_of != nullptr && utf8 != nullptr && error_matches != nullptr && clear_error != nullptr &&
           release != nullptr;
  }
};

/// What we use of a CPython in this process.
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
  PythonCalls calls;
};

enum class PythonSearch : unsigned char { kNotThere, kRefused, kFound };

/// Looks for CPython among the objects loaded since the last call: the program itself or a libpython. `text`
/// says what was found, or why it is refused. Waits for the loader: not for the program's threads. Throws
/// std::bad_alloc.
PythonSearch find_interpreter(PythonInterpreter& interpreter, std::string& text);

/// The interpreter whose frames are read (frame_reader.h); null if there is none, or it has not been tested
/// yet.
const PythonInterpreter* readable_python() noexcept;
/// The interpreter that was found, tested or not; null if there is none.
const PythonInterpreter* found_python() noexcept;

}  // namespace inject
