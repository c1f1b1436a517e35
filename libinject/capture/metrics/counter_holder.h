// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Guesses who is using a GPU's performance counters when they are busy: CUPTI does not report it, and the
// counters are shared by the whole machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace inject {

/// Continues "another profiler uses its counters" with what can be done. `tool`: one under which this process
/// runs, empty if none; `processes`: names of those that are visible.
std::string counter_holder(std::string_view tool, const std::vector<std::string>& processes);

/// The same for this machine, in its current state. Searches /proc, 4,096 processes at most.
std::string counter_holder();

}  // namespace inject
