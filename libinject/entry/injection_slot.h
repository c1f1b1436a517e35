// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

namespace inject {

/// Lets the driver and NVTX call the library at `path` in this process, by CUDA_INJECTION64_PATH and
/// NVTX_INJECTION64_PATH, unless another tool is set there. Under NVIDIA's own tools nothing is set, and an
/// inherited setting is removed: Nsight Compute ends a program that it finds CUDA_INJECTION64_PATH set in
/// (2025.3: "Another tool/injection might be loaded"). False if the driver will not call us. Allocates for
/// the environment alone.
///
/// Children inherit the two variables, also those that somebody starts without the preload. So the path is
/// set in a spelling that nobody writes by hand, `/folder/././libinject.so`, which leads to the same file.
bool claim_injection_slot(const char* path) noexcept;

/// Whether the library, which the loader knows as `loaded_as`, is here only because of variables that a
/// preloaded parent set for itself: loaded by that spelling, while neither LD_PRELOAD nor a variable that
/// was set by hand names it. Such a process is not to be profiled.
bool is_only_inherited(const char* loaded_as) noexcept;

}  // namespace inject
