// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

namespace inject {

/// Makes the driver and NVTX call the library at `path` in this process, through CUDA_INJECTION64_PATH and
/// NVTX_INJECTION64_PATH, unless another tool is set there. Under NVIDIA's own tools nothing is set, and an
/// inherited setting is removed: Nsight Compute ends a program in which it finds CUDA_INJECTION64_PATH set
/// (2025.3: "Another tool/injection might be loaded"). False if the driver will not call us. Allocates only
/// for the environment.
///
/// Children inherit the two variables, also those started without the preload. So the path is set in a
/// spelling that nobody writes by hand, `/folder/././libinject.so`, which refers to the same file.
bool claim_injection_slot(const char* path) noexcept;

/// True if the library, which the loader knows as `loaded_as`, is here only because of variables that a
/// preloaded parent set for itself: loaded under that spelling, while neither LD_PRELOAD nor a variable set
/// by hand names it. Such a process must not be profiled.
bool is_only_inherited(const char* loaded_as) noexcept;

}  // namespace inject
