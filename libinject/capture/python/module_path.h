// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Which torch.nn.Module a Python frame belongs to, and where that stands among the modules of another one.
#pragma once

#include <cstddef>

#include "libinject/capture/python/frame_reader.h"

namespace inject {

/// The module whose call the frame is: what Module._call_impl() got as `self`. Null if it is another
/// function's.
const void* called_module(PythonFrame frame) noexcept;

/// The address of the object's type.
const void* type_of(const void* object) noexcept;

/// The path of a module below another one, as named_modules() has it: names joined by dots. Modules that lie
/// between them are part of it, whether they are called (Sequential) or not (ModuleList). Of several paths
/// the shortest, of these the first. Returns its length; 0 if there is none within four levels, if 4,096
/// modules have been looked into, or if they are not kept as is known.
///
/// The dictionaries belong to the interpreter, and are read without its lock, only from memory of which the
/// kernel says that it is there: a program that changes a module's children on another thread meanwhile may
/// get another path, or none. Takes about a dozen system calls for each module that is looked into.
std::size_t copy_module_path(const void* parent, const void* child, char* text, std::size_t size) noexcept;

}  // namespace inject
