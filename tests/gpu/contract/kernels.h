// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

namespace contract {

/// The host stub of the kernel of that name, as registered by nvcc's code; null if there is none.
const void* stub_of(const char* name);

}  // namespace contract
