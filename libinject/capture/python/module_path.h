// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The torch.nn.Module to which a Python frame belongs, and its place among the modules of another one.
#pragma once

#include <cstddef>

#include "libinject/capture/python/frame_reader.h"

namespace inject {

/// The module whose call the frame is: the `self` of Module._call_impl(). Null if the frame is another
/// function's.
const void* called_module(PythonFrame frame) noexcept;

/// The address of the object's type.
const void* type_of(const void* object) noexcept;

/// The path of a module below another one, as in named_modules(): names joined by dots. Modules in between
/// are part of it, whether they are called (Sequential) or not (ModuleList). Of several paths the shortest,
/// of these the first. Returns its length; 0 if there is none within four levels, if 4,096 modules have been
/// searched, or if they are stored in an unknown form.
///
/// The dictionaries belong to the interpreter, and are read without its lock, only from memory that the
/// kernel has confirmed to be mapped: a program that changes a module's children on another thread at the
/// same time may get another path, or none. Takes about a dozen system calls for each module searched.
std::size_t copy_module_path(const void* parent, const void* child, char* text, std::size_t size) noexcept;

}  // namespace inject
