// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Our own Python code (memory_reading.py), which the program's interpreter runs on the program's main thread,
// between two of its instructions: a pending call, as the interpreter's own signal handlers are. It waits
// until that thread runs Python again.
#pragma once

#include <optional>
#include <string_view>

#include "libinject/model/memory_purposes.h"

namespace inject {

/// Asks for a reading at the next optimizer's step, or when reading_is_due() says so. Once in a process.
/// `sees_collectives`: their calls are recorded until then.
void expect_memory_reading(bool sees_collectives) noexcept;
/// An optimizer's step begins, or the iterations end in which one was expected. Any thread of the process,
/// where memory_is_expected(); takes a lock of the interpreter's for a moment.
void reading_is_due(bool at_step) noexcept;
bool memory_is_expected() noexcept;

/// From now on an allocation of PyTorch's that fails leaves `folder`/oom.json, as soon as PyTorch can be
/// told. Call it again until it returns true: PyTorch has been told, or never will be. Any thread.
bool watch_memory_errors(std::string_view folder) noexcept;

/// What has been read; empty until then. May throw std::bad_alloc.
std::optional<MemoryPurposes> memory_reading();

}  // namespace inject
