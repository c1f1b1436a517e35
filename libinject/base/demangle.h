// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace inject {

/// Longer results are truncated: a mangled name of 250 bytes can stand for half a gigabyte of text.
inline constexpr std::size_t kMaxDemangledLength = 16 * 1024;

/// A C++ name in the form of its full declaration; any other name unchanged.
std::string demangle(std::string_view name);

}  // namespace inject
