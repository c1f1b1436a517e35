// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Who holds CUPTI when we can't use it: text for messages.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/capture/cupti/api.h"

namespace inject {

/// The tool to which a library of this path or name belongs: "Nsight Systems"; empty if it is unknown.
std::string_view tool_of_library(std::string_view path) noexcept;

/// "torch.profiler (libtorch_cpu.so)", or the file's name if no tool is known.
std::string describe_library(std::string_view path);

/// The tool that is likely to hold CUPTI, or all of CUDA's tool interface, judged by environment and loaded
/// libraries: "Nsight Systems (CUDA_INJECTION64_PATH=/opt/…)"; empty if none is known. `own`: our library's
/// file, which is ignored in an injection variable. Frameworks that merely bring a profiler are not named.
std::string likely_holder(const std::function<const char*(const char*)>& variable,
                          const std::vector<std::string>& libraries, const std::string& own);

/// The same for this process, in its current state.
std::string likely_holder();

/// The current subscriber, after CUPTI has refused us: as known to CUPTI, and from hooks, environment or
/// loaded libraries. Empty if it is unknown.
std::string subscriber_name(const CuptiApi& api);

/// The path of the loaded object that contains `address`; empty if there is none. Takes the loader's lock.
std::string object_containing(const void* address);

/// The start-up message about what takes our place: a second copy of this library, or another tool that the
/// driver calls instead of us. Empty if there is none. `copies`: of this library, our own first.
std::string others_in_place(const std::function<const char*(const char*)>& variable,
                            const std::vector<std::string>& copies);

/// The same for this process, in its current state.
std::string others_in_place();

}  // namespace inject
