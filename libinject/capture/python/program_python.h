// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Our own Python code (memory_reading.py), which the program's interpreter runs on the program's main thread,
// between two of its instructions: as a pending call, like the interpreter's own signal handlers. It waits
// until that thread runs Python again.
#pragma once

#include <optional>
#include <string_view>

#include "libinject/model/memory_purposes.h"

namespace inject {

/// Requests a reading at the next optimizer step, or when reading_is_due() says so. Once in a process.
/// `sees_collectives`: collectives are recorded until then.
void expect_memory_reading(bool sees_collectives) noexcept;
/// An optimizer step begins, or the iterations end in which one was expected. Any thread of the process, if
/// memory_is_expected(); takes one of the interpreter's locks for a moment.
void reading_is_due(bool at_step) noexcept;
bool memory_is_expected() noexcept;

/// From now on, a failed allocation of PyTorch leaves `folder`/oom.json, once PyTorch can be instructed. Call
/// it again until it returns true: PyTorch has been instructed, or never will be. Any thread.
bool watch_memory_errors(std::string_view folder) noexcept;

/// The reading; empty until it is done. May throw std::bad_alloc.
std::optional<MemoryPurposes> memory_reading();

}  // namespace inject
