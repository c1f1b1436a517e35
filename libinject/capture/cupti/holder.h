// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Who holds CUPTI where we can't have it, in words for a message.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/capture/cupti/api.h"

namespace inject {

/// The tool that a library of this path or name belongs to: "Nsight Systems"; empty where it is none that we
/// know.
std::string_view tool_of_library(std::string_view path) noexcept;

/// "torch.profiler (libtorch_cpu.so)", or the file's name where no tool is known.
std::string library_in_words(std::string_view path);

/// What environment and loaded libraries say of tools that hold CUPTI, or the whole of CUDA's tool interface:
/// "Nsight Systems (CUDA_INJECTION64_PATH=/opt/…)"; empty where they say nothing. `own`: our library's file,
/// whose name in an injection variable means nothing. Frameworks that merely bring a profiler are not named.
std::string likely_holder(const std::function<const char*(const char*)>& variable,
                          const std::vector<std::string>& libraries, const std::string& own);

/// The same of this process, as it is now.
std::string likely_holder();

/// Who has subscribed, after CUPTI has refused us: as CUPTI knows it, and as hooks, environment or loaded
/// libraries have it. Empty if nobody knows.
std::string subscriber_name(const CuptiApi& api);

/// The path of the loaded object that holds `address`; empty if none does. Takes the loader's lock.
std::string object_around(const void* address);

/// What a process is told at its start of others in its place: a second copy of this library, or another tool
/// that the driver calls instead of us. Empty if there are none. `copies`: of this library, our own first.
std::string others_in_place(const std::function<const char*(const char*)>& variable,
                            const std::vector<std::string>& copies);

/// The same of this process, as it is now.
std::string others_in_place();

}  // namespace inject
