// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <optional>
#include <string_view>

#include "libinject/model/memory_purposes.h"

namespace inject {

/// Parses the output of memory_reading.py; empty if there is nothing to report, or this is not its JSON. May
/// throw std::bad_alloc.
std::optional<MemoryPurposes> memory_purposes_of(std::string_view json);

}  // namespace inject
