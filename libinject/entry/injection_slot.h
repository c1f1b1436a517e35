// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

namespace inject {

/// Lets the driver and NVTX call the library at `path` in this process and its children, by
/// CUDA_INJECTION64_PATH and NVTX_INJECTION64_PATH, unless another tool is set there. Under NVIDIA's own
/// tools nothing is set, and an inherited setting is removed: Nsight Compute ends a program that
/// it finds CUDA_INJECTION64_PATH set in (2025.3: "Another tool/injection might be loaded"). False if the
/// driver will not call us. Allocates for the environment alone.
bool claim_injection_slot(const char* path) noexcept;

}  // namespace inject
