// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What is loaded into this process. Nothing here initialises CUDA.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace inject {

/// True if an object of the process, other than this library, refers to the function `name` by symbol, so
/// that an exported hook of that name is called.
bool process_imports(std::string_view name);

/// If the program is a Python interpreter: has `handler` called when it shuts down. After a Ctrl+C that no
/// script catches, Python ends itself by the signal, bypassing every exit handler.
void at_python_exit(void (*handler)()) noexcept;

/// Name and path of the CUDA libraries in the process, e.g. {"libcublas.so.13", "/usr/…/libcublas.so.13"}.
std::vector<std::pair<std::string, std::string>> cuda_libraries();

}  // namespace inject
