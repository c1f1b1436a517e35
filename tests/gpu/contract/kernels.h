// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

namespace contract {

/// The host stub of the kernel with that name, as nvcc's code has registered it; null if there is none.
const void* stub_of(const char* name);

}  // namespace contract
